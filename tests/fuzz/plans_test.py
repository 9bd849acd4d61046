#!/usr/bin/python3
"""Random plans hold what every plan must, agree with the JSON Schema, and have every key that it knows.

usage: plans_test.py FUZZ SCHEMA PLANS JOBS
"""

import glob
import json
import os
import subprocess
import sys
import tempfile

import jsonschema

# Keys that no plan needs to have: for people, for editors, and what a plan is made of otherwise.
NOT_DRAWN = {
    "/$schema", "/description", "/label", "/outputs", "/outputs/directory", "/references/*/status",
    "/collectives/library", "/collectives/p2p", "/collectives/p2p/algorithm", "/collectives/p2p/protocol",
    "/collectives/alltoall/protocol",
    "/perturbations/stragglers/*/reason", "/variants/*/label", "/model/parameters", "/model/multiply_adds",
    # Known, and of one value only.
    "/cluster/fabric/routing", "/simulation/iterations", "/simulation/warmup_iterations",
    "/training/optimizer/offload",
}
FOR_PEOPLE = ("/description", "/source", "/device_names", "/cluster/name", "/cluster/preset")
# Operations come from the shipped tables of layers, which plans name.
OF_TABLES = ("/model/blocks/", "/model/layers/*/", "/cluster/node/other_gpus/*/gpu/", "/cluster/other_nodes/*/node/")


def known_keys(schema, at="", keys=None):
    """All pointers of a schema; items of lists count as one."""
    keys = set() if keys is None else keys
    for key, value in schema.get("properties", {}).items():
        keys.add(f"{at}/{key}")
        known_keys(value, f"{at}/{key}", keys)
    for choice in ("anyOf", "oneOf", "allOf"):
        for value in schema.get(choice, []):
            known_keys(value, at, keys)
    if isinstance(schema.get("items"), dict):
        known_keys(schema["items"], f"{at}/*", keys)
    return keys


def main():
    fuzz, schema_path, plans, jobs = sys.argv[1:]
    with open(schema_path, encoding="utf-8") as file:
        schema = json.load(file)
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run([fuzz, plans, "--jobs", jobs, "--plans", folder], check=False)
        if done.returncode != 0:
            sys.exit(done.returncode)
        validator = jsonschema.Draft7Validator(schema)
        for path in sorted(glob.glob(os.path.join(folder, "*", "plan.json"))):
            with open(path, encoding="utf-8") as file:
                plan = json.load(file)
            if "extends" in plan:
                continue
            for error in validator.iter_errors(plan):
                sys.exit(f"the schema refuses what the reader accepts: {list(error.absolute_path)}: "
                         f"{error.message[:300]}\n{json.dumps(plan)}")
    drawn = set(subprocess.run([fuzz, "--keys", "4000"], check=True, stdout=subprocess.PIPE,
                               text=True).stdout.split("\n"))
    missing = sorted(key for key in known_keys(schema) - drawn - NOT_DRAWN
                     if not key.endswith(FOR_PEOPLE) and not key.startswith(OF_TABLES))
    if missing:
        sys.exit("no plan has these keys; draw them in tests/fuzz/plan_*.cpp:\n  " + "\n  ".join(missing))


main()
