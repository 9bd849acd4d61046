#!/usr/bin/python3
"""Converted records that may be passed on, as small files.

usage: ship.py RECORDS OUT

Of every file that convert.py wrote to RECORDS, OUT gets the records whose source is under a licence that permits it, or
is a paper, whose figures are facts; what all their scenarios have in common is said once.
"""

import collections
import json
import os
import sys

PERMITTED = ("Apache-2.0", "MIT", "BSD", "CC-BY", "facts", "paper text", "per-model Apache-2.0/BSD")
# Sources of which configs/validation has every row.
COMPLETE = ("vtrain_multi",)


def of_all(parts):
    """What is the same in all of these objects, key by key."""
    first = parts[0]
    same = {}
    for key, value in first.items():
        if not all(key in part for part in parts):
            continue
        if all(isinstance(part[key], dict) for part in parts):
            same[key] = of_all([part[key] for part in parts])
        elif all(part[key] == value for part in parts):
            same[key] = value
    return same


def without(part, same):
    left = {}
    for key, value in part.items():
        if key not in same:
            left[key] = value
        elif isinstance(value, dict):
            rest = without(value, same[key])
            if rest:
                left[key] = rest
    return left


def alternatives(record):
    scenario = record["scenario"]
    return scenario if isinstance(scenario, list) else [scenario]


def permitted(record):
    return record.get("license", "").startswith(PERMITTED)


def smaller(document):
    """The set with what its records share said once, or None where none may be passed on."""
    records = [record for record in document["records"] if permitted(record)]
    if not records:
        return None
    same = of_all([scenario for record in records for scenario in alternatives(record)])
    # The sources' licences in the order of how many records each has.
    licences = collections.Counter(record.pop("license") for record in records)
    for record in records:
        left = [without(scenario, same) for scenario in alternatives(record)]
        record["scenario"] = left if isinstance(record["scenario"], list) else left[0]
        record.pop("source", None)
    return {"source": document["source"], "license": "; ".join(licence for licence, _ in licences.most_common()),
            "notes": document["notes"], "scenario": same, "records": records}


def text_of(document):
    """A record a line, so that a change of one is a line."""
    head = {key: value for key, value in document.items() if key != "records"}
    lines = [json.dumps(record, separators=(",", ":")) for record in document["records"]]
    return json.dumps(head, indent=1)[:-2] + ',\n "records": [\n' + ",\n".join(lines) + "\n ]\n}\n"


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__.strip())
    folder, out = sys.argv[1:]
    os.makedirs(out, exist_ok=True)
    for file in sorted(os.listdir(folder)):
        with open(os.path.join(folder, file), encoding="utf-8") as stream:
            document = None if file[:-5] in COMPLETE else smaller(json.load(stream))
        if document is None:
            print(f"{file}: not passed on", file=sys.stderr)
            continue
        with open(os.path.join(out, file), "w", encoding="utf-8") as stream:
            stream.write(text_of(document))
        print(f"{file}: {len(document['records'])} records", file=sys.stderr)


if __name__ == "__main__":
    main()
