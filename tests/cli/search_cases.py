#!/usr/bin/python3
"""What `trainyard search` promises. As cases.py."""

import json
import os
import signal
import subprocess
import time

from process import Cases, require, require_equal, run

HERE = os.path.dirname(os.path.abspath(__file__))
SMALL = os.path.join(HERE, "small.json")
case = Cases()
expect = case.expect

AXES = {
    "parallelism.tp": [1, 2, 4],
    "parallelism.pp": [1, 2, 4],
    "training.micro_batch": [1, 2],
    "training.recompute": ["none", "full"],
    "parallelism.data_parallel.kind": ["allreduce", "fsdp"],
}


def written(folder, axes=None, name="s.json", **search):
    with open(SMALL, encoding="utf-8") as file:
        scenario = json.load(file)
    for key in ("variants", "baseline"):
        scenario.pop(key, None)
    scenario["search"] = {"axes": AXES if axes is None else axes, **search}
    path = os.path.join(folder, name)
    with open(path, "w", encoding="utf-8") as file:
        json.dump(scenario, file)
    return path


@case
def search_finds(folder):
    """search: the options of the best make the step that is promised, and nothing simulated is shorter"""
    path = written(folder)
    found = json.loads(expect(0, "search", path, "--json", "-q")[0])
    everything = json.loads(expect(0, "search", path, "--json", "-q", "--exhaustive")[0])
    require_equal([b["number"] for b in found["best"]], [b["number"] for b in everything["best"]], "the best")
    require_equal(everything["bounds_against_results"]["would_lose"], 0, "lost by bounds")
    best = found["best"][0]
    sets = [word for option in best["set"] for word in ("--set", option)]
    ran = json.loads(expect(0, "run", path, *sets, "--json", "-q")[0])
    require_equal(ran["step_time_s"], best["step_time_s"], "step time")
    others = found["others"]
    counts = ("invalid", "same", "unwanted", "does_not_fit", "never_ends", "beaten_by_bound", "simulated")
    require_equal(sum(others[name] for name in counts), found["configurations"], "every configuration is counted")


@case
def search_where_nothing_fits(folder):
    """search: where nothing fits it is said what needs least, and how much that is"""
    path = written(folder, constraints={"memory": "1MiB"})
    out = expect(1, "search", path, "-q", cwd=folder)[0]
    require("none of them can be run" in out and "nearest: needs at least" in out, out)
    found = json.loads(expect(1, "search", path, "-o", "out", "--json", "-q", cwd=folder)[0])
    lines = contents_of(os.path.join(folder, "out", "configurations.jsonl"))[1:]
    least = min(line["least_memory_bytes"] for line in lines if line["verdict"] == "does_not_fit")
    nearest = next(line for line in lines if line["set"] == found["nearest"]["set"])
    require_equal(nearest["least_memory_bytes"], least, "the nearest")
    with open(os.path.join(folder, "out", "search.html"), encoding="utf-8") as file:
        require("needs at least" in file.read(), "the page does not say it")


@case
def search_where_all_take_too_long(folder):
    """search: where steps are longer than they may be, the shortest of what may fit is said, and no report promised"""
    path = written(folder, constraints={"step_time": "1us"})
    out = expect(1, "search", path, "-o", "out", "-q", cwd=folder)[0]
    require("nearest: a step takes at least" in out and "may take 1.00 us" in out, out)
    require("report.html" not in out and not os.path.exists(os.path.join(folder, "out", "report.html")), out)
    lines = contents_of(os.path.join(folder, "out", "configurations.jsonl"))[1:]
    least = min(line["least_step_ps"] for line in lines if line["verdict"] == "unwanted")
    found = json.loads(expect(1, "search", path, "--json", "-q", cwd=folder)[0])
    nearest = next(line for line in lines if line.get("set") == found["nearest"]["set"])
    require_equal(nearest["least_step_ps"], least, "the nearest")
    require_equal(found["nearest"]["fits"], None, "what a bound alone says of fitting")
    # One that no bound leaves out is simulated, and it is known to fit.
    best = json.loads(expect(0, "search", written(folder), "--json", "-q")[0])["best"][0]
    path = written(folder, constraints={"step_time": f"{best['step_time_s'] * 0.999999 * 1e9:.0f}ns"})
    found = json.loads(expect(1, "search", path, "--json", "-q")[0])["nearest"]
    require_equal((found["set"], found["fits"]), (best["set"], True), "the shortest that fits")


@case
def search_long_steps(folder):
    """search -o: of steps that are too long for a timeline the page has all else"""
    path = written(folder, axes={"training.micro_batch": [1, 2]})
    batch = f"training.global_batch={1 << 18}"  # of samples of four layers
    error = expect(3, "run", path, "--set", batch, "-o", "long", cwd=folder)[1]
    require("a timeline would show" in error, error)
    expect(0, "search", path, "--set", batch, "-o", "out", cwd=folder)
    with open(os.path.join(folder, "out", "report.html"), encoding="utf-8") as file:
        text = file.read()
    page = json.loads(text.split('id="page">')[1].split("</script>")[0])
    lanes = [bool(variant["timeline"]["lanes"]) for variant in page["variants"]]
    require_equal(sorted(lanes), [False, True], "with lanes")  # two samples at a time are half as many passes


@case
def search_not_in_vain(folder):
    """search -o: a folder that cannot be written is refused before anything is simulated"""
    path = written(folder)
    with open(os.path.join(folder, "file"), "w", encoding="utf-8"):
        pass
    error = expect(4, "search", path, "-o", "file", "--log", "log.jsonl", cwd=folder)[1]
    require("is not a folder" in error, error)
    require_equal(sorted(os.listdir(folder)), ["file", "s.json"], "files")


@case
def search_folder(folder):
    """search -o: a summary, each configuration and two pages, the same for any number of threads"""
    path = written(folder)
    for jobs in ("1", "3", "3"):  # the second time over what is there
        expect(0, "search", path, "-o", "out" + jobs, "-j", jobs, cwd=folder)
    for name in ("summary.json", "configurations.jsonl", "search.html", "report.html"):
        contents = []
        for jobs in ("1", "3"):
            with open(os.path.join(folder, "out" + jobs, name), "rb") as file:
                contents.append(file.read())
        require(contents[0] and contents[0] == contents[1], f"{name} differs or is empty")
    with open(os.path.join(folder, "out1", "summary.json"), encoding="utf-8") as file:
        best = json.load(file)["best"][:5]
    for name in ("search.html", "report.html"):
        with open(os.path.join(folder, "out1", name), encoding="utf-8") as file:
            page = file.read()
        for own in best:
            require(" --set ".join(["s.json", *own["set"]]) in page, f"{name} does not say how to run {own['set']}")
    lines = contents_of(os.path.join(folder, "out1", "configurations.jsonl"))
    require_equal([line["number"] for line in lines[1:]], list(range(lines[0]["configurations"])), "lines")


def contents_of(path):
    with open(path, encoding="utf-8") as file:
        return [json.loads(line) for line in file]


@case
def search_shards(folder):
    """search --shard and search merge: the bytes of the whole search, whoever runs the shards"""
    path = written(folder)
    whole = expect(0, "search", path, "--json", "-q")[0]
    for i in (1, 2, 3):
        expect(0, "search", path, "--shard", f"{i}/3", "--log", f"part-{i}.jsonl", "-q", cwd=folder)
    logs = [f"part-{i}.jsonl" for i in (3, 1, 2)]
    require_equal(expect(0, "search", "merge", path, *logs, "--json", "-q", cwd=folder)[0], whole, "merged")
    # As a Slurm array and as mpirun tell their processes which they are.
    slurm = {"SLURM_ARRAY_TASK_MIN": "1", "SLURM_ARRAY_TASK_COUNT": "2"}
    for i, environment in enumerate(
        ({**slurm, "SLURM_ARRAY_TASK_ID": "1"}, {"OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "2"})
    ):
        words = ("search", path, "--shard", "auto", "--log", "auto-%s.jsonl", "-q")
        require_equal(run(case.program, *words, cwd=folder, environment=environment).returncode, 0, f"task {i}")
    merged = expect(0, "search", "merge", path, "auto-1.jsonl", "auto-2.jsonl", "--json", "-q", cwd=folder)[0]
    require_equal(merged, whole, "merged of tasks")
    _, err = expect(3, "search", "merge", path, "part-1.jsonl", "part-3.jsonl", cwd=folder)
    require("part-1.jsonl" in err and "in none of the logs" in err and "shard 2/3, whose log is not here" in err, err)
    with open(os.path.join(folder, "part-2.jsonl"), "r+", encoding="utf-8") as file:
        file.truncate(len(file.readline()) + 500)
    _, err = expect(3, "search", "merge", path, *logs, cwd=folder)
    require(err.startswith("part-2.jsonl: error: ") and "--resume" in err, err)


@case
def search_exhaustive_shards(folder):
    """search --exhaustive --shard: merged, nothing of it is lost, and it does not mix with others"""
    path = written(folder)
    whole = expect(0, "search", path, "--exhaustive", "--json", "-q")[0]
    for i in (1, 2):
        expect(0, "search", path, "--exhaustive", "--shard", f"{i}/2", "--log", f"all-{i}.jsonl", "-q", cwd=folder)
    merged = expect(0, "search", "merge", path, "all-1.jsonl", "all-2.jsonl", "--json", "-q", cwd=folder)[0]
    require_equal(merged, whole, "merged")
    words = ("search", path, "--shard", "2/2", "--log")
    _, err = expect(3, *words, "all-2.jsonl", "--resume", cwd=folder)
    require("go on with --exhaustive, too" in err, err)
    expect(0, *words, "part-2.jsonl", "-q", cwd=folder)
    _, err = expect(3, "search", "merge", path, "all-1.jsonl", "part-2.jsonl", cwd=folder)
    require(err.startswith("part-2.jsonl: error: this shard was searched without --exhaustive"), err)


@case
def search_is_killed(folder):
    """search --resume: a search that is killed at any instant goes on, and tells the same"""
    axes = {**AXES, "training.launch_time": [f"{us}us" for us in range(12)]}
    path = written(folder, axes, objective=["step_time", "memory"])
    whole = expect(0, "search", path, "--json", "-q")[0]
    words = [case.program, "search", path, "--log", "log.jsonl", "--resume", "--json", "-q", "-j", "1"]
    for delay in (0.0, 0.01, 0.03, 0.1):
        child = subprocess.Popen(words, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        time.sleep(delay)
        child.send_signal(signal.SIGKILL)
        child.wait()
    out, _ = expect(0, *words[1:], cwd=folder)
    require_equal(out, whole, "resumed")
    lines = contents_of(os.path.join(folder, "log.jsonl"))
    require_equal(len({line["number"] for line in lines[1:]}), lines[0]["configurations"], "configurations")
    # What is known is not judged again.
    before = os.path.getsize(os.path.join(folder, "log.jsonl"))
    require_equal(expect(0, *words[1:], cwd=folder)[0], whole, "resumed twice")
    require(os.path.getsize(os.path.join(folder, "log.jsonl")) <= 2 * before, "the log grows without end")


@case
def search_refusals(folder):
    """search: what cannot be searched is refused where it stands, and nothing is written or lost"""
    path = written(folder)

    def refused(code, words, *args):
        _, err = expect(code, "search", *args, cwd=folder)
        require(words in err, err)

    refused(2, "the scenario is missing")
    refused(2, "--shard 5/4: shards of 4 are 1/4 to 4/4", path, "--shard", "5/4", "--log", "a.jsonl")
    refused(2, "expected I/N", path, "--shard", "two", "--log", "a.jsonl")
    refused(2, "neither a Slurm array nor an MPI launcher", path, "--shard", "auto", "--log", "a.jsonl")
    refused(2, "goes into a file", path, "--shard", "1/2")
    refused(2, "with --log FILE", path, "--resume")
    refused(3, "the space has 72 configurations, at most 10 are searched: parallelism.tp 3", path, "--limit", "10")
    require(not os.path.exists(os.path.join(folder, "a.jsonl")), "a log was begun")
    thousand = {"from": 1, "to": 1000, "plus": 1}
    large = written(folder, {f"parallelism.{key}": thousand for key in ("tp", "pp", "cp")}, "large.json")
    refused(3, "the space has 1000000000 configurations", large)
    none = written(folder, {"parallelism.tp": [3, 5]}, "none.json")
    out, _ = expect(1, "search", none)
    require("none of them can be run" in out and "do not divide" in out, out)
    fixed = {"fixed": {"parallelism.pp": 1, "/parallelism/pp": 2}}
    twice = written(folder, {"parallelism.tp": [1]}, "twice.json", constraints=fixed)
    refused(3, "is fixed by /parallelism/pp too", twice)
    expect(0, "search", path, "--log", "log.jsonl", "-q", cwd=folder)
    with open(os.path.join(folder, "log.jsonl"), "rb") as file:
        log = file.read()
    refused(2, "is there already: --resume goes on with it", path, "--log", "log.jsonl")
    resume = ("--log", "log.jsonl", "--resume")
    refused(3, "this is the log of another search", path, "--set", "training.global_batch=64", *resume)
    refused(3, "this is the log of shard 1/1, not of 1/2", path, "--shard", "1/2", *resume)
    refused(3, "this is no log of a search", path, "--log", path, "--resume")
    with open(os.path.join(folder, "log.jsonl"), "rb") as file:
        require(file.read() == log, "the log has changed")


@case
def search_of_a_changed_file(folder):
    """search --resume: a profile that has changed since is another search, and a merge takes no part of it"""
    with open(os.path.join(HERE, "..", "..", "configs", "profiles", "a100-sxm4-80gb.json"), encoding="utf-8") as file:
        profile = json.load(file)
    profile["gpu"] = "test-gpu"
    own = os.path.join(folder, "own.json")
    with open(own, "w", encoding="utf-8") as file:
        json.dump(profile, file)
    path = written(folder, {"parallelism.tp": [1, 2]})
    words = ("search", path, "--set", "cluster.calibration=./own.json", "--log", "log.jsonl", "-q")
    expect(0, *words, cwd=folder)
    expect(0, *words, "--resume", cwd=folder)
    with open(own, "a", encoding="utf-8") as file:
        file.write("\n")
    _, err = expect(3, *words, "--resume", cwd=folder)
    require("this is the log of another search" in err, err)
    _, err = expect(3, "search", "merge", path, "log.jsonl", *words[2:4], cwd=folder)
    require("this is the log of another search" in err, err)


@case
def search_slurm(folder):
    """search --slurm: the script of an array whose tasks are the shards"""
    out, _ = expect(0, "search", written(folder, name="my s'.json"), "--slurm", "16", "--exhaustive")
    require("--job-name=search-my_s_\n" in out and " --exhaustive --shard" in out, out)
    _, err = expect(2, "search", written(folder), "--slurm", "16", "-o", "out")
    require("'trainyard search merge' takes -o" in err, err)
    with open(os.path.join(folder, "array.sh"), "w", encoding="utf-8") as file:
        file.write(out)
    require("#SBATCH --array=1-16" in out and '"$SLURM_ARRAY_TASK_ID/16"' in out and "search merge" in out, out)
    done = subprocess.run(["bash", "-n", os.path.join(folder, "array.sh")], check=False)
    require_equal(done.returncode, 0, "bash -n")
    gaps = {"SLURM_ARRAY_TASK_ID": "3", "SLURM_ARRAY_TASK_MIN": "1", "SLURM_ARRAY_TASK_MAX": "7",
            "SLURM_ARRAY_TASK_COUNT": "3"}  # 1,3,7
    _, err = expect(2, "search", written(folder), "--shard", "auto", "-q", environment=gaps)
    require("3 tasks from 1 to 7" in err and "--array=1-3" in err, err)


case.main()
