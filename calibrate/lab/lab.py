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
import os
import pathlib
import shutil
import statistics
import sys
import tempfile
import time

os.environ["OMP_NUM_THREADS"] = "1"  # before torch is loaded: ranks are processes

import namespaces  # noqa: E402

QUICK = ("ring-4-1mb", "ddp-4-exposed", "1f1b-4x4")
QUICK_TOLERANCE = 0.25
LOCK = "trainyard-lab"


def parsed():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--trainyard", help="the program that predicts")
    parser.add_argument("--messages", metavar="SAMPLES", help="append what messages take to this file alone")
    parser.add_argument("--quick", action="store_true", help="three experiments in under a minute, each within 25 %%")
    parser.add_argument("--only", action="append", default=[], metavar="WORD",
                        help="experiments whose name or group holds the word; may be given again")
    parser.add_argument("--kind", choices=("paced", "real"), help="only those whose passes sleep, or compute")
    parser.add_argument("--list", action="store_true", help="the names of all experiments, and nothing else")
    parser.add_argument("-o", "--output", default="out/lab", help="folder of the report (default: out/lab)")
    options = parser.parse_args()
    if not (options.trainyard or options.messages or options.list):
        parser.error("--trainyard PROGRAM is missing: ./dev lab builds it and says it")
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
                "quantity": x.quantity, "contention": x.contention, "fair": x.fair, "predicted": self.predicted,
                "measured": self.median, "least": min(self.measured), "most": max(self.measured),
                "error": self.error, "flows": list(self.flows)}


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
        print(" " * 23 + "ranks done: " + ", ".join(f"{rank}: {end * 1e3:.0f} ms" for rank, end, _ in row.flows))


def flows_of(records, slices):
    """(rank, seconds at which it was done in the last step, the same predicted or None) of each rank."""
    ends = {}
    for owner, _, _, _, end, _ in slices:
        if owner.startswith("rank "):
            rank = int(owner.split()[1])
            ends[rank] = max(ends.get(rank, 0.0), end)
    return [(r["rank"], r["ends"][-1] - r["starts"][-1], ends.get(r["rank"])) for r in records]


def summary_of(rows):
    """Mean absolute error and the largest, of rows; None of none."""
    if not rows:
        return None
    errors = [abs(row.error) for row in rows]
    return {"rows": len(rows), "mape": sum(errors) / len(errors), "median": statistics.median(errors),
            "worst": max(errors), "worst_name": max(rows, key=lambda row: abs(row.error)).experiment.name}


SETS = (  # title, which rows
    ("paced, no shared cable", lambda x: x.kind == "paced" and not x.contention),
    ("contention, fair queues", lambda x: x.kind == "paced" and x.contention and x.fair and x.quantity == "s"),
    ("contention, one queue", lambda x: x.kind == "paced" and x.contention and not x.fair),
    ("asynchronous: updates a second", lambda x: x.quantity == "updates/s"),
    ("asynchronous: staleness", lambda x: x.quantity == "staleness"),
    ("real", lambda x: x.kind == "real"),
)


def summaries(rows):
    return {title: found for title, which in SETS
            if (found := summary_of([row for row in rows if which(row.experiment)]))}


class Lab:
    """One run, inside the sandbox."""

    def __init__(self, options, folder):
        self.options, self.folder = options, folder
        self.rows, self.skipped, self.scheduling = [], [], ""
        self.preset = "epyc-9004-core"  # of the profile that messages are fitted into; they do not depend on it

    def wanted(self, experiment):
        options = self.options
        if options.quick and not options.only:
            return experiment.name in QUICK
        if options.kind and experiment.kind != options.kind:
            return False
        return not options.only or any(word in experiment.name or word in experiment.group for word in options.only)

    def run(self):
        import experiments
        import messages
        import ranks
        import real
        self.ranks = ranks
        if not shutil.which("tc") or not shutil.which("ip"):
            raise namespaces.NamespaceError("ip and tc were not found: install iproute2")
        self.netem = namespaces.has_netem()
        print("lab: messages between two hosts", file=sys.stderr, flush=True)
        self.messages = messages.calibrated(self.options.trainyard, self.folder, self.preset, self.options.quick)
        chosen = [x for x in experiments.all_of(self.messages) if self.wanted(x)]
        lines = {x.name: x.scenario for x in experiments.all_of(messages.PERFECT)}
        print(f"{'experiment':<22} {'network':<9} {'ranks':>5}  {'measured':>12} {'predicted':>12} {'error':>9}",
              flush=True)
        for experiment in chosen:
            self.guarded(experiment, lambda x=experiment: self.paced(x, lines[x.name]))
        self.run_real(real)
        if not self.rows and not self.skipped:
            print(f"lab: no experiment is called {' or '.join(self.options.only)}; --list names all", file=sys.stderr)
            return 2
        return self.verdict()

    def run_real(self, real):
        """Those whose passes compute, after a calibration of this machine's cores."""
        wanted = [name for name in real.names() if self.wanted(real.named(name))]
        if not wanted:
            return
        print("lab: operators on two cores", file=sys.stderr, flush=True)
        profile = real.calibrated(self.options.trainyard, self.folder, self.preset)
        constants = real.messages_of(self.options.trainyard, self.folder, self.preset)
        for experiment in real.all_of(constants, self.preset, profile):
            if experiment.name in wanted:
                self.guarded(experiment, lambda x=experiment: real.run(self, x, Row))
        found = [row for row in self.rows if row.experiment.kind == "real"]
        right, total = real.ranking(found)
        print(f"real: {right} of {total} pairs of strategies in the order that was measured; measured steps scatter by "
              f"{real.noise(found) * 100:.1f} % (quartiles)")

    def guarded(self, experiment, work):
        """An experiment that fails is told and does not stop the others."""
        try:
            for row in work():
                self.rows.append(row)
                printed(row)
        except Exception as error:  # every kind: a lost rank, a refused scenario, a kernel without a queue
            self.skipped.append((experiment.name, str(error).strip().splitlines()[-1]))
            print(f"{experiment.name:<22} not measured: {self.skipped[-1][1]}", flush=True)

    def paced(self, experiment, line_scenario):
        import data_parallel
        import network
        import predicted
        path = self.folder / "scenarios" / f"{experiment.name}.json"
        path.parent.mkdir(exist_ok=True)
        path.write_text(json.dumps(experiment.scenario, indent=1), encoding="utf-8")
        report, slices = predicted.predict(self.options.trainyard, path, self.folder / "predicted" / experiment.name)
        line = self.folder / "line.json"
        line.write_text(json.dumps(line_scenario), encoding="utf-8")
        built = network.of_scenario(self.options.trainyard, str(line))
        if experiment.script:
            experiment.options["script"] = experiment.script(slices)
        with namespaces.Cluster(built, fair=experiment.fair, delay=self.netem) as cluster:
            records = self.ranks.run(cluster, experiment.program, experiment.ranks, experiment.options)
        self.scheduling = records[0]["scheduling"]
        if experiment.quantity == "updates/s":
            rate, staleness = data_parallel.updates_of(records)
            updates = report["server_updates"]
            older = experiment.of("staleness", experiment.name + " (age)", "updates that a gradient had not seen")
            return [Row(experiment, updates["updates_per_s"], [rate], [], []),
                    Row(older, updates["mean_staleness"], [staleness], [], [])]
        times = self.ranks.step_times(records, experiment.warm_up)
        spans = [(record["rank"], label, kind, begin - record["starts"][-1], end - record["starts"][-1])
                 for record in records for label, kind, begin, end in record["spans"]]
        flows = flows_of(records, slices) if experiment.contention else ()
        return [Row(experiment, report["step_time_s"], times, spans, slices, flows)]

    def verdict(self):
        code = 0
        for title, found in summaries(self.rows).items():
            print(f"{title}: {found['rows']} rows, mean error {found['mape'] * 100:.1f} %, median "
                  f"{found['median'] * 100:.1f}, largest {found['worst'] * 100:.1f} ({found['worst_name']})")
        if self.options.quick:
            far = [row for row in self.rows if abs(row.error) > QUICK_TOLERANCE]
            code = 1 if far or self.skipped else 0
        return code


def write_report(lab, folder):
    import report
    facts = {"date": datetime.date.today().isoformat(), "cores": os.cpu_count(), "kernel": os.uname().release,
             "scheduling": lab.scheduling, "netem": lab.netem}
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


def only_messages(options):
    """Samples of messages without the machine's line, which the file has from the probe before."""
    import messages
    lines = messages.samples_of(messages.measured(options.quick), messages.processor_name())[1:]
    with open(options.messages, "a", encoding="utf-8") as stream:
        stream.write("".join(json.dumps(line) + "\n" for line in lines))
    return 0


def inside(options):
    """What runs in the sandbox; until all is done its files are in the sandbox's own /run, and vanish with it."""
    target = pathlib.Path(options.output).resolve()
    folder = pathlib.Path(tempfile.mkdtemp(dir="/run"))
    try:
        lab = Lab(options, folder)
        code = lab.run()
        if lab.rows:
            write_report(lab, folder)
            folder.chmod(0o755)
            moved(folder, target)
            print(f"report: {options.output}/report.html")
        return code
    except KeyboardInterrupt:
        print("lab: interrupted; nothing was written", file=sys.stderr)
        return 130
    except namespaces.NamespaceError as error:
        print(f"lab: {error}", file=sys.stderr)
        return 4


def main():
    options = parsed()
    if options.list:
        import experiments
        import messages
        import real
        for experiment in experiments.all_of(messages.PERFECT) + [real.named(name) for name in real.names()]:
            print(f"{experiment.name:<22} {experiment.group:<17} {experiment.what}")
        return 0
    held = namespaces.lock(LOCK)
    if not held:
        print("lab: another one is running on this machine, and each would disturb the other; wait for it",
              file=sys.stderr)
        return 4
    began = time.monotonic()
    try:
        code = namespaces.sandboxed(lambda: only_messages(options) if options.messages else inside(options))
    except namespaces.NamespaceError as error:
        print(f"lab: {error}", file=sys.stderr)
        return 4
    if options.messages:
        return code
    print(f"lab: {time.monotonic() - began:.0f} s", file=sys.stderr)
    return code


if __name__ == "__main__":
    sys.exit(main())
