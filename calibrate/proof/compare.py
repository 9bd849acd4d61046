#!/usr/bin/env python3
"""Measured training steps against predicted ones.

usage: compare.py TRAINYARD RECORDS.json... --profile PROFILE [--profile PROFILE]... [--gpu DEVICE=PRESET]...
                  [--json] [--keep FOLDER] [--write FILE]

RECORDS are what measure.py wrote, or published measurements in the same format. PROFILE is the calibration of the
GPU that they were measured on: a file that `trainyard fit` wrote, or a name of configs/profiles. Each record becomes a
scenario of its own, `trainyard run` predicts it, and the table says how far off that is: predicted / measured - 1.
Nothing is fitted to the records. What the simulator cannot describe is left out, with the reason.

--gpu takes records of DEVICE, as they spell it, to be measured on the GPU preset; --keep FOLDER keeps the scenarios;
--write FILE writes the records with them, as `trainyard validate` reads them.
"""

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile

sys.path.insert(1, os.path.dirname(os.path.abspath(__file__)))

from errors import summary, summary_text
from scenario_of import CONFIGS, BadRecord, Undescribable, load_profile, scenario_of

DOES_NOT_FIT = 1  # the exit code of run
STEP_TIMES = ("step_time", "iteration_time", "e2e_latency")
MEMORIES = ("peak_allocated_memory", "gpu_memory_alloc", "gpu_memory")
MILLISECONDS = {"ms": 1, "s": 1000, "us": 1e-3}
GIBIBYTES = {"GiB": 1, "GB": 1e9 / 2**30, "MiB": 1 / 1024}


def read_records(path):
    try:
        with open(path, encoding="utf-8") as stream:
            document = json.load(stream)
    except OSError as error:
        sys.exit(f"compare.py: {path}: {error.strerror}")
    except ValueError as error:
        sys.exit(f"compare.py: {path}: not JSON: {error}")
    records = document.get("records") if isinstance(document, dict) else None
    if not isinstance(records, list):
        sys.exit(f"compare.py: {path}: expected an object with a list \"records\"")
    return records


def metric(record, names, units):
    """The first of the named metrics in the wanted unit, or None."""
    found = {}
    metrics = record.get("metrics", [])
    if not isinstance(metrics, list):
        raise BadRecord("\"metrics\" is no list")
    for entry in metrics:
        if not isinstance(entry, dict) or "name" not in entry or "value" not in entry:
            raise BadRecord(f"a metric is {json.dumps(entry)[:60]}, expected name, value and unit")
        found[entry["name"]] = entry
    for name in names:
        if name not in found:
            continue
        value, unit = found[name]["value"], found[name].get("unit")
        if isinstance(value, bool) or not isinstance(value, (int, float)) or value <= 0:
            raise BadRecord(f"{name} is {json.dumps(value)[:60]}, expected a positive number")
        if unit not in units:
            raise BadRecord(f"{name} has the unit {json.dumps(unit)}, expected one of {', '.join(units)}")
        return value * units[unit]
    return None


def is_out_of_memory(record):
    said = [m for m in record.get("metrics", []) if isinstance(m, dict) and m.get("name") == "outcome"]
    outcomes = [record.get("outcome")] + [m.get("value") for m in said]
    return any(isinstance(o, str) and re.search(r"\boom\b|out of memory", o, re.I) for o in outcomes)


def measured_of(record):
    outcome = record.get("outcome", "")
    if isinstance(outcome, str) and outcome.startswith("failed"):
        raise Undescribable(f"was not measured ({outcome})")
    if is_out_of_memory(record):
        return {"out_of_memory": True, "step_ms": None, "memory_gib": None}
    step = metric(record, STEP_TIMES, MILLISECONDS)
    memory = metric(record, MEMORIES, GIBIBYTES)
    if step is None and memory is None:
        raise Undescribable("has neither a step time nor a memory")
    return {"out_of_memory": False, "step_ms": step, "memory_gib": memory}


def run(trainyard, scenario, path):
    """What `trainyard run` says of the scenario."""
    with open(path, "w", encoding="utf-8") as stream:
        json.dump(scenario, stream, indent=1)
    profiles = os.path.dirname(scenario["cluster"]["calibration"])
    done = subprocess.run([trainyard, "run", path, "--json", "-q", "--root", profiles],
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, check=False)
    if done.returncode in (0, DOES_NOT_FIT) and done.stdout:
        return json.loads(done.stdout)
    said = [line.strip() for line in done.stderr.splitlines() if line.strip()]
    raise Undescribable(f"trainyard refuses it: {said[0] if said else f'exit code {done.returncode}'}".replace(
        path, "scenario"))


def predicted_of(result, record):
    memory = result["memory"]
    # A step that does not fit has a time all the same: what it would take with enough memory.
    seconds = result["step_time_s"] if result["step_time_s"] is not None else result["simulated_step_s"]
    if "no optimizer" in str(record.get("mode", "")):
        seconds -= result["breakdown_s"]["optimizer"]
    return {"out_of_memory": not memory["fits"], "step_ms": 1000 * seconds,
            "memory_gib": memory["allocated_bytes"] / 2**30}


def described(record, scenario, path):
    """The record with its scenario, whose profile is named from the folder of `path`."""
    profile = scenario["cluster"]["calibration"]
    shipped = os.path.join(os.path.realpath(CONFIGS), "profiles")
    if os.path.dirname(os.path.realpath(profile)) == shipped:
        named = os.path.splitext(os.path.basename(profile))[0]
    else:
        named = os.path.relpath(profile, os.path.dirname(os.path.abspath(path)))
    return {**record, "scenario": {**scenario, "cluster": {**scenario["cluster"], "calibration": named}}}


def compared(record, number, options, folder):
    """One row, with its errors or with the reason why it has none."""
    row = {"id": f"record {number}", "technique": None, "skipped": None, "notes": []}
    if not isinstance(record, dict):
        return dict(row, skipped=f"bad record: {json.dumps(record)[:60]}, expected an object")
    row["id"] = str(record.get("id") or row["id"])
    try:
        measured = measured_of(record)
        scenario, row["notes"] = scenario_of(record, options.profiles, options.aliases)
        execution = scenario["training"].get("execution", "fused")
        attention = scenario["training"].get("fused_attention")
        row["technique"] = record.get("technique") or f"{execution}{', fused attention' if attention else ''}"
        name = re.sub(r"[^A-Za-z0-9_.-]", "_", row["id"])
        result = run(options.trainyard, scenario, os.path.join(folder, f"{number:04}-{name}.json"))
        predicted = predicted_of(result, record)
    except Undescribable as reason:
        return dict(row, skipped=str(reason))
    except BadRecord as mistake:
        return dict(row, skipped=f"bad record: {mistake}")
    if options.write and "no optimizer" not in str(record.get("mode", "")):  # no scenario says that
        options.described.append(described(record, scenario, options.write))
    row.update(measured=measured, predicted=predicted)
    for key in ("step_ms", "memory_gib"):
        row[f"{key}_error"] = None if measured[key] is None else predicted[key] / measured[key] - 1
    return row


def sums(rows, key):
    errors = [row[key] for row in rows if row[key] is not None]
    return {"rows": len(errors), **summary(errors)} if errors else None


def report_of(rows):
    done = [row for row in rows if row["skipped"] is None]
    techniques = sorted({row["technique"] for row in done})
    report = {"rows": rows, "step_time": sums(done, "step_ms_error"), "memory": sums(done, "memory_gib_error"),
              "by_technique": {}, "out_of_memory": {"hits": 0, "misses": 0, "false_alarms": 0, "fits": 0}}
    for technique in techniques:
        of = [row for row in done if row["technique"] == technique]
        report["by_technique"][technique] = {"step_time": sums(of, "step_ms_error"),
                                             "memory": sums(of, "memory_gib_error")}
    for row in done:
        truth, said = row["measured"]["out_of_memory"], row["predicted"]["out_of_memory"]
        report["out_of_memory"]["hits" if truth and said else "misses" if truth else
                                "false_alarms" if said else "fits"] += 1
    return report


def cell(value, text, width):
    return f"{'-' if value is None else text.format(value):>{width}}"


def row_text(row, width):
    measured, predicted = row["measured"], row["predicted"]
    line = f"{row['id']:{width}}"
    if measured["out_of_memory"]:
        line += f"{'out of memory':>13}"
    else:
        line += cell(measured["step_ms"], "{:.2f} ms", 13)
    line += cell(predicted["step_ms"], "{:.2f} ms", 13)
    line += cell(row["step_ms_error"] and 100 * row["step_ms_error"], "{:+.1f} %", 9)
    line += cell(measured["memory_gib"], "{:.2f} GiB", 12) + cell(predicted["memory_gib"], "{:.2f} GiB", 12)
    line += cell(row["memory_gib_error"] and 100 * row["memory_gib_error"], "{:+.1f} %", 9)
    return line + ("  does not fit" if predicted["out_of_memory"] else "")


def as_text(report):
    done = [row for row in report["rows"] if row["skipped"] is None]
    lost = [row for row in report["rows"] if row["skipped"] is not None]
    lines = []
    if done:
        width = max(len(row["id"]) for row in done)
        lines.append(f"{'':{width}}{'measured':>13}{'predicted':>13}{'error':>9}{'measured':>12}{'predicted':>12}"
                     f"{'error':>9}")
        lines += [row_text(row, width) for row in done]
    for what, key in (("step time", "step_time"), ("peak memory", "memory")):
        if report[key] is None:
            continue
        lines += ["", f"{what}: " + summary_text(report[key]["rows"], report[key])]
        for technique, of in report["by_technique"].items():
            if of[key]:
                lines.append(f"  {technique}: " + summary_text(of[key]["rows"], of[key]))
    if done:
        found = report["out_of_memory"]
        lines += ["", f"out of memory: {found['hits']} of {found['hits'] + found['misses']} foreseen, "
                      f"{found['false_alarms']} of {found['fits'] + found['false_alarms']} that ran said not to fit"]
    notes = sorted({note for row in done for note in row["notes"]})
    if notes:
        lines += [""] + [f"note: {note}" for note in notes]
    if lost:
        lines += ["", f"left out: {len(lost)}"]
        reasons = {}
        for row in lost:
            reasons.setdefault(row["skipped"], []).append(row["id"])
        for reason, ids in reasons.items():
            more = f" and {len(ids) - 3} more" if len(ids) > 3 else ""
            lines.append(f"  {reason}: {', '.join(ids[:3])}{more}")
    return "\n".join(lines)


def arguments():
    parser = argparse.ArgumentParser(description="Measured training steps against predicted ones.",
                                     epilog="More at the top of this file.")
    parser.add_argument("trainyard", help="the program, such as build/release/trainyard")
    parser.add_argument("records", nargs="+", help="files of measure.py, or published records")
    parser.add_argument("--profile", action="append", required=True,
                        help="profile of the measured GPU; may be repeated")
    parser.add_argument("--gpu", action="append", default=[], metavar="DEVICE=PRESET",
                        help="take records of this device to be measured on a GPU preset; may be repeated")
    parser.add_argument("--json", action="store_true", help="rows and sums as JSON")
    parser.add_argument("--keep", metavar="FOLDER", help="keep the scenarios in this folder")
    parser.add_argument("--write", metavar="FILE", help="write the records with their scenarios into this file")
    return parser.parse_args()


def main():
    options = arguments()
    options.profiles = []
    for name in options.profile:
        try:
            options.profiles.append(load_profile(name))
        except OSError as error:
            sys.exit(f"compare.py: {name}: no such profile: {error.strerror}")
        except (ValueError, BadRecord) as error:
            sys.exit(f"compare.py: {name}: {error}")
    options.aliases, options.described = {}, []
    for alias in options.gpu:
        device, separator, preset = alias.rpartition("=")
        if not separator or not device or all(preset != known for _, known in options.profiles):
            sys.exit(f"compare.py: --gpu {alias}: expected DEVICE=PRESET with a preset of the profiles: "
                     f"{', '.join(preset for _, preset in options.profiles)}")
        options.aliases[device] = preset
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.keep or temporary
        os.makedirs(folder, exist_ok=True)
        records = [record for path in options.records for record in read_records(path)]
        rows = [compared(record, number, options, folder) for number, record in enumerate(records, 1)]
    report = report_of(rows)
    if options.write:
        with open(options.write, "w", encoding="utf-8") as stream:
            json.dump({"records": options.described}, stream, indent=1)
            stream.write("\n")
    print(json.dumps(report, indent=2) if options.json else as_text(report))
    return 0 if any(row["skipped"] is None for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
