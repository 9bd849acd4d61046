#!/usr/bin/python3
"""Published measurements as records that `trainyard validate` reads.

usage: convert.py FOLDER OUT

For every file of FOLDER that a converter beside this one is for, writes OUT/NAME.json in the format of docs/proof.md,
and says what it leaves out and why. The figures are their sources': they are no part of this project.
"""

import collections
import csv
import importlib
import json
import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(1, HERE)

from common import LeftOut, NotMine

# What holds no converter.
TOOLS = ("common", "convert", "networks", "ship", "data_parallel.recommenders", "data_parallel.replicas",
         "data_parallel.sequences")
PACKAGES = ("data_parallel", "papers")
# What a row that is not of the format makes of a converter.
WRONG = (ArithmeticError, AttributeError, LookupError, MemoryError, StopIteration, TypeError, ValueError)


def modules(folder, package=""):
    """Names of the converters of a folder, by which Python imports them."""
    files = sorted(name[:-3] for name in os.listdir(folder) if name.endswith(".py"))
    return [package + name for name in files if package + name not in TOOLS]


NAMES = modules(HERE)
for PACKAGE in PACKAGES:
    NAMES += modules(os.path.join(HERE, PACKAGE), PACKAGE + ".")


def rows_of(path):
    """Nothing of a file that is not of its format, which is named."""
    try:
        with open(path, encoding="utf-8", newline="") as stream:
            if path.endswith(".csv"):
                return list(csv.DictReader(stream))
            document = json.load(stream)
        return document["records"] if isinstance(document, dict) else list(document)
    except (KeyError, TypeError, ValueError) as error:
        print(f"{path}: left out: {error!r}", file=sys.stderr)
        return []


def cited(record, row):
    """The record with what its row says of where it is from."""
    source = row.get("source")
    if not isinstance(source, dict):
        return record
    named = {"source": source.get("title"), "license": source.get("license")}
    return {**record, **{key: value for key, value in named.items() if value}}


def run_by(record, software):
    """The record with what ran it, which decides what its row does not say."""
    scenario = record["scenario"]
    for one in scenario if isinstance(scenario, list) else [scenario]:
        one.setdefault("software", software)
    return record


def converted(module, rows):
    """Records, and why others are none -> how many."""
    records, left_out = [], collections.Counter()
    for row in rows:
        try:
            made = module.convert(row)
            for record in made if isinstance(made, list) else [made]:
                record = cited(record, row)
                json.dumps(record, allow_nan=False)  # a number that no file can hold is no measurement
                records.append(run_by(record, module.SOFTWARE) if hasattr(module, "SOFTWARE") else record)
        except NotMine:
            pass
        except LeftOut as reason:
            left_out[str(reason)] += 1
        except KeyError as key:
            left_out[f"does not state {key.args[0]}"] += 1
        except WRONG as error:
            name = row.get("id", "without an id") if isinstance(row, dict) else "that is no object"
            left_out[f"row {name}: {error}"] += 1
    return records, left_out


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__.strip())
    folder, out = sys.argv[1:]
    os.makedirs(out, exist_ok=True)
    written = 0
    for name in NAMES:
        module = importlib.import_module(name)
        files = module.FILE if isinstance(module.FILE, tuple) else (module.FILE,)
        paths = [path for path in (os.path.join(folder, file) for file in files) if os.path.exists(path)]
        records, left_out = converted(module, [row for path in paths for row in rows_of(path)])
        if not records and not left_out:
            continue
        with open(os.path.join(out, name.split(".")[-1] + ".json"), "w", encoding="utf-8") as stream:
            json.dump({"source": module.SOURCE, "notes": module.__doc__.strip(), "records": records}, stream, indent=1)
            stream.write("\n")
        written += 1
        print(f"{name}: {len(records)} records", file=sys.stderr)
        for reason, count in sorted(left_out.items()):
            print(f"  left out {count}: {reason}", file=sys.stderr)
    if not written:
        sys.exit(f"convert.py: {folder} holds no file that a converter is for")


if __name__ == "__main__":
    main()
