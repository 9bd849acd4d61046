#!/usr/bin/python3
"""The page of accuracy_page.py counts each set once, and fitted rows apart.

usage: accuracy_page_test.py
"""

import json
import os
import sys
import tempfile

sys.path.insert(1, os.path.dirname(os.path.abspath(__file__)))

import accuracy_page

# Errors of +100, -50 and -10 %, of which the first is of a row that a constant was fitted on.
ROWS = [{"record": "a", "error_s": 1.0}, {"record": "b", "error_s": -0.5}, {"record": "c", "error_s": -0.1},
        {"record": "of memory", "error_bytes": 0.2}]


def fitted_rows_are_apart():
    constant, of_memory = {"rows": ("a",)}, {"rows": ("a",), "error": "error_bytes"}
    assert accuracy_page.errors_of({"records": ROWS}, constant, True) == "100.0 %, +100.0 % (1)"
    assert accuracy_page.errors_of({"records": ROWS}, constant, False) == "30.0 %, -30.0 % (2)"
    assert accuracy_page.errors_of({"records": ROWS}, of_memory, False) == "20.0 %, +20.0 % (1)"
    assert accuracy_page.errors_of({"records": []}, constant, False) == "-"


def verdicts_are_balanced():
    # Of jobs of even numbers one of two that ran is said to fit, and both that did not are said not to.
    said = [(0, True, True), (2, True, False), (4, False, False), (6, False, False), (1, True, False), (3, False, True)]
    rows = [{"record": f"x-{number}", "measured_fits": fits, "predicted_fits": predicted}
            for number, fits, predicted in said] + ROWS
    constant = {"rows": lambda name: name[-1] in "02468", "verdicts": True}
    assert accuracy_page.errors_of({"records": rows}, constant, True) == "0.75 (4)"
    assert accuracy_page.errors_of({"records": rows}, constant, False) == "0.00 (2)"


def a_patch_reaches_every_alternative():
    document = {"records": [{"scenario": [{"training": {"a": 1}}, {}]}, {"scenario": {"training": {"b": 2}}}]}
    changed = accuracy_page.patched(document, {"training": {"b": 3}})["records"]
    assert changed == [{"scenario": [{"training": {"a": 1, "b": 3}}, {"training": {"b": 3}}]},
                       {"scenario": {"training": {"b": 3}}}], changed


def of_one_name_the_first_counts():
    with tempfile.TemporaryDirectory() as folder:
        for number in ("1", "2"):
            os.mkdir(os.path.join(folder, number))
            for name in ("x.json", "only" + number + ".json"):
                with open(os.path.join(folder, number, name), "w", encoding="utf-8") as stream:
                    stream.write(number)
        into = os.path.join(folder, "into")
        os.mkdir(into)
        accuracy_page.gathered([os.path.join(folder, "1"), os.path.join(folder, "2")], into)
        assert sorted(os.listdir(into)) == ["only1.json", "only2.json", "x.json"]
        with open(os.path.join(into, "x.json"), encoding="utf-8") as stream:
            assert stream.read() == "1"


def every_law_is_in_the_tables():
    text = accuracy_page.laws_tables()
    with open(os.path.join(accuracy_page.CONFIGS, "profiles", "h100-sxm5-80gb.json"), encoding="utf-8") as stream:
        profile = json.load(stream)
    known = list(accuracy_page.laws(profile))
    assert len(known) >= len(profile["gemm"]) + len(profile["attention"]), known
    for what, origin in known:
        assert f"| {what} | " in text and origin["source"].replace("|", "/") in text, what


fitted_rows_are_apart()
verdicts_are_balanced()
a_patch_reaches_every_alternative()
of_one_name_the_first_counts()
every_law_is_in_the_tables()
