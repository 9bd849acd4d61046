#!/usr/bin/python3
"""Measured steps and memory peaks against predicted ones.

usage: error_table.py TRAINYARD [--json | --write ERRORS.json | --check ERRORS.json] FILE...

--write makes the file by which trainyard tells how far off an estimate may be: the errors of all step times;
--check fails if it would be another one.

A file is a scenario whose variants each have one reference in their patch, all of the same metric:

  step_time         seconds. Variants with one reference label are one row: what the source does not print was
                    tried, and the fastest that fits in memory counts.
  allocated_memory  GiB that the training script has asked the allocator for, on the fullest GPU at its peak
  reserved_memory   GiB that the allocator has taken from the device for that

Errors are predicted / measured - 1. What a device holds beside the allocator is no part of either memory; a
prediction that does not fit counts like any other.
"""

import json
import os
import subprocess
import sys

sys.path.insert(1, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "calibrate", "proof"))

from errors import summary, summary_text

NOTHING_FITS = 1  # the exit code of compare when a variant does not fit in memory
GIB = 2**30


def memory(beside):
    """What remains of a variant's peak without these categories of the ledger."""
    def gib(variant):
        parts = variant["memory"]["by_category"]
        return sum(size for category, size in parts.items() if category not in beside) / GIB
    return gib


# Metric -> (its value in a variant of compare's answer, unit).
METRICS = {
    "step_time": (lambda variant: variant["step_time_s"], "s"),
    "allocated_memory": (memory({"context", "nccl_buffers", "fragmentation"}), "GiB"),
    "reserved_memory": (memory({"context", "nccl_buffers"}), "GiB"),
}


def references(path):
    """The file's metric, and variant name -> (label, value), as the file states them."""
    with open(path, encoding="utf-8") as stream:
        scenario = json.load(stream)
    found, values, metrics = {}, {}, set()
    for variant in scenario["variants"]:
        known = [r for r in variant["with"].get("references", []) if r.get("metric") in METRICS]
        if len(known) != 1:
            sys.exit(f"{path}: variant {variant['name']} has {len(known)} references of {', '.join(METRICS)}, not one")
        label, value = known[0]["label"], known[0]["value"]
        metrics.add(known[0]["metric"])
        if values.setdefault(label, value) != value:
            sys.exit(f"{path}: \"{label}\" has two values: {values[label]} and {value}")
        found[variant["name"]] = (label, value)
    if len(metrics) != 1:
        sys.exit(f"{path}: references of several metrics: {', '.join(sorted(metrics))}")
    return metrics.pop(), found


def predictions(trainyard, path, metric):
    """Variant name -> (value, class of the estimate), without those that have none; and the program's version."""
    done = subprocess.run([trainyard, "compare", path, "--json", "-q"], stdout=subprocess.PIPE, check=False)
    if done.returncode not in (0, NOTHING_FITS):
        sys.exit(f"{path}: {trainyard} compare ended with exit code {done.returncode}")
    value_of, _ = METRICS[metric]
    answer = json.loads(done.stdout)
    values = {v["name"]: (value_of(v), v.get("class")) for v in answer["variants"]}
    return {name: value for name, value in values.items() if value[0] is not None}, answer.get("trainyard")


def table(trainyard, path):
    metric, stated = references(path)
    predicted, program = predictions(trainyard, path, metric)
    rows = {}
    for name, (label, measured) in stated.items():
        row = rows.setdefault(label, {"row": label, "measured": measured, "predicted": None, "variant": None})
        value, of = predicted.get(name, (None, None))
        if value is not None and (row["predicted"] is None or value < row["predicted"]):
            row.update(predicted=value, variant=name, error=value / measured - 1)
            row["class"] = of
    lost = [label for label, row in rows.items() if row["predicted"] is None]
    if lost:
        sys.exit(f"{path}: no variant fits in memory: {', '.join(lost)}")
    return {
        "name": os.path.splitext(os.path.basename(path))[0],
        "metric": metric,
        "program": program,
        "rows": list(rows.values()),
        **summary([row["error"] for row in rows.values()]),
    }


def as_text(result):
    width = max(len(row["row"]) for row in result["rows"])
    unit = METRICS[result["metric"]][1]
    digits = {"s": 3}.get(unit, 1)
    lines = [result["name"], f"  {'':{width}}  measured  predicted    error"]
    for row in result["rows"]:
        measured, predicted = (f"{row[key]:.{digits}f}{unit}" for key in ("measured", "predicted"))
        lines.append(f"  {row['row']:{width}}  {measured:>8}  {predicted:>9}  {100 * row['error']:+6.1f}%")
    lines.append("  " + summary_text(len(result["rows"]), result))
    return "\n".join(lines)


def errors_text(results, files):
    """What sim/simulate/outlook/interval_json.cpp reads: rows of step times, one a line, with where they are from."""
    steps = [result for result in results if result["metric"] == "step_time"]
    sources = []
    for result in steps:
        file = next(f for f in files if os.path.splitext(os.path.basename(f))[0] == result["name"])
        with open(file, encoding="utf-8") as stream:
            sources.append({"set": result["name"], "source": json.load(stream)["description"]})
    rows = [{"set": result["name"], "step": row["row"], **row["class"], "error": round(row["error"], 4)}
            for result in steps for row in result["rows"]]
    head = {
        "description": "Errors of predicted step times, predicted / measured - 1, of the steps in configs/validation",
        "command": "./dev validate --write",
        "program": f"trainyard {steps[0]['program']}",
        "sources": sources,
    }
    text = json.dumps(head, indent=2, ensure_ascii=False)[:-2]
    lines = ",\n".join("    " + json.dumps(row, ensure_ascii=False) for row in rows)
    return f'{text},\n  "steps": [\n{lines}\n  ]\n}}\n'


def check_errors(path, text):
    with open(path, encoding="utf-8") as stream:
        committed = stream.read()
    if committed != text:
        stale = [line.strip() for line in text.splitlines() if line not in committed.splitlines()]
        sys.exit(f"{path} is stale; make it again with ./dev validate --write. It would say:\n" + "\n".join(stale))


def main():
    arguments = [argument for argument in sys.argv[1:] if argument != "--json"]
    files = {}
    for option in ("--write", "--check"):
        if option in arguments:
            at = arguments.index(option)
            files[option] = arguments[at + 1] if at + 1 < len(arguments) else sys.exit(__doc__.strip())
            del arguments[at:at + 2]
    if len(arguments) < 2:
        sys.exit(__doc__.strip())
    results = [table(arguments[0], path) for path in arguments[1:]]
    if "--check" in files:
        check_errors(files["--check"], errors_text(results, arguments[1:]))
    if "--write" in files:
        text = errors_text(results, arguments[1:])
        with open(files["--write"], "w", encoding="utf-8") as stream:
            stream.write(text)
    if "--json" in sys.argv[1:]:
        print(json.dumps(results, indent=2))
    else:
        print("\n\n".join(as_text(result) for result in results))


if __name__ == "__main__":
    main()
