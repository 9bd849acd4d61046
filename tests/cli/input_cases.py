#!/usr/bin/python3
"""What the program says of its input: files, keys, words. As cases.py."""

import json
import os

from process import Cases, require, tree

HERE = os.path.dirname(os.path.abspath(__file__))
SMALL = os.path.join(HERE, "small.json")
case = Cases()
expect = case.expect


def scenario_of(folder, name="mine.json", **changes):
    """A copy of small.json without its variants; `changes` replace its members."""
    with open(SMALL, encoding="utf-8") as file:
        scenario = json.load(file)
    scenario.pop("variants", None)
    scenario.pop("baseline", None)
    scenario.update(changes)
    path = os.path.join(folder, name)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w", encoding="utf-8") as file:
        json.dump(scenario, file)
    return path


@case
def reads_beside_the_scenario(folder):
    """A scenario named without a folder finds what lies beside it"""
    scenario_of(folder, "base.json")
    with open(os.path.join(folder, "mine.json"), "w", encoding="utf-8") as file:
        json.dump({"extends": "base.json", "name": "mine"}, file)
    for path in ("mine.json", "./mine.json", os.path.join(folder, "mine.json")):
        expect(0, "run", path, "-q", cwd=folder)


@case
def allows_a_root(folder):
    """--root allows the files of a folder, on every command that reads scenarios"""
    scenario_of(folder, "theirs/base.json")
    os.makedirs(os.path.join(folder, "mine"))
    with open(os.path.join(folder, "mine", "s.json"), "w", encoding="utf-8") as file:
        json.dump({"extends": "../theirs/base.json", "name": "mine", "variants": [{"name": "a", "with": {}}]}, file)
    for command in ("run", "compare", "check", "explain"):
        _, err = expect(3, command, "mine/s.json", "-q", cwd=folder)
        require(f"allow it with --root {folder}/theirs" in err, err)
        expect(0, command, "mine/s.json", "-q", "--root", "theirs", cwd=folder)
    expect(2, "run", "mine/s.json", "--root", "nowhere", cwd=folder)
    expect(2, "run", "mine/s.json", "--root", "", cwd=folder)


@case
def judges_one_variant(folder):
    """--variant and --set are not hindered by the mistakes of other variants"""
    path = scenario_of(folder, variants=[
        {"name": "a", "with": {"parallelism": {"tp": 1, "dp": None}}},
        {"name": "b", "with": {"parallelism": {"tp": 2, "dp": 2}}}])
    words = [path, "-q", "--set", "cluster.nodes=2"]
    for command in ("check", "compare"):
        _, err = expect(3, command, *words)
        require('in variant "b"' in err, err)
    for command in ("run", "explain"):
        expect(0, command, *words, "--variant", "a")
        _, err = expect(3, command, *words, "--variant", "b")
        require('in variant "b"' in err, err)
        _, err = expect(2, command, *words, "--variant", "c")
        require("a, b" in err or "did you mean" in err, err)


@case
def compares_with_what_fits(folder):
    """A comparison whose baseline is out of memory is with the next variant that fits"""
    words = [SMALL, "--json", "--no-ways-to-fit", "--baseline", "too-large"]
    out, err = expect(0, "compare", *words)
    result = json.loads(out)
    require("the baseline too-large has no step time" in err, err)
    require(result["baseline"] != "too-large", result["baseline"])
    for variant in result["variants"]:
        require((variant["speedup"] is None) == (variant["step_time_s"] is None), variant["name"])


@case
def keeps_comparisons(folder):
    """The folder of a comparison is not overwritten by a run, nor the other way round, unless forced"""
    words = ["-q", "--no-ways-to-fit", "-o", "out"]
    expect(0, "compare", SMALL, *words, cwd=folder)
    before = tree(folder)
    _, err = expect(4, "run", SMALL, *words, cwd=folder)
    require("holds the result of compare" in err and "--force" in err, err)
    require(tree(folder) == before, "the comparison")
    expect(0, "compare", SMALL, *words, cwd=folder)
    expect(0, "run", SMALL, *words, "--force", cwd=folder)
    _, err = expect(4, "compare", SMALL, *words, cwd=folder)
    require("holds the result of run" in err, err)


@case
def refuses_empty_words(folder):
    """An option that is given as nothing, or --set without a value, ends with 2"""
    for words in (["run", SMALL, "-o", ""], ["compare", SMALL, "-o", ""], ["run", SMALL, "--variant", ""],
                  ["compare", SMALL, "--baseline", ""], ["run", SMALL, "--set", "a"], ["check", SMALL, "--set", "=1"],
                  ["run", SMALL, "--set", ""]):
        out, err = expect(2, *words, cwd=folder)
        require(out == "" and err.count("\n") == 1, err)
    require(os.listdir(folder) == [], "files")


@case
def results_hold_names_only(folder):
    """Warnings in results name the scenario, not the path to it"""
    scenario_of(folder, "deep/down/mine.json", x={"y": 1}, parallelism={"context_parallel": {"method": "ring"}})
    for path in ("deep/down/mine.json", os.path.join(folder, "deep", "down", "mine.json")):
        out, _ = expect(0, "run", path, "-q", "--json", "-o", "out", "--set", "x=null", cwd=folder)
        require("mine.json:" in "".join(json.loads(out)["warnings"]), out)
        for name, content in tree(os.path.join(folder, "out")).items():
            require(b"deep/down" not in content, f"{path} in {name}")


case.main()
