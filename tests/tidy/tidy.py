#!/usr/bin/python3
"""Checks the project against a rule of rules.py, or the rules against known faults.

usage: tidy.py ROOT RULE | tidy.py ROOT --self-test | tidy.py ROOT --list
"""

import os
import subprocess
import sys

import rules
from faults import FAULTS, GOOD

TEXT = (".cpp", ".h", ".cu", ".txt", ".cmake", ".json", ".md", ".py", ".sh", ".js", ".css", ".html", ".proto")
SKIPPED = ("build", "out", ".git", ".cache")


def tracked(root):
    """Files of the project: what git knows, or all of an unpacked archive."""
    try:
        listing = subprocess.run(["git", "-C", root, "ls-files", "-z"], capture_output=True, check=True)
        paths = [path for path in listing.stdout.decode().split("\0") if path]
    except (OSError, subprocess.CalledProcessError):
        paths = []
    if paths:
        return paths
    for folder, folders, names in os.walk(root):
        folders[:] = [name for name in folders if name not in SKIPPED]
        paths += [os.path.relpath(os.path.join(folder, name), root) for name in names]
    return paths


def read(root):
    files = {}
    for path in tracked(root):
        full = os.path.join(root, path)
        if (path.endswith(TEXT) or path in ("dev", ".ci/run", "LICENSE")) and os.path.isfile(full):
            with open(full, encoding="utf-8") as file:
                files[path] = file.read()
    return files


def self_test():
    """Every fault is found by its rule, and the good files by none."""
    wrong = []
    for rule, files, expected in FAULTS:
        found = list(rule({**GOOD, **files}))
        if len(found) != 1 or expected not in found[0]:
            wrong.append(f"{rule.__name__}: expected one complaint with '{expected}', got {found}")
    for rule in rules.RULES:
        wrong += [f"{rule.__name__}: complains of good files: {found}" for found in rule(GOOD)]
        if not any(fault[0] is rule for fault in FAULTS):
            wrong.append(f"{rule.__name__}: no known fault shows that it can fail")
    return wrong


def main():
    root, what = sys.argv[1:]
    if what == "--list":
        print("\n".join(f"{rule.__name__}={rule.__doc__.rstrip('.')}" for rule in rules.RULES))
        return 0
    if what == "--self-test":
        complaints = self_test()
    else:
        complaints = list(getattr(rules, what)(read(root)))
    for complaint in complaints:
        print(complaint)
    return 1 if complaints else 0


sys.exit(main())
