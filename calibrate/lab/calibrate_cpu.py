#!/usr/bin/env python3
"""Measures this machine's processors as samples for trainyard fit: operators of PyTorch, and messages of gloo.

usage: calibrate_cpu.py --output SAMPLES.jsonl [--threads N] [--budget SECONDS] [--quick]

Messages go between two network namespaces (docs/lab.md); where those are not allowed, their samples are left out with a
word. Exit codes: 0 done, 4 nothing could be measured.
"""

import argparse
import os
import pathlib
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
PROBE = HERE.parent / "probe" / "cpu" / "probe_cpu.py"


def has_torch(python):
    """Whether this Python finds PyTorch."""
    look = "import importlib.util, sys; sys.exit(importlib.util.find_spec('torch') is None)"
    return subprocess.run([python, "-c", look], check=False).returncode == 0


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--output", required=True, help="file to append to")
    parser.add_argument("--threads", type=int, default=0, help="cores to use; default: all of the process")
    parser.add_argument("--budget", type=float, default=0, help="seconds to measure for (default: 240, quick 50)")
    parser.add_argument("--quick", action="store_true", help="fewer shapes and sizes")
    options = parser.parse_args()
    candidates = [name for name in (sys.executable, "/usr/bin/python3") if os.path.exists(name)]
    python = next((name for name in candidates if has_torch(name)), "")
    if not python:
        print("calibrate: python3 has no torch; install it (on Debian python3-torch and libopenblas0-openmp)",
              file=sys.stderr)
        return 4
    minutes = (options.budget or (50 if options.quick else 240)) / 60
    words = [python, "-B", str(PROBE), "--output", options.output, "--minutes", str(minutes), "--threads",
             str(options.threads)]
    measured = subprocess.run(words + (["--quick"] if options.quick else []), check=False).returncode
    if measured:
        return 4
    words = [python, "-B", str(HERE / "lab.py"), "--messages", options.output]
    if subprocess.run(words + (["--quick"] if options.quick else []), check=False).returncode:
        print("calibrate: the samples have no messages", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
