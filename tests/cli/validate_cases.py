#!/usr/bin/python3
"""What `trainyard validate` promises. As cases.py."""

import json
import os
import re

from process import Cases, require, require_equal, run, tree

HERE = os.path.dirname(os.path.abspath(__file__))
SMALL = os.path.join(HERE, "small.json")
EXAMPLE = os.path.join(os.path.dirname(os.path.dirname(HERE)), "docs", "example.records.json")
case = Cases()
expect = case.expect


def write(folder, name, value):
    path = os.path.join(folder, name)
    with open(path, "w", encoding="utf-8") as file:
        json.dump(value, file, indent=1)
    return path


def seconds(value):
    return {"name": "step_time", "value": value, "unit": "s"}


def small():
    """The scenario of small.json without its variants, and its predicted step in seconds."""
    with open(SMALL, encoding="utf-8") as file:
        scenario = json.load(file)
    del scenario["variants"], scenario["baseline"]
    out, _ = expect(0, "run", SMALL, "--json", "-q")
    return scenario, json.loads(out)["step_time_s"]


def record(name, value, **more):
    return {"id": name, "metrics": [seconds(value)], "scenario": {}, **more}


def validate(folder, records, code=0, **top):
    scenario, _ = small()
    path = write(folder, "mine.json", {"scenario": scenario, **top, "records": records})
    out, err = expect(code, "validate", "--records", path, "--json", cwd=folder)
    return json.loads(out)["sets"][0], err


@case
def validate_names_a_wrong_alternative(folder):
    """validate: of a list of scenarios one that cannot be simulated is named, and the others count"""
    _, step = small()
    wrong = {"training": {"offload": {"activations": "cpu"}}, "parallelism": {"dp": 3}}
    result, err = validate(folder, [record("either", step, scenario=[wrong, {}])], code=3)
    require_equal([round(row["error_s"], 9) for row in result["records"]], [0.0], "errors")
    require('of "either"' in err and "/records/0/scenario/0/parallelism/dp" in err, err)


@case
def validate_supplies_software(folder):
    """validate: --software has the habits of records that name none; an unknown one is refused with names near it"""
    scenario, _ = small()
    own = record("own", 1, scenario={"software": "megatron-lm-2021"})
    path = write(folder, "mine.json", {"scenario": scenario, "records": [record("plain", 1), own]})
    plain, named = (json.loads(expect(0, "validate", "--records", path, "--json", *more, cwd=folder)[0])
                    for more in ((), ("--software", "nanotron")))
    first, second = ([row["predicted_s"] for row in result["sets"][0]["records"]] for result in (plain, named))
    require(first[0] != second[0], f"plain {first[0]} with and without habits")
    require_equal(first[1], second[1], "own")
    nanotron = record("plain", 1, scenario={"software": "nanotron"})
    said, _ = validate(folder, [nanotron])
    require_equal(said["records"][0]["predicted_s"], second[0], "nanotron")
    _, err = expect(2, "validate", "--records", path, "--software", "nanotrom", cwd=folder)
    require("no software is called 'nanotrom'; the nearest are nanotron" in err, err)


@case
def validates_records(folder):
    """validate: errors are predicted / measured - 1 of the step that run predicts"""
    _, step = small()
    result, err = validate(folder, [record("twice", step / 2), record("right", step), record("half", 2 * step)])
    require_equal(err, "", "standard error")
    require_equal([round(row["error_s"], 9) for row in result["records"]], [1.0, 0.0, -0.5], "errors")
    scores = {key: round(value, 9) for key, value in result["step_time"].items()}
    require_equal(scores, {"rows": 3, "mape": 0.5, "median": 0.5, "p90": 1.0, "max": 1.0,
                           "bias": round(0.5 / 3, 9)}, "scores")


@case
def validates_choices(folder):
    """validate: a group's regret is that of its predicted best, and other groups do not mix with it"""
    tensor = {"parallelism": {"tp": 4}}
    out, _ = expect(0, "run", SMALL, "--json", "--variant", "tensor")
    _, step = small()
    fastest_is_tensor = json.loads(out)["step_time_s"] < step
    data, split = (13, 10) if not fastest_is_tensor else (10, 13)
    rows = [record("data", data, group="job"), record("tensor", split, group="job", scenario=tensor),
            record("other", 1, group="alone")]
    result, _ = validate(folder, rows)
    require_equal(result["pick_regret"]["choices"], 1, "choices")
    require_equal(round(result["pick_regret"]["max"], 9), 0.3, "regret")


@case
def validates_memory(folder):
    """validate: memory is compared in its own sum, and outcomes in balanced accuracy"""
    out, _ = expect(0, "run", SMALL, "--json", "-q")
    memory = json.loads(out)["memory"]
    none = {"cluster": {"node": {"gpu": {"memory": "1MiB"}}}}
    rows = [{"id": kind, "scenario": {}, "metrics": [
        {"name": f"{kind}_memory", "value": memory[f"{key}_bytes"] / 2**20, "unit": "MiB"}]}
        for kind, key in (("allocated", "allocated"), ("reserved", "reserved"), ("device", "peak"))]
    rows += [{"id": "oom", "scenario": none, "outcome": "out of memory"},
             {"id": "oom, unforeseen", "scenario": {}, "metrics": [
                 {"name": "outcome", "value": "CUDA OOM", "unit": "text"}]}]
    tight = {"training": {"memory": {"fragmentation": 1.0, "least_fragmentation": 0.02}},
             "cluster": {"node": {"gpu": {"memory": f"{memory['peak_bytes'] + memory['allocated_bytes'] // 2}B"}}}}
    ran = {"metrics": [{"name": "step_time", "value": 1, "unit": "s"}]}
    rows += [{"id": f"tight {i}", "scenario": tight, **outcome}
             for i, outcome in enumerate(({"outcome": "out of memory"}, ran, ran))]
    result, _ = validate(folder, rows)
    require_equal([round(row["error_bytes"], 9) for row in result["records"][:3]], [0, 0, 0], "errors")
    require_equal([row["predicted_tight"] for row in result["records"]], [False] * 5 + [True] * 3, "tight")
    require(memory["allocated_bytes"] < memory["reserved_bytes"] < memory["peak_bytes"], memory)
    require_equal(result["out_of_memory"], {"hits": 1, "misses": 2, "false_alarms": 0, "fits": 5,
                                            "tight_misses": 1, "tight_fits": 2,
                                            "balanced_accuracy": (1 / 3 + 1) / 2}, "verdicts")


@case
def validates_memory_of_the_first_rank(folder):
    """validate: a memory that rank 0 printed is compared with that of rank 0, not of the fullest GPU"""
    pipeline = {"parallelism": {"pp": 4, "pipeline": {"schedule": "1f1b"}}}
    out, _ = expect(0, "run", SMALL, "--json", "-q", "--variant", "pipeline")
    step = json.loads(out)
    first = {rank["rank"]: rank["peak_bytes"] for rank in step["ranks"]}[0]
    require(first < 0.9 * step["memory"]["peak_bytes"], step["memory"])

    def of_rank(rank):
        return {"name": "device_memory", "value": first, "unit": "B", **rank}

    rows = [{"id": "fullest", "scenario": pipeline, "metrics": [of_rank({})]},
            {"id": "first", "scenario": pipeline, "metrics": [of_rank({"rank": 0})]},
            {"id": "second", "scenario": pipeline, "metrics": [of_rank({"rank": 1})]}]
    result, err = validate(folder, rows, code=3)
    fullest, only = (row["error_bytes"] for row in result["records"])
    require(only == 0 < fullest, result["records"])
    require("/records/2/metrics/0/rank: only rank 0 can be named, got 1; leave it out" in err, err)


@case
def validates_variants(folder):
    """validate: of variants with one label, and of a list of scenarios, the fastest that fits counts"""
    with open(SMALL, encoding="utf-8") as file:
        scenario = json.load(file)
    for variant in scenario["variants"]:
        variant["with"]["references"] = [{"label": "one", "metric": "step_time", "value": 1}]
    path = write(folder, "set.json", scenario)
    out, _ = expect(0, "validate", "--records", path, "--json")
    (row,) = json.loads(out)["sets"][0]["records"]
    out, _ = expect(0, "compare", SMALL, "--json", "--no-ways-to-fit")
    steps = [variant["step_time_s"] for variant in json.loads(out)["variants"]]
    require_equal(row["predicted_s"], min(step for step in steps if step), "fastest")
    patches = [{**variant["with"], "references": []} for variant in scenario.pop("variants")]
    del scenario["baseline"]
    same, _ = validate(folder, [record("one", 1, scenario=patches[::-1])])
    require_equal(same["records"][0]["predicted_s"], row["predicted_s"], "a list of scenarios")
    fastest = steps.index(min(step for step in steps if step))
    require_equal((row["scenario"], same["records"][0]["scenario"]), (fastest, len(steps) - 1 - fastest), "which one")
    text, _ = expect(0, "validate", "--records", os.path.join(folder, "mine.json"), "--rows")
    require(f"  scenario {len(steps) - fastest}\n" in text, text)


@case
def names_bad_records(folder):
    """validate: a bad record is named with file, line, pointer and cure, and left out; the rest counts"""
    _, step = small()
    rows = [record("good", step), record("kilo", 1), record("wrong", 1, scenario={"training": {"micro_batch": 3}}),
            {"id": "bare", "metrics": [seconds(1)]}, {"id": "silent", "scenario": {}}, 7,
            record("not run", 1, outcome="failed: no GPU"), record("good", 2), record("slip", 1, outcme="oom"),
            record("twice", 1, metrics=[seconds(1), seconds(2)]), {"id": "crash", "scenario": {}, "outcome": "crashed"},
            record("typo", 1, metrics=[{"name": "reserved_memry", "value": 1, "unit": "GiB"}], groop="and another"),
            record("spread", step, metrics=[seconds(step), {"name": "iteration_time", "value": 9, "unit": "s"},
                                            {"name": "step_time_std", "value": 0.1, "unit": "s"}])]
    rows[1]["metrics"][0]["unit"] = "ks"
    result, err = validate(folder, rows, code=3)
    require_equal([row["record"] for row in result["records"]], ["good", "spread"], "rows")
    require_equal((result["left_out"], result["unmeasured"]), (10, 1), "left out")
    for words in (r"/records/1/metrics/0/unit: unknown unit \"ks\"; one of s, ms, us",
                  r"/scenario/training/global_batch: of \"wrong\": 16 is not divisible by micro_batch 3",
                  r"/records/3/scenario: is required and missing; write ",
                  r"/records/4/metrics: has neither a step_time nor a memory; add ",
                  r"/records/5: expected an object, got 7; a record has ",
                  r"/records/7/id: \"good\" is record 0 already; ", r"/records/8/outcme: is no key that counts; ",
                  r"/records/9/metrics/1: is a second time of the step; ",
                  r"/records/10/metrics: has neither .* \"failed",
                  r"/records/11/metrics/0/name: no metric is called \"reserved_memry\"; write \"reserved_memory\""):
        require(re.search(r"mine\.json:\d+:\d+: error: " + words, err), f"{words} in {err}")


@case
def says_once_what_all_share(folder):
    """validate: a profile that no record can use is said to be wrong once, not for each of them"""
    write(folder, "broken.json", {"name": "broken"})
    bad = {"cluster": {"calibration": "broken.json"}}
    result, err = validate(folder, [record(str(i), 1, scenario=bad) for i in range(5)], code=3)
    require_equal(result["left_out"], 5, "left out")
    require_equal(err.count("/gpu: is required and missing"), 1, err)


@case
def refuses_wrong_sets(folder):
    """validate: what a whole file gets wrong is said once, and an absurd number is no measurement"""
    _, err = validate(folder, [record("a", 1), record("b", 1)], code=3, scenario="base.json")
    require_equal(err.count("error:"), 1, err)
    require('/scenario: expected an object, got "base.json"; a file is named by' in err, err)
    _, err = validate(folder, [record("a", 1), record("b", 1)], code=3, scenario={"extends": "gone.json"})
    require_equal(err.count("error:"), 1, err)
    for value in (0, -1, 1e-300, 1e300):
        result, err = validate(folder, [record("a", value), record("b", 1)], code=3)
        require("/records/0/metrics/0/value: expected a positive number" in err, err)
        require_equal(len(result["records"]), 1, "rows")
    with open(SMALL, encoding="utf-8") as file:
        scenario = json.load(file)
    for i, variant in enumerate(scenario["variants"]):
        variant["with"]["references"] = [{"label": "one", "metric": "step_time", "value": 1 + i // 2}]
    _, err = expect(3, "validate", "--records", write(folder, "set.json", scenario))
    require_equal(err.count('"one" has another value in an earlier variant'), 2, err)


@case
def finds_records(folder):
    """validate: a folder is its .json files by name; a missing or empty one ends with an error"""
    scenario, step = small()
    for name in ("b.json", "a.json"):
        write(folder, name, {"scenario": scenario, "records": [record("one", step)]})
    write(folder, "c.txt", {})
    out, _ = expect(0, "validate", "--records", folder, "--records", os.path.join(folder, "b.json"), "--json")
    require_equal([one["set"] for one in json.loads(out)["sets"]], ["a", "b", "b"], "sets")
    _, err = expect(3, "validate", "--records", os.path.join(folder, "none.json"))
    require("cannot be read" in err, err)
    os.mkdir(os.path.join(folder, "empty"))
    _, err = expect(3, "validate", "--records", os.path.join(folder, "empty"))
    require("holds no .json file" in err, err)


@case
def extends_files_of_records(folder):
    """validate: the scenario of a record may extend a file beside the records"""
    scenario, step = small()
    write(folder, "base.json", scenario)
    os.mkdir(os.path.join(folder, "sets"))
    rows = [record("one", step, scenario={"extends": "base.json"})]
    path = write(folder, "records.json", {"records": rows})
    out, _ = expect(0, "validate", "--records", path, "--json")
    require_equal(json.loads(out)["sets"][0]["records"][0]["error_s"], 0, "error")
    rows[0]["scenario"]["extends"] = "gone.json"
    write(folder, "records.json", {"records": rows})
    _, err = expect(3, "validate", "--records", path)
    require("records.json:" in err and "gone.json" in err, err)


@case
def draws_validation(folder):
    """validate: the page names every row, asks for nothing, and all bytes are the same on any threads"""
    scenario, step = small()
    rows = [record(f"row <{i}>", step * (1 + i), metrics=[
        seconds(step * (1 + i)), {"name": "reserved_memory", "value": 3, "unit": "GiB"}]) for i in range(5)]
    path = write(folder, "mine.json", {"scenario": scenario, "source": "somebody", "license": "MIT", "records": rows})
    for jobs in ("1", "3"):
        expect(0, "validate", "--records", path, "-o", f"out{jobs}", "-j", jobs, cwd=folder)
    one, two = (tree(os.path.join(folder, f"out{jobs}")) for jobs in ("1", "3"))
    require(one == two and set(one) == {"validation.html", "validation.json"}, sorted(one))
    page = one["validation.html"].decode()
    require_equal(page.count("<circle cx="), 2 * len(rows) + 1, "points, and one of the legend")
    for i in range(5):
        require_equal(page.count(f"row &lt;{i}&gt;"), 2, f"row {i}")
    require("<script" not in page and "http" not in page.replace("http-equiv", ""), "nothing is fetched")
    require("somebody (MIT)" in page, "the source")
    out = run(case.program, "validate", "--records", path, "--json").stdout
    require_equal(out, one["validation.json"], "--json")


@case
def validates_shipped_sets(folder):
    """validate: without records it is the published steps of configs/validation, with every row if asked"""
    out, err = expect(0, "validate", cwd=folder)
    require_equal(err, "", "standard error")
    require(re.search(r"^korthikanti-2022-table5 +8 +\d\.\d %", out, re.M), out)
    require(re.search(r"^ultra-scale-memory +- .* \d\.\d % +-$", out, re.M), out)
    rows, _ = expect(0, "validate", "--rows", cwd=folder)
    require(rows.endswith(out) and "530B, 280 GPUs, full" in rows, rows)


@case
def validates_the_example(folder):
    """validate: the example of docs/proof.md is read and its rows are named"""
    out, err = expect(0, "validate", "--records", EXAMPLE, "--rows", cwd=folder)
    require_equal(err, "", "standard error")
    with open(EXAMPLE, encoding="utf-8") as file:
        names = [one["id"] for one in json.load(file)["records"]]
    require(len(names) > 2 and all(name in out for name in names), out)


case.main()
