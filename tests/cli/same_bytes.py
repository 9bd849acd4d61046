#!/usr/bin/python3
"""One scenario, two programs (or one twice) in different surroundings: every byte of output is the same.

usage: same_bytes.py PROGRAM OTHER SCENARIO run|compare EXIT_CODE
"""

import os
import sys
import tempfile

from process import require, require_equal, run, tree

SURROUNDINGS = [
    (["-j", "1"], {}),
    (["-j", "2"], {"LC_ALL": "C.UTF-8", "TZ": "Asia/Tokyo", "HOME": "/nonexistent", "COLUMNS": "200"}),
]


def outputs(program, scenario, command, jobs, environment):
    with tempfile.TemporaryDirectory() as folder:
        jobs = jobs if command == "compare" else []
        text = run(program, command, scenario, "-o", "out", *jobs, cwd=folder, environment=environment)
        json = run(program, command, scenario, "--json", "-q", *jobs, cwd=folder, environment=environment)
        return text, json, tree(os.path.join(folder, "out"))


def main():
    program, other, scenario, command, code = sys.argv[1:]
    one, two = (outputs(p, scenario, command, *s) for p, s in zip((program, other), SURROUNDINGS))
    for got in (*one[:2], *two[:2]):
        require_equal(got.returncode, int(code), f"exit code; standard error {got.stderr.decode()}")
    require(one[1].stdout, "nothing was printed")
    require_equal(two[0].stdout, one[0].stdout, "text")
    require(two[1].stdout == one[1].stdout, "JSON differs")
    require_equal(sorted(two[2]), sorted(one[2]), "files")
    require({"summary.json", "report.html"} <= set(one[2]), f"files: {sorted(one[2])}")
    for name, content in one[2].items():
        require(two[2][name] == content, f"{name} differs")


main()
