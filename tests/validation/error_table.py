#!/usr/bin/python3
"""Measured steps against predicted ones.

usage: error_table.py TRAINYARD [--json] FILE...

A file is a scenario whose variants each have a reference of metric "step_time", in seconds, in their patch.
Variants with one reference label are one row: what the source does not print was tried, and the fastest
that fits in memory counts. Errors are predicted / measured - 1.
"""

import json
import os
import subprocess
import sys

sys.path.insert(1, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "calibrate", "proof"))

from errors import summary, summary_text

NOTHING_FITS = 1  # the exit code of compare when a variant does not fit in memory


def references(path):
    """Variant name -> (label, seconds), as the file states them."""
    with open(path, encoding="utf-8") as stream:
        scenario = json.load(stream)
    found, values = {}, {}
    for variant in scenario["variants"]:
        steps = [r for r in variant["with"].get("references", []) if r.get("metric") == "step_time"]
        if len(steps) != 1:
            sys.exit(f"{path}: variant {variant['name']} has {len(steps)} references of step_time, not one")
        label, value = steps[0]["label"], steps[0]["value"]
        if values.setdefault(label, value) != value:
            sys.exit(f"{path}: \"{label}\" has two values: {values[label]} and {value}")
        found[variant["name"]] = (label, value)
    return found


def predictions(trainyard, path):
    """Variant name -> seconds, without those that do not fit."""
    done = subprocess.run([trainyard, "compare", path, "--json", "-q"], stdout=subprocess.PIPE, check=False)
    if done.returncode not in (0, NOTHING_FITS):
        sys.exit(f"{path}: {trainyard} compare ended with exit code {done.returncode}")
    variants = json.loads(done.stdout)["variants"]
    return {v["name"]: v["step_time_s"] for v in variants if v["step_time_s"] is not None}


def table(trainyard, path):
    predicted = predictions(trainyard, path)
    rows = {}
    for name, (label, measured) in references(path).items():
        row = rows.setdefault(label, {"row": label, "measured_s": measured, "predicted_s": None, "variant": None})
        seconds = predicted.get(name)
        if seconds is not None and (row["predicted_s"] is None or seconds < row["predicted_s"]):
            row.update(predicted_s=seconds, variant=name, error=seconds / measured - 1)
    lost = [label for label, row in rows.items() if row["predicted_s"] is None]
    if lost:
        sys.exit(f"{path}: no variant fits in memory: {', '.join(lost)}")
    return {
        "name": os.path.splitext(os.path.basename(path))[0],
        "rows": list(rows.values()),
        **summary([row["error"] for row in rows.values()]),
    }


def as_text(result):
    width = max(len(row["row"]) for row in result["rows"])
    lines = [result["name"], f"  {'':{width}}  measured  predicted    error"]
    for row in result["rows"]:
        lines.append(f"  {row['row']:{width}}  {row['measured_s']:7.3f}s  {row['predicted_s']:8.3f}s"
                     f"  {100 * row['error']:+6.1f}%")
    lines.append("  " + summary_text(len(result["rows"]), result))
    return "\n".join(lines)


def main():
    arguments = [argument for argument in sys.argv[1:] if argument != "--json"]
    if len(arguments) < 2:
        sys.exit(__doc__.strip())
    results = [table(arguments[0], path) for path in arguments[1:]]
    if "--json" in sys.argv[1:]:
        print(json.dumps(results, indent=2))
    else:
        print("\n\n".join(as_text(result) for result in results))


if __name__ == "__main__":
    main()
