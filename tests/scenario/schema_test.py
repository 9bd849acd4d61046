"""Every shipped scenario is valid by configs/scenario.schema.json, and a broken one is not."""
import json
import pathlib
import sys

import jsonschema

configs = pathlib.Path(sys.argv[1])
schema = json.loads((configs / "scenario.schema.json").read_text())
jsonschema.Draft7Validator.check_schema(schema)
validator = jsonschema.Draft7Validator(schema)

scenarios = sorted((configs / "scenarios").glob("*.json"))
assert scenarios, "no scenarios"
failed = False
for path in scenarios:
    for error in validator.iter_errors(json.loads(path.read_text())):
        failed = True
        print(f"{path}: /{'/'.join(map(str, error.absolute_path))}: {error.message}")

good = json.loads((configs / "scenarios" / "four-strategies.json").read_text())


def changed(pointer, value):
    copy = json.loads(json.dumps(good))
    at = copy
    *parents, last = pointer.strip("/").split("/")
    for key in parents:
        at = at.setdefault(key, {})
    if value is None:
        del at[last]
    else:
        at[last] = value
    return copy


for pointer, value in [
    ("/version", 2),
    ("/training/global_batch", 0),
    ("/training/global_batch", None),
    ("/training/globalbatch", 8),
    ("/training/precision/compute", "fp12"),
    ("/parallelism/data_parallel/bucket_size", 25),
    ("/parallelism/data_parallel/bucket_size", "25M"),
    ("/cluster/node/nic", {"bandwidth": "400G"}),
    ("/cluster/fabric", {"kind": "clos"}),
    ("/cluster/fabric", {"kind": "fat_tree", "levels": []}),
    ("/parallelism/ep", 0),
    ("/model/preset", None),
]:
    if validator.is_valid(changed(pointer, value)):
        failed = True
        print(f"accepted: {pointer} = {value}")
sys.exit(failed)
