#!/usr/bin/python3
"""Wall time and peak memory of whole runs, from start to JSON: of large and of uneven clusters, and
of the shipped scenarios.

usage: whole_process.py PROGRAM [SCENARIO...]
"""

import collections
import glob
import json
import os
import resource
import sys
import tempfile
import time

import calculon_spaces
import large_scenarios

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
RUNS = 5
# Steps of many micro-batches, whose time is that of those that do not repeat.
GROWN = [("gpt3-175b-1024xa100", "training.global_batch", batch) for batch in (1024, 32768, 262144)]


def measure(words):
    """Seconds and peak resident MiB of one run, and its exit code."""
    began = time.monotonic()
    child = os.fork()
    if child == 0:
        null = os.open(os.devnull, os.O_RDWR)
        os.dup2(null, 1)
        os.dup2(null, 2)
        os.execv(words[0], words)
    _, status, usage = os.wait4(child, 0)
    return time.monotonic() - began, usage.ru_maxrss / 1024, os.waitstatus_to_exitcode(status)


def command_of(scenario):
    """As tests/cli/scenarios.txt runs it."""
    name = os.path.basename(scenario).removesuffix(".json")
    with open(os.path.join(ROOT, "tests/cli/scenarios.txt"), encoding="utf-8") as file:
        for line in file:
            words = line.split()
            if words and words[0] == name:
                return words[1]
    return "run"


def print_times(name, command, words, count=RUNS):
    """A line of the table: runs of a command that ends with JSON."""
    runs = [measure([*words, "--json", "-q"]) for _ in range(count)]
    if any(code not in (0, 1) for _, _, code in runs):
        sys.exit(f"{name}: exit code {runs[0][2]}")
    times = sorted(seconds for seconds, _, _ in runs)
    most = max(memory for _, memory, _ in runs)
    print(f"{name:<32} {command:<8} {times[count // 2]:>9.3f} {times[0]:>9.3f} {most:>7.1f}", flush=True)


def print_scenario(program, scenario, options=(), count=RUNS):
    command = command_of(scenario)
    name = os.path.basename(scenario).removesuffix(".json")
    print_times(name, command, [program, command, scenario, *options], count)


def cpu_and_wall(words):
    """Medians of processor seconds, of user and system together, and of wall seconds."""
    times = []
    for _ in range(RUNS):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        wall, _, code = measure(words)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        if code not in (0, 1):
            sys.exit(f"{' '.join(words)}: exit code {code}")
        times.append((after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, wall))
    return tuple(sorted(column)[RUNS // 2] for column in zip(*times))


def print_reports(program, scenarios):
    """What a folder of reports costs beside the run that it is of."""
    names = [f"{of:>9} {'without':>9} {'times':>7}" for of in ("cpu s", "wall s")]
    print(f"\n{'with reports (-o)':<32} {' '.join(names)}")
    with tempfile.TemporaryDirectory() as folder:
        for name in scenarios:
            path = os.path.join(ROOT, "configs/scenarios", name + ".json")
            words = [program, command_of(path), path, "-q", "--no-ways-to-fit"]
            plain = cpu_and_wall(words)
            written = cpu_and_wall(words + ["-o", os.path.join(folder, name), "--force"])
            columns = [f"{b:>9.3f} {a:>9.3f} {b / a:>7.2f}" for a, b in zip(plain, written)]
            print(f"{name:<32} {' '.join(columns)}")


def count_verdicts(log):
    """How many configurations of a search came to which verdict; those that only a run showed not to fit were
    simulated, too."""
    verdicts = collections.Counter()
    with open(log, encoding="utf-8") as file:
        for line in file:
            configuration = json.loads(line)
            verdict = configuration.get("verdict")
            if verdict == "does_not_fit" and not configuration["why"].startswith("needs at least"):
                verdict = "simulated"
            verdicts[verdict] += 1
    del verdicts[None]
    return verdicts


def print_searches(program):
    """Rates of searches of Calculon's spaces on one thread, by processor time: as they are, exhaustive, and less what
    the same take where nothing fits; and times of comparisons."""
    names = ("valid", "valid/s", "simulated", "sim/s all", "sim/s alone")
    print(f"\n{'search, one thread':<32} " + " ".join(f"{name:>11}" for name in names))
    with tempfile.TemporaryDirectory() as folder:
        for space in calculon_spaces.SPACES:
            verdicts, default, whole, reading = collections.Counter(), 0, 0, 0
            for name, file in calculon_spaces.searches(space):
                path = calculon_spaces.write(folder, name, file)
                words = [program, "search", path, "-j", "1", "--json"]
                log = os.path.join(folder, f"{name}.jsonl")
                measure([*words, "--exhaustive", "--log", log])
                verdicts += count_verdicts(log)
                default += cpu_and_wall(words)[0]
                whole += cpu_and_wall([*words, "--exhaustive"])[0]
                words[2] = calculon_spaces.write(folder, f"{name}-fits-nothing", calculon_spaces.fitting_nothing(file))
                reading += cpu_and_wall(words)[0]
            simulated = verdicts["simulated"]
            valid = simulated + verdicts["does_not_fit"]
            alone = simulated / (whole - reading) if simulated else 0
            print(f"{space[0]:<32} {valid:>11} {valid / default:>11.0f} {simulated:>11} {simulated / whole:>11.0f} "
                  f"{alone:>11.0f}", flush=True)
        print(f"\n{'100 variants, with ways to fit':<32} {'command':<8} {'median s':>9} {'least s':>9} {'MiB':>7}")
        for space in calculon_spaces.SPACES:
            path = calculon_spaces.write(folder, f"{space[0]}-100", calculon_spaces.variants(space, 100))
            print_times(space[0], "compare", [program, "compare", path])


def main():
    program = os.path.abspath(sys.argv[1])
    scenarios = [os.path.abspath(path) for path in sys.argv[2:]]
    os.environ.setdefault("TRAINYARD_CONFIGS", os.path.join(ROOT, "configs"))
    print(f"{'scenario':<32} {'command':<8} {'median s':>9} {'least s':>9} {'MiB':>7}")
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)  # reports that lie in out/ are nobody's business here
        print_all(program, scenarios, folder)
        os.chdir(ROOT)


def print_all(program, scenarios, folder):
    if not scenarios:
        for scenario, options, count in large_scenarios.write_all(folder):
            print_scenario(program, scenario, options, count)
    for scenario in scenarios or sorted(glob.glob(os.path.join(ROOT, "configs/scenarios/*.json"))):
        print_scenario(program, scenario)
    if scenarios:
        return
    for name, key, value in GROWN:
        path = os.path.join(ROOT, "configs/scenarios", f"{name}.json")
        print_times(f"  {key.split('.')[-1]} {value}", "run", [program, "run", path, "--set", f"{key}={value}"])
    print_reports(program, ("four-strategies", "gpt3-175b-1024xa100"))
    print_searches(program)


if __name__ == "__main__":
    main()
