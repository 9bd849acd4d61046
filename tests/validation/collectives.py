#!/usr/bin/python3
"""Published tables of nccl-tests against what `trainyard collective` predicts.

usage: collectives.py TRAINYARD FOLDER [--rows] [--json]

Reads those of FOLDER's files nccl_tests_multinode.csv, nccl_tests_outputs.json and vtrain_allreduce.csv that it has.
A row is a test's buffer and its out-of-place time; empty buffers, and tests whose machine has no preset or whose
operation is not named, are left out with the reason. Rows of all runs of a group and an environment count alike.
Prints per class: rows, MAPE, median error, 90th percentile and bias in per cent.
"""

import collections
import csv
import json
import os
import re
import statistics
import subprocess
import sys

SMALL = 4 << 20

# A row's words for a machine -> preset. Polaris and Sirius are one model of server.
PRESETS = (("Polaris", "polaris"), ("Sirius", "polaris"), ("Sophia", "dgx-a100-40gb"), ("AWS p5", "p5.48xlarge"),
           ("xxrjun", "dgx-h100"), ("A100-SXM4-40GB", "dgx-a100-40gb"), ("H100 80GB", "dgx-h100"), ("H200", "dgx-h200"),
           ("B200", "dgx-b200"), ("a100", "dgx-a100-80gb"), ("v100", "dgx-1v"))

# How NCCL of Polaris spoke to its Slingshot in each environment of its tests.
# NCCL 2.21 is as slow by its default as without the plugin. With env5 the host matches messages, not the card.
TRANSPORTS = {"2_18 env1": "tcp", "2_21 env1": "sockets", "env2": "sockets", "env3": "slingshot", "env4": "slingshot",
              "env5": "software-match"}

OPERATIONS = {"all_reduce": "all-reduce", "allreduce": "all-reduce", "all_gather": "all-gather",
              "allgather": "all-gather", "reduce_scatter": "reduce-scatter", "reducescatter": "reduce-scatter",
              "alltoall": "all-to-all", "broadcast": "broadcast"}

Case = collections.namedtuple("Case", "preset transport operation servers per_server")
Row = collections.namedtuple("Row", "case bytes measured id predicted basis")


class Tables:
    """Rows of measurements by case, and why others are none."""

    def __init__(self):
        self.rows, self.left_out = collections.defaultdict(list), collections.Counter()

    def add(self, machine, operation, ranks, size, microseconds, name, transport=""):
        servers, per_server = ranks
        preset = next((preset for word, preset in PRESETS if word in machine), None)
        if operation not in OPERATIONS:
            self.left_out[f"operation {operation or 'not named'}"] += 1
        elif preset is None:
            self.left_out[f"machine {machine or 'not named'}"] += 1
        elif size < 4 or microseconds <= 0:
            self.left_out["an empty buffer"] += 1
        else:
            case = Case(preset, transport, OPERATIONS[operation], servers, per_server)
            self.rows[case].append((size, microseconds, name))


def transport_of(row):
    if row["profile"] not in ("Polaris", "Sirius"):
        return ""
    found = re.search(r"NCCL (\S+); (env\d)", row["environment"])
    version, environment = found.groups() if found else ("", "")
    return TRANSPORTS.get(environment) or TRANSPORTS.get(f"{version} {environment}", "?")


def several_servers(tables, path):
    with open(path, encoding="utf-8", newline="") as stream:
        for row in csv.DictReader(stream):
            transport = transport_of(row)
            if transport == "?":
                tables.left_out["environment not named"] += 1
                continue
            tables.add(row["profile"], row["collective"], (int(row["nodes"]), int(row["gpus_per_node"])),
                       int(row["size_bytes"]), float(row["oop_time_us"] or 0), row["test_id"], transport)


def logs(tables, path):
    with open(path, encoding="utf-8") as stream:
        records = json.load(stream)["records"]
    for record in records:
        place = record["source"]["path"]
        operation = record.get("op") or next((op for op in OPERATIONS if f"nccl_{op}" in place), "")
        if "dgxc-benchmarking/nccl" in record["source"]["repo"] + "/nccl" and not operation:
            operation = "all_reduce"
        hosts, ranks = record.get("hosts", 1), record.get("ranks", 0)
        for row in record["rows"]:
            tables.add(" ".join(record["devices"]), operation, (hosts, ranks // hosts), row[0], row[4], record["id"])


def one_server(tables, path):
    with open(path, encoding="utf-8", newline="") as stream:
        for row in csv.DictReader(stream):
            tables.add(row["gpu"], "all_reduce", (1, int(row["num_gpus"])), int(row["size_bytes"]),
                       float(row["oop_time_us"]), f"{row['gpu']} {row['num_gpus']}")


FILES = {"nccl_tests_multinode.csv": several_servers, "nccl_tests_outputs.json": logs,
         "vtrain_allreduce.csv": one_server}


def ask(program, case, least, most):
    """Predicted microseconds and basis, by size: powers of two from the least on, in whole elements of every rank."""
    preset = f"polaris-{case.transport}" if case.transport in ("tcp", "sockets", "software-match") else case.preset
    words = [program, "collective", case.operation, "--cluster", preset, "--servers", str(case.servers),
             "--per-server", str(case.per_server), "-b", str(least), "-e", str(most), "--json"]
    words += ["--ranks", str(case.per_server)] if case.servers == 1 else []
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(done.stderr.strip())
    return {row["bytes"]: (row["time_us"], row["basis"]) for row in json.loads(done.stdout)["rows"]}


def predicted(program, tables):
    rows = []
    for case, measured in sorted(tables.rows.items()):
        times = ask(program, case, 4, max(size for size, _, _ in measured))
        for size, microseconds, name in measured:
            if size not in times:
                times[size] = next(iter(ask(program, case, size, size).values()))
            rows.append(Row(case, size, microseconds, name, *times[size]))
    return rows


def scores(rows):
    errors = [100 * (row.predicted / row.measured - 1) for row in rows]
    sizes = sorted(abs(error) for error in errors)
    return {"rows": len(rows), "mape": round(statistics.mean(sizes), 1), "median": round(statistics.median(sizes), 1),
            "p90": round(sizes[(9 * len(sizes) - 1) // 10], 1), "bias": round(statistics.mean(errors), 1)}


def classes(row):
    """What a row counts for."""
    case = row.case
    size = "up to 4 MiB" if row.bytes <= SMALL else "above 4 MiB"
    yield f"all, {size}"
    network = case.transport or ("EFA" if case.preset[:2] == "p5" else "InfiniBand")
    where = "one server" if case.servers == 1 else network
    yield f"{where}, {size}"
    yield f"  {case.preset} {where}: {case.operation} {case.servers} x {case.per_server}, {size}"


def main():
    options = [word for word in sys.argv[1:] if word.startswith("--")]
    words = [word for word in sys.argv[1:] if not word.startswith("--")]
    if len(words) != 2 or set(options) - {"--rows", "--json"}:
        sys.exit(__doc__.strip())
    program, folder = words
    tables = Tables()
    for name, read in FILES.items():
        if os.path.isfile(os.path.join(folder, name)):
            read(tables, os.path.join(folder, name))
    rows = predicted(program, tables)
    by_class = collections.defaultdict(list)
    for row in rows:
        for name in classes(row):
            by_class[name].append(row)
    table = {name: scores(found) for name, found in sorted(by_class.items())}
    if "--json" in options:
        print(json.dumps({"classes": table, "left_out": tables.left_out}, indent=1))
        return
    for name, found in table.items():
        if "--rows" in options or not name.startswith(" "):
            print(f"{name:64} {found['rows']:5}" + "".join(f"{found[key]:8.1f}" for key in list(found)[1:]))
    for reason, count in sorted(tables.left_out.items()):
        print(f"left out: {count:5}  {reason}")


if __name__ == "__main__":
    main()
