#!/usr/bin/python3
"""Measured kernels against what `trainyard kernel` says of them.

usage: kernels.py TRAINYARD FOLDER [--json] [--write CLASSES.json] [--table PAGE.md]

FOLDER holds tables of measured kernels, CSV: gemm_fp16, kernels_gemm2, deepbench_gemm, deepbench_conv, kernels_conv2,
kernels_attention, kernels_membound; one that is not there is passed over. --write makes the file from which the
program has its intervals: the spread of measured / predicted by operation, GPUs with a profile apart from others.
--table writes the errors by operation into the table of a page (docs/kernel.md).

Errors are predicted / measured - 1; a negative bias is a prediction too fast. A row is of the law's own source where
the profile names that source: some of those rows were fitted on. Others were seen by no law.
"""

import argparse
import csv
import io
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections import Counter, defaultdict

sys.path.insert(1, os.path.dirname(os.path.abspath(__file__)))

import collectives
from kernel_tables import TABLES, LeftOut

KEYS = ("kind", "m", "n", "k", "adds_to", "scaling", "run", "batch", "groups", "dtype", "heads", "kv_heads", "queries",
        "keys", "head_size", "causal", "window", "pass", "kernel", "c", "h", "w", "r", "s", "layout", "stride_h",
        "stride_w", "pad_h", "pad_w", "op", "bytes", "elements")
MOST_OF_A_SOURCE = 100  # rows that a table of one GPU counts for in an interval
OPERATIONS = {"gemm": "gemm", "grouped_gemm": "grouped_gemm", "attention": "attention", "conv": "convolution",
              "memory": "memory"}


def read(folder):
    """Rows of all tables, and how many were left out by table and reason."""
    rows, left = [], Counter()
    for name, convert in TABLES.items():
        path = os.path.join(folder, name + ".csv")
        if not os.path.exists(path):
            continue
        with open(path, encoding="utf-8", newline="") as stream:
            for line in csv.DictReader(stream):
                try:
                    rows += [dict(row, table=name) for row in convert(line)]
                except LeftOut as why:
                    left[name, str(why)] += 1
    return slowest_sums(rows, left), left


def slowest_sums(rows, left):
    """Of products that add to numbers each with its slowest time: tables have it without adding too, and do not say."""
    slowest = {}
    for row in rows:
        if "adds_to" in row["spec"]:
            key = (row["gpu"], *row["spec"].items())
            slowest[key] = max(row["time_us"], slowest.get(key, 0))
    kept = [row for row in rows if row["time_us"] >= slowest.get((row["gpu"], *row["spec"].items()), 0)]
    if len(kept) < len(rows):
        left["kernels_gemm2", "a quicker time of the same product, maybe without adding"] += len(rows) - len(kept)
    return kept


def ask(program, gpu, rows):
    """The program's CSV answers, one a row."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "kernels.csv")
        with open(path, "w", encoding="utf-8", newline="") as stream:
            table = csv.DictWriter(stream, KEYS, restval="", lineterminator="\n")
            table.writeheader()
            table.writerows(row["spec"] for row in rows)
        run = subprocess.run([program, "kernel", "--gpu", gpu, "--file", path, "--csv"], capture_output=True, text=True,
                             check=False)
    if run.returncode:
        sys.exit(run.stderr)
    answers = list(csv.DictReader(io.StringIO(run.stdout)))
    if len(answers) != len(rows):
        sys.exit(f"{len(answers)} answers to {len(rows)} kernels of {gpu}")
    return answers


def predict(program, rows):
    """Sets in every row: error, calibrated (its GPU has a profile), same_source."""
    by_gpu = defaultdict(list)
    for row in rows:
        by_gpu[row["gpu"]].append(row)
    for gpu, group in sorted(by_gpu.items()):
        for row, answer in zip(group, ask(program, gpu, group)):
            row["error"] = float(answer["time_us"]) / row["time_us"] - 1
            row["calibrated"] = answer["priced_by"].startswith("profile ")
            row["same_source"] = row["calibrated"] and row["source"].lower() in answer["law"].lower()


def score(rows):
    errors = [100 * row["error"] for row in rows]
    sizes = [abs(error) for error in errors]
    return {"n": len(rows), "mape": statistics.fmean(sizes), "median": statistics.median(sizes),
            "bias": statistics.fmean(errors)}


def origin(row):
    if not row["calibrated"]:
        return "borrowed"
    return "own, law's source" if row["same_source"] else "own, others"


def tables(rows):
    """Scores by table, GPU and origin; then by operation and whether the GPU has a profile."""
    groups, sums = defaultdict(list), defaultdict(list)
    for row in rows:
        groups[row["table"], row["gpu"], row["group"], origin(row)].append(row)
        sums[OPERATIONS[row["spec"]["kind"]], origin(row)].append(row)
        if row["calibrated"]:
            sums[OPERATIONS[row["spec"]["kind"]], "own, all"].append(row)
    return ([dict(zip(("table", "gpu", "group", "origin"), key), **score(group))
             for key, group in sorted(groups.items())],
            [dict(zip(("operation", "origin"), key), **score(group)) for key, group in sorted(sums.items())],
            dict(score(rows)))


def weighted_percentile(pairs, share):
    pairs = sorted(pairs)
    upto, whole = 0, sum(weight for _, weight in pairs)
    for value, weight in pairs:
        upto += weight
        if upto >= share * whole:
            return value
    return pairs[-1][0]


def measured_collectives(program, folder):
    """(class, calibrated), what counts as one table, and measured / predicted, of the tables of nccl-tests.

    Without those of a fabric that was spoken to by sockets, which nothing in the question tells.
    """
    tables, calibrated = collectives.Tables(), {}
    for name, read_table in collectives.FILES.items():
        if os.path.isfile(os.path.join(folder, name)):
            read_table(tables, os.path.join(folder, name))
    for row in collectives.predicted(program, tables):
        preset = row.case.preset
        if row.case.transport in ("tcp", "sockets"):
            continue
        if preset not in calibrated:
            run = subprocess.run([program, "collective", "all-reduce", "--cluster", preset, "-e", "8", "--json"],
                                 capture_output=True, text=True, check=True)
            calibrated[preset] = not json.loads(run.stdout)["profile"].startswith("uncalibrated")
        where = "between servers" if row.case.servers > 1 else "in a server" + " over PCIe" * preset.startswith("pcie")
        size = "up to" if row.bytes <= collectives.SMALL else "above"
        form = {"analytic": " in closed form", "extrapolated": " extrapolated"}.get(row.basis, "")
        yield (f"collective {where} {size} 4 MiB{form}", calibrated[preset]), preset, row.measured / row.predicted


def classes(rows, collective_rows):
    """What configs/accuracy/kernels.json holds. A table of one GPU counts as MOST_OF_A_SOURCE rows at most."""
    found = [((OPERATIONS[row["spec"]["kind"]], row["calibrated"]), (row["table"], row["gpu"]), 1 / (1 + row["error"]))
             for row in rows] + list(collective_rows)
    counts = Counter((key, table) for key, table, _ in found)
    groups = defaultdict(list)
    for key, table, ratio in found:
        groups[key].append((ratio, min(1, MOST_OF_A_SOURCE / counts[key, table])))
    return [{"operation": operation, "profile": profile, "rows": len(pairs),
             "low": round(weighted_percentile(pairs, .1), 3), "high": round(weighted_percentile(pairs, .9), 3)}
            for (operation, profile), pairs in sorted(groups.items()) if len(pairs) >= 10]


def figures(entry):
    return f"{entry['n']:5d} {entry['mape']:6.1f} {entry['median']:6.1f} {entry['bias']:+6.1f}"


def text(result):
    lines = ["errors in %" + " " * 79 + "n   MAPE median   bias"]
    for entry in result["tables"]:
        words = f"{entry['table']:18s} {entry['gpu']:17s} {entry['group']:30s} {entry['origin']:18s}"
        lines.append(f"{words} {figures(entry)}")
    lines.append("")
    for entry in result["operations"]:
        lines.append(f"{entry['operation']:67s} {entry['origin']:18s} {figures(entry)}")
    lines.append(f"{'all kernels':86s} {figures(result['all'])}")
    for entry in result["left_out"]:
        lines.append(f"left out: {entry['rows']:5d} of {entry['table']}: {entry['why']}")
    return "\n".join(lines)


def write(given, found):
    version = subprocess.run([given.program, "--version"], capture_output=True, text=True, check=True).stdout.strip()
    with open(given.write, "w", encoding="utf-8") as stream:
        json.dump({"description": "Measured / predicted times of single kernels and collectives: tenth and ninetieth "
                                  f"percentile; a table of one GPU counts as {MOST_OF_A_SOURCE} rows at most",
                   "command": "tests/validation/kernels.py TRAINYARD DIR --write configs/accuracy/kernels.json",
                   "program": version, "classes": found}, stream, indent=2)
        stream.write("\n")


WHOSE = {"borrowed": "GPUs like it", "own, all": "own profile, all", "own, law's source": "own profile, law's source",
         "own, others": "own profile, other sources"}
HEAD = "| operation | whose numbers | rows | MAPE | median | bias |"


def with_table(page, operations):
    """The page with the rows of its table, which begins with HEAD, in place of those that it has."""
    lines = page.split("\n")
    first = lines.index(HEAD) + 2
    last = next(at for at in range(first, len(lines)) if not lines[at].startswith("|"))
    lines[first:last] = [f"| {entry['operation']} | {WHOSE[entry['origin']]} | {entry['n']:,} | {entry['mape']:.1f} | "
                         f"{entry['median']:.1f} | {entry['bias']:+.1f} |" for entry in operations]
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("folder")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--write")
    parser.add_argument("--table")
    given = parser.parse_args()
    rows, left = read(given.folder)
    if not rows:
        return
    predict(given.program, rows)
    groups, sums, everything = tables(rows)
    result = {"tables": groups, "operations": sums, "all": everything,
              "left_out": [{"table": table, "why": why, "rows": n} for (table, why), n in sorted(left.items())]}
    print(json.dumps(result, indent=1) if given.json else text(result))
    if given.write:
        write(given, classes(rows, measured_collectives(given.program, given.folder)))
    if given.table:
        with open(given.table, encoding="utf-8") as stream:
            page = with_table(stream.read(), sums)
        with open(given.table, "w", encoding="utf-8") as stream:
            stream.write(page)


if __name__ == "__main__":
    main()
