#!/usr/bin/python3
"""docs/accuracy.md: how far predictions are off, and what was fitted on what.

usage: accuracy_page.py TRAINYARD PAGE [RECORDS]...

RECORDS are files and folders of sets as `trainyard validate --records` reads them; of sets of one name the first
counts.
What was fitted stands in the profiles and in configs/software, each with its source.
"""

import glob
import json
import os
import shutil
import subprocess
import sys
import tempfile

CONFIGS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "configs")

# Constants that come from steps of one source, or from their memory: the set, what the others would have it be, and in
# words. The rows that a constant was fitted on wait for nothing else, or hold nothing else that is not known.
SCRIPT = {"what": "the host's time per launch of an eager script", "rows": ("hf llama-1b s512 b1 bf16",),
          "without": {"training": {"launch_time": "30us"}}, "words": "30 us, as PyTorch's traces have it"}
FROM_STEPS = (
    {"set": "ultrascale", "what": "nanotron's host time, 65.3 us a launch", "rows": ("hf-0474", "hf-0479", "hf-0480"),
     "without": {"training": {"launch_time": "30us"}}, "words": "30 us, as PyTorch's traces have it"},
    {"set": "ultrascale", "what": "reserved memory: nanotron's launches ahead of the GPU, 330",
     "rows": lambda name: int(name.split("-")[1]) % 2 == 0, "error": "error_bytes",
     "without": {"training": {"memory": {"launches_ahead": 0}}}, "words": "none: blocks come back when they are freed"},
    {"set": "ultrascale", "what": "reserved memory: what nanotron's blocks leave unused, .06",
     "rows": lambda name: int(name.split("-")[1]) % 2 == 0, "error": "error_bytes",
     "without": {"training": {"memory": {"fragmentation": 0.02}}}, "words": ".02, the default"},
    {"set": "ultrascale", "what": "late blocks that have to fit, .17 of nanotron's: balanced accuracy of verdicts",
     "rows": lambda name: True, "verdicts": True,
     "without": {"training": {"memory": {"late_share": 0}}}, "words": "none: an allocator has them back"},
    {"set": "pytorch_h100", **SCRIPT},
    {"set": "pytorch_h200", **SCRIPT},
    {"set": "sailor", "what": "Sailor's messages in a server, through the host's memory",
     "rows": ("sailor-14", "sailor-20"),
     "without": {"cluster": {"node": {"intra": {
         "kind": "nvlink_mesh", "bandwidth_per_gpu": "25GB/s",
         "mesh": [{"a": a, "b": b, "links": 6} for a in range(4) for b in range(a + 1, 4)]}}}},
     "words": "over NVLink, as a GH200 server has it"},
    {"set": "efficient_layouts", "what": "dropout of the layouts' networks",
     "rows": lambda name: "lay-0351" <= name <= "lay-0361",
     "without": {"model": {"dropout": False}}, "words": "none, as Llama's"},
    {"set": "efficient_layouts",
     "what": "late blocks that have to fit, all of the layouts': balanced accuracy of verdicts",
     "rows": lambda name: int(name.split("-")[1]) % 2 == 0, "verdicts": True,
     "without": {"training": {"memory": {"late_share": 0}}}, "words": "none: an allocator has them back"},
    {"set": "bloom", "what": "what messages reach of Omni-Path's bandwidth, .28",
     "rows": ("bloom-128", "bloom-129", "bloom-130"),
     "without": {"cluster": {"node": {"nic": {"efficiency": 0.9}}}}, "words": "0.9, as of other links"},
    {"set": "bloom", "what": "heads of 108, 150 and 450 numbers without tensor cores, under Megatron-LM of 2021",
     "rows": ("bloom-001", "bloom-003", "bloom-004", "bloom-005", "bloom-008", "bloom-009", "bloom-113", "bloom-116"),
     "without": {"training": {"unaligned_heads": "tensor_cores"}}, "words": "on tensor cores, as others"},
)

# Files of configs/validation with all rows of a source that a converter is for.
SAME_SOURCE = {"vtrain-multi-node.json": "vtrain_multi.json"}
SHIPPED = [os.path.join(CONFIGS, "validation", name) for name in ("published", "vtrain-multi-node.json")]

HEAD = """# Accuracy

How far predicted steps are off measured ones, set by set. This page is made by one command, from measurements that
the project ships as records with their sources (`configs/validation/published`), and from those of a folder if one is
given:

```
./dev validate --page                  # of the shipped sets
./dev validate --page --records DIR    # and of published measurements in their own files
```

Errors are predicted / measured - 1; negative means that trainyard is too fast. [proof.md](proof.md) says what the
scores mean, [known-wrong.md](known-wrong.md) what is wrong and why, `tests/validation/sources` what was assumed of each
source.
"""

STEPS = """
## Steps and memory

`regret`: what the layout predicted to be the fastest of those in a group that are predicted to fit takes beyond the
fastest. `memory`: median error of peaks. `OOM`: balanced accuracy of out-of-memory verdicts. `said not to fit`: of runs
that did. `tight`: of steps that were said to fit only where the allocator gives blocks back, those that ran. Of sets
with a * the project ships no row, as their licence does not say that it may.

| set | n | MAPE | median | p90 | bias | rank | regret | memory | OOM | said not to fit | tight |
|---|---|---|---|---|---|---|---|---|---|---|---|
"""

FITTED = """
## What is fitted on what

No constant is fitted on any row of these sets but for those of this table. It has the errors of the rows that a
constant was fitted on, those of its source's other rows, and what these would be if the source had been left out. What
prices kernels and messages comes from measurements of kernels and messages; each law below names its own, with its
error on what was held out. The level of products on A100 lies between two measured ones, chosen beside steps
([cost-gemm.md](cost-gemm.md)).
"""


def validate(program, folder):
    """The sets of a folder as the program predicts them."""
    done = subprocess.run([program, "validate", "--records", folder, "--json"], stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, text=True, check=False)
    if not done.stdout.startswith("{"):
        sys.exit(f"{program} validate --records {folder}: {done.stderr.strip()}")
    return json.loads(done.stdout)


def gathered(sources, into):
    """Copies of all sets, of those of one name the first."""
    for source in sources:
        for path in sorted(glob.glob(os.path.join(source, "*.json"))) or [source]:
            name = os.path.basename(path)
            copy = os.path.join(into, SAME_SOURCE.get(name, name))
            if not os.path.exists(copy):
                shutil.copyfile(path, copy)


def percent(share, sign=""):
    return "-" if share is None else f"{100 * share:{sign}.1f} %"


def digits(value):
    return "-" if value is None else f"{value:.2f}"


def score_cells(one):
    time, verdicts = one["step_time"] or {}, one["out_of_memory"]
    memory, regret = one["memory"] or {}, one["pick_regret"] or {}
    ran = verdicts["fits"] + verdicts["false_alarms"]
    tight = verdicts["tight_fits"] + verdicts["tight_misses"]
    said_not = f"{verdicts['false_alarms']} of {ran}" if ran else "-"
    said_tight = f"{verdicts['tight_fits']} of {tight}" if tight else "-"
    return [str(time.get("rows", "-")), percent(time.get("mape")), percent(time.get("median")),
            percent(time.get("p90")), percent(time.get("bias"), "+"), digits(one["rank_correlation"]),
            percent(regret.get("mean")), percent(memory.get("median")), digits(verdicts["balanced_accuracy"]),
            said_not, said_tight]


def line(cells):
    return "| " + " | ".join(cells) + " |\n"


def is_shipped(name):
    files = [os.path.basename(path) for path in glob.glob(os.path.join(SHIPPED[0], "*.json"))]
    return name + ".json" in [*files, *SAME_SOURCE.values()]


def steps_table(predicted):
    text = STEPS
    for one in predicted["sets"]:
        text += line([f"`{one['set']}`{'' if is_shipped(one['set']) else ' *'}", *score_cells(one)])
    text += line(["all rows", *score_cells(predicted["all"])])
    steps = predicted["all_steps"]
    text += line(["**all steps**", str(steps["rows"]), *(f"**{percent(steps[key])}**" for key in ("mape", "median")),
                  percent(steps["p90"]), f"**{percent(steps['bias'], '+')}**", *["-"] * 6])
    return text + "\nAll steps: the mean of the sets, of which each counts as many rows as it has, but at most 100.\n"


def merged(value, into):
    """The value with what another says instead, key by key."""
    if not isinstance(into, dict) or not isinstance(value, dict):
        return into
    return {**value, **{key: merged(value.get(key), one) for key, one in into.items()}}


def patched(document, patch):
    """The set whose every scenario has the patch's values."""
    for record in document["records"]:
        scenario = record["scenario"]
        record["scenario"] = ([merged(one, patch) for one in scenario] if isinstance(scenario, list) else
                              merged(scenario, patch))
    return document


def verdicts_of(rows):
    """Balanced accuracy of what is said of whether rows fit, with their number."""
    right = [[row["predicted_fits"] == fits for row in rows if row["measured_fits"] == fits] for fits in (True, False)]
    return f"{digits(sum(sum(one) / len(one) for one in right) / 2)} ({len(rows)})" if all(right) else "-"


def errors_of(one, constant, are_fitted):
    """
    Median size and bias of the errors of the rows that the constant was, or was not, fitted on, with their number; of
    one that comes from verdicts theirs.
    """
    fitted, error = constant["rows"], constant.get("error", "error_s")
    chosen = [row for row in one["records"]
              if (fitted(row["record"]) if callable(fitted) else row["record"] in fitted) == are_fitted]
    if constant.get("verdicts"):
        return verdicts_of([row for row in chosen if "measured_fits" in row])
    errors = [row[error] for row in chosen if error in row]
    if not errors:
        return "-"
    sizes = sorted(abs(error) for error in errors)
    middle = (sizes[(len(sizes) - 1) // 2] + sizes[len(sizes) // 2]) / 2
    return f"{percent(middle)}, {percent(sum(errors) / len(errors), '+')} ({len(errors)})"


def left_out_table(program, folder, predicted):
    """Each constant that comes from steps, with its source's errors with and without it."""
    known = {one["set"]: one for one in predicted["sets"]}
    text = line(["constant", "set", "rows fitted on: median, bias", "other rows", "others without it", "without it"])
    text += line(["---"] * 6)
    for constant in FROM_STEPS:
        name = constant["set"]
        cells = ["-"] * 3
        if name in known:
            with tempfile.TemporaryDirectory() as alone:
                with open(os.path.join(folder, name + ".json"), encoding="utf-8") as stream:
                    document = patched(json.load(stream), constant["without"])
                with open(os.path.join(alone, name + ".json"), "w", encoding="utf-8") as stream:
                    json.dump(document, stream)
                other = validate(program, alone)["sets"][0]
            cells = [errors_of(known[name], constant, True), errors_of(known[name], constant, False),
                     errors_of(other, constant, False)]
        text += line([constant["what"], f"`{name}`", *cells, constant["words"]])
    return text


def laws(profile):
    """(what, its `from`) of each law of a profile."""
    for kind, entries in profile.items():
        for entry in entries if isinstance(entries, list) else [entries]:
            if isinstance(entry, dict) and isinstance(entry.get("from"), dict):
                words = [kind.replace("_", "-")]
                for key in ("kind", "op", "kernel", "dtype", "pass", "head_size", "ranks", "servers"):
                    if key in entry:
                        words.append(f"{key.replace('_', ' ')} {entry[key]}" if isinstance(entry[key], int) else
                                     str(entry[key]))
                yield " ".join(words), entry["from"]


def laws_tables():
    text = ""
    for path in sorted(glob.glob(os.path.join(CONFIGS, "profiles", "*.json"))):
        with open(path, encoding="utf-8") as stream:
            profile = json.load(stream)
        text += f"\n### {profile['name']}\n\n" + line(["law", "measured on", "samples", "error", "basis"])
        text += line(["---"] * 5)
        for what, origin in laws(profile):
            cells = [what, *(str(origin.get(key, "-")).replace("|", "/") for key in
                             ("source", "samples", "residual", "basis"))]
            text += line(cells)
    return text


def sources_list(predicted):
    text = "\n## Sources\n\n"
    for one in predicted["sets"]:
        licence = f" ({one['license']})" if one.get("license") else ""
        text += f"- `{one['set']}`: {one['source']}{licence}\n"
    return text


def page(program, folders):
    """Of the shipped sets and of those of these folders."""
    with tempfile.TemporaryDirectory() as folder:
        gathered([*folders, *SHIPPED], folder)
        predicted = validate(program, folder)
        fitted = FITTED + "\n" + left_out_table(program, folder, predicted)
    return HEAD + steps_table(predicted) + fitted + laws_tables() + sources_list(predicted)


def main():
    if len(sys.argv) < 3:
        sys.exit(__doc__.strip())
    text = page(sys.argv[1], sys.argv[3:])
    with open(sys.argv[2], "w", encoding="utf-8") as stream:
        stream.write(text)


if __name__ == "__main__":
    main()
