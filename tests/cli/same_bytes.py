#!/usr/bin/python3
"""One scenario, two programs (or one twice) in different surroundings: every byte of output is the same.

usage: same_bytes.py PROGRAM OTHER SCENARIO run|compare|search EXIT_CODE
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
        jobs = jobs if command in ("compare", "search") else []
        done = run(program, command, scenario, "-o", "out", *jobs, cwd=folder, environment=environment)
        return done, tree(os.path.join(folder, "out"))


def main():
    program, other, scenario, command, code = sys.argv[1:]
    one, two = (outputs(p, scenario, command, *s) for p, s in zip((program, other), SURROUNDINGS))
    for done, _ in (one, two):
        require_equal(done.returncode, int(code), f"exit code; standard error {done.stderr.decode()}")
    require_equal(two[0].stdout, one[0].stdout, "text")
    require_equal(sorted(two[1]), sorted(one[1]), "files")
    require({"summary.json", "report.html"} <= set(one[1]), f"files: {sorted(one[1])}")
    for name, content in one[1].items():
        require(two[1][name] == content, f"{name} differs")


main()
