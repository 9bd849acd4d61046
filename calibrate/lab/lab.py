#!/usr/bin/env python3
"""Predictions against real training on this machine: clusters of network namespaces, ranks of PyTorch, one table.

usage: lab.py --trainyard PROGRAM [--quick] [--only WORD]... [--kind paced|real] [--list] [-o out/lab]
       lab.py --messages SAMPLES.jsonl [--quick]: measures messages between two hosts only, and appends them

docs/lab.md says what is measured and how to read the table. Exit codes: 0 done, 1 an experiment of --quick was further
off than it may be, 2 wrong command line, 4 this machine cannot run the lab (it says what is missing), 130 interrupted.
"""

import argparse
import datetime
import json
import math
import os
import pathlib
import shutil
import statistics
import sys
import tempfile
import time

os.environ["OMP_NUM_THREADS"] = "1"  # before torch is loaded: ranks are processes

try:
    import torch  # noqa: F401
except ModuleNotFoundError:
    print(f"lab: {sys.executable} has no torch: install python3-torch, or run ./dev lab", file=sys.stderr)
    sys.exit(4)

import data_parallel  # noqa: E402
import experiments  # noqa: E402
import messages  # noqa: E402
import namespaces  # noqa: E402
import network  # noqa: E402
import predicted  # noqa: E402
import ranks  # noqa: E402
import real  # noqa: E402
import report  # noqa: E402
from scenarios import SETS  # noqa: E402

QUICK = ("ring-4-1mb", "ddp-4-exposed", "1f1b-4x4")
QUICK_TOLERANCE = 0.25
LOCK = "trainyard-lab"
PRESET = "epyc-9004-core"


def parsed():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--trainyard", help="the program that predicts")
    parser.add_argument("--messages", metavar="SAMPLES", help="append what messages take to this file alone")
    parser.add_argument("--quick", action="store_true", help="three experiments in under a minute, each within 25 %%")
    parser.add_argument("--only", action="append", default=[], metavar="WORD",
                        help="experiments whose name or group holds the word; may be given again")
    parser.add_argument("--gpu", default=PRESET, metavar="PRESET",
                        help=f"of configs/gpus: one core of this machine, for real ranks (default: {PRESET})")
    parser.add_argument("--kind", choices=("paced", "real"), help="only those whose passes sleep, or compute")
    parser.add_argument("--list", action="store_true", help="the names of all experiments, and nothing else")
    parser.add_argument("-o", "--output", default="out/lab", help="folder of the report (default: out/lab)")
    options = parser.parse_args()
    if not (options.trainyard or options.messages or options.list):
        parser.error("--trainyard PROGRAM is missing: ./dev lab builds it and says it")
    if options.trainyard and not shutil.which(options.trainyard):
        parser.error(f"{options.trainyard} is no program; ./dev lab builds build/release/trainyard")
    if pathlib.Path(options.output).resolve().is_relative_to("/run"):
        parser.error("-o below /run would be lost: the lab has a /run of its own; choose another folder")
    return options


class Row:
    """An experiment with what was measured and what was predicted for it."""

    def __init__(self, experiment, predicted, measured, spans, slices, flows=()):
        self.experiment, self.predicted, self.measured = experiment, predicted, measured
        self.spans, self.slices, self.flows = spans, slices, flows

    @property
    def median(self):
        return statistics.median(self.measured)

    @property
    def error(self):
        """Of the prediction, in parts of what was measured."""
        return self.predicted / self.median - 1

    def json(self):
        x = self.experiment
        return {"name": x.name, "group": x.group, "topology": x.topology, "ranks": x.ranks, "what": x.what,
                "set": x.set, "quantity": x.quantity, "contention": x.contention, "fair": x.fair,
                "predicted": self.predicted, "measured": self.median, "least": min(self.measured),
                "most": max(self.measured), "error": self.error, "flows": list(self.flows)}


def in_unit(quantity, value):
    """As a person reads it."""
    if quantity == "s":
        return f"{value * 1e3:.1f} ms" if value < 10 else f"{value:.2f} s"
    return f"{value:.2f}{quantity and ' ' + quantity}"


def printed(row):
    x = row.experiment
    print(f"{x.name:<22} {x.topology:<9} {x.ranks:>5}  {in_unit(x.quantity, row.median):>12} "
          f"{in_unit(x.quantity, row.predicted):>12} {row.error * 100:>+7.1f} %  {x.what}", flush=True)
    if row.flows:
        print(" " * 23 + "ranks done, ms (predicted): " + ", ".join(
            f"{rank}: {end * 1e3:.0f}" + ("" if planned is None else f" ({planned * 1e3:.0f})")
            for rank, end, planned in row.flows))


def flows_of(experiment, records, slices, stand_ins):
    """(rank, seconds at which it was done in the last step, the same predicted or None for a server) of each rank."""
    ends = {}
    for owner, _, _, _, end, _ in slices:
        if owner.startswith("rank "):
            rank = int(owner.split()[1])
            ends[rank] = max(ends.get(rank, 0.0), end)
    return [(r["rank"], r["ends"][-1] - r["starts"][-1], ends.get(stand_ins.get(r["rank"] - experiment.servers)))
            for r in records]


def rows_of_jobs(experiment, records, jobs, slices):
    """A row for each job; the picture is of the first one's ranks."""
    first = [r for r in records if r["job"] == 0]
    spans = [(rank, label, kind, begin - r["starts"][-1], end - r["starts"][-1])
             for rank, r in enumerate(first) for label, kind, begin, end in r["spans"]]
    found = []
    for number, (planned, means) in enumerate(zip(jobs, data_parallel.steps_of_jobs(records))):
        own = experiment if number == 0 else experiment.of("s", f"{experiment.name} ({planned['name']})",
                                                           f"the other: alone {planned['alone_s'] * 1e3:.0f} ms")
        found.append(Row(own, planned["together_s"], means, [] if number else spans, [] if number else slices))
    return found


def summary_of(rows):
    """Mean absolute error and the largest, of rows; None of none."""
    if not rows:
        return None
    errors = [abs(row.error) for row in rows]
    return {"rows": len(rows), "mape": sum(errors) / len(errors), "median": statistics.median(errors),
            "worst": max(errors), "worst_name": max(rows, key=lambda row: abs(row.error)).experiment.name}


def summaries(rows):
    return {name: found for name in SETS if (found := summary_of([row for row in rows if row.experiment.set == name]))}


class Lab:
    """One run, inside the sandbox."""

    def __init__(self, options, folder):
        self.options, self.folder = options, folder
        self.rows, self.skipped = [], []
        self.scheduling, self.refused = "", set()

    def run(self, chosen):
        """chosen: the experiments as the cables are built for them."""
        for tool in ("ip", "tc", "bridge"):
            if not shutil.which(tool):
                raise namespaces.NamespaceError(f"{tool} was not found: install iproute2")
        self.netem = namespaces.has_netem()
        lines = {x.name: x.scenario for x in chosen}
        print("lab: messages between two hosts", file=sys.stderr, flush=True)
        self.messages = messages.calibrated(self.options.trainyard, self.folder, self.options.gpu, self.options.quick)
        print(f"{'experiment':<22} {'network':<9} {'ranks':>5}  {'measured':>12} {'predicted':>12} {'error':>9}",
              flush=True)
        for experiment in experiments.all_of(self.messages):
            if experiment.name in lines:
                self.guarded(experiment.name, lambda x=experiment: self.measured(x, lines[x.name]))
        if any(x.kind == "real" for x in chosen):
            self.guarded("real ranks", lambda: self.run_real(lines))
        return self.verdict()

    def run_real(self, lines):
        """Those whose passes compute, after a calibration of this machine's cores."""
        print("lab: operators on two cores", file=sys.stderr, flush=True)
        trainyard, preset = self.options.trainyard, self.options.gpu
        folder = self.folder / "scenarios"  # so that scenarios name the profile that stands beside them
        folder.mkdir(exist_ok=True)
        real.calibrated(trainyard, self.folder, folder / "profile.json", preset)
        constants = real.messages_of(trainyard, self.folder, preset)
        for experiment in real.all_of(constants, preset, "profile.json"):
            if experiment.name in lines:
                self.guarded(experiment.name, lambda x=experiment: self.measured(x, lines[x.name]))
        found = [row for row in self.rows if row.experiment.kind == "real"]
        right, total = real.ranking(found)
        print(f"real: {right} of {total} pairs of strategies in the order that was measured; measured steps scatter by "
              f"{real.noise(found) * 100:.1f} % (quartiles)")
        return []

    def guarded(self, name, work):
        """What fails is told and does not stop the others."""
        try:
            for row in work():
                self.rows.append(row)
                printed(row)
        except Exception as error:  # every kind: a lost rank, a refused scenario, a kernel without a queue
            self.skipped.append((name, str(error).strip().splitlines()[-1]))
            print(f"{name:<22} not measured: {self.skipped[-1][1]}", flush=True)

    def measured(self, experiment, line):
        """Rows of an experiment; line: the scenario that its cables are built for."""
        trainyard, name = self.options.trainyard, experiment.name
        scenario, cables = self.folder / "scenarios" / f"{name}.json", self.folder / "cables" / f"{name}.json"
        for path, text in ((scenario, experiment.scenario), (cables, line)):
            path.parent.mkdir(exist_ok=True)
            path.write_text(json.dumps(text, indent=1), encoding="utf-8")
        found, slices = predicted.predict(trainyard, scenario, self.folder / "predicted" / name)
        stand_ins = predicted.stand_ins(trainyard, scenario)
        built = network.of_scenario(trainyard, str(cables))
        if experiment.script:
            experiment.options["script"] = experiment.script(slices, stand_ins)
        jobs = found["jobs"]
        for job, planned in zip(experiment.options.get("jobs", ()), jobs):
            # Two more than are counted; others go on until the first job is done.
            longer = 1.5 * jobs[0]["together_s"] / planned["together_s"] if planned is not jobs[0] else 1
            job["steps"] = math.ceil(longer * (jobs[0]["steps"] + 2))
        with namespaces.Cluster(built, fair=experiment.fair, delay=self.netem) as cluster:
            records = ranks.run(cluster, experiment.program, experiment.ranks, experiment.options)
        if experiment.kind == "paced":
            self.scheduling = records[0]["scheduling"]
        self.refused.update(setting for record in records for setting in record["refused"])
        if experiment.quantity == "updates/s":
            rate, staleness = data_parallel.updates_of(records)
            updates = found["server_updates"]
            older = experiment.of("staleness", name + " (age)", "updates that a gradient had not seen")
            return [Row(experiment, updates["updates_per_s"], [rate], [], []),
                    Row(older, updates["mean_staleness"], [staleness], [], [])]
        if jobs:
            return rows_of_jobs(experiment, records, jobs, slices)
        times = ranks.step_times(records, experiment.warm_up)
        spans = [(record["rank"], label, kind, begin - record["starts"][-1], end - record["starts"][-1])
                 for record in records for label, kind, begin, end in record["spans"]]
        flows = flows_of(experiment, records, slices, stand_ins) if experiment.contention else ()
        return [Row(experiment, found["step_time_s"], times, spans, slices, flows)]

    def verdict(self):
        if self.refused:
            print("lab: settings of TCP that were refused: " + "; ".join(sorted(self.refused)), file=sys.stderr)
        code = 0
        for title, found in summaries(self.rows).items():
            print(f"{title}: {found['rows']} rows, mean error {found['mape'] * 100:.1f} %, median "
                  f"{found['median'] * 100:.1f}, largest {found['worst'] * 100:.1f} ({found['worst_name']})")
        if self.options.quick:
            far = [row for row in self.rows if abs(row.error) > QUICK_TOLERANCE]
            code = 1 if far or self.skipped else 0
        return code


def write_report(lab, folder):
    facts = {"date": datetime.date.today().isoformat(), "cores": os.cpu_count(), "kernel": os.uname().release,
             "scheduling": lab.scheduling, "netem": lab.netem, "refused": sorted(lab.refused)}
    results = {"facts": facts, "messages": vars(lab.messages), "summaries": summaries(lab.rows),
               "rows": [row.json() for row in lab.rows],
               "skipped": [{"name": name, "why": why} for name, why in lab.skipped]}
    (folder / "results.json").write_text(json.dumps(results, indent=1), encoding="utf-8")
    (folder / "report.html").write_text(report.page(lab.rows, results), encoding="utf-8")


def moved(source, target):
    """Puts a finished folder in the place of an earlier one."""
    target.parent.mkdir(parents=True, exist_ok=True)
    new, old = (target.with_name(target.name + end) for end in (".new", ".old"))
    for rest in (new, old):
        shutil.rmtree(rest, ignore_errors=True)
    shutil.copytree(source, new)  # renaming does not cross file systems
    if target.exists():
        target.rename(old)
    new.rename(target)
    shutil.rmtree(old, ignore_errors=True)


def chosen_of(options):
    """The experiments that the command line asks for, as their cables are built; ValueError where a word is of none."""
    every = experiments.all_of(messages.PERFECT) + real.all_of(messages.PERFECT, options.gpu)
    if options.quick and not options.only:
        return [x for x in every if x.name in QUICK]
    for word in options.only:
        if not any(word in x.name or word in x.group for x in every):
            raise ValueError(f"no experiment's name or group holds '{word}'; --list names all")
    found = [x for x in every if not options.only or any(word in x.name or word in x.group for word in options.only)]
    found = [x for x in found if options.kind in (None, x.kind)]
    if not found:
        raise ValueError(f"none of those experiments is {options.kind}")
    return found


def only_messages(options):
    """Appends samples of messages behind those of the probe of processors, which name the machine."""
    lines = messages.samples_of(messages.measured(options.quick))
    with open(options.messages, "a", encoding="utf-8") as stream:
        stream.write("".join(json.dumps(line) + "\n" for line in lines))
    return 0


def whole(options, chosen):
    """A run; until all is done its files are in the sandbox's own /run, and vanish with it."""
    target = pathlib.Path(options.output).resolve()
    folder = pathlib.Path(tempfile.mkdtemp(dir="/run"))
    lab = Lab(options, folder)
    code = lab.run(chosen)
    if lab.rows:
        write_report(lab, folder)
        folder.chmod(0o755)
        moved(folder, target)
        print(f"report: {options.output}/report.html")
    return code


def inside(work):
    """Runs work() in the sandbox and says in a word why it could not be done."""
    try:
        return work()
    except KeyboardInterrupt:
        print("lab: interrupted; nothing was written", file=sys.stderr)
        return 130
    except (namespaces.NamespaceError, predicted.PredictionError, ranks.RankError) as error:
        print(f"lab: {error}", file=sys.stderr)
        return 4


def main():
    options = parsed()
    try:
        chosen = [] if options.messages else chosen_of(options)
    except ValueError as error:
        print(f"lab: {error}", file=sys.stderr)
        return 2
    if options.list:
        for x in chosen:
            print(f"{x.name:<26} {x.group:<17} {x.what}")
        return 0
    held = namespaces.lock(LOCK)
    if not held:
        print("lab: another one is running on this machine, and each would disturb the other; wait for it",
              file=sys.stderr)
        return 4
    began = time.monotonic()
    try:
        code = namespaces.sandboxed(lambda: inside(
            lambda: only_messages(options) if options.messages else whole(options, chosen)))
    except namespaces.NamespaceError as error:
        print(f"lab: {error}", file=sys.stderr)
        return 4
    if not options.messages:
        print(f"lab: {time.monotonic() - began:.0f} s", file=sys.stderr)
    return code


if __name__ == "__main__":
    sys.exit(main())
