#!/usr/bin/python3
"""What the probe program says where it cannot measure.

usage: no_device_test.py PROGRAM
"""

import os
import subprocess
import sys
import tempfile


def main():
    program = sys.argv[1]
    with tempfile.TemporaryDirectory() as folder:
        for words, code, parts in [
            ([], 4, ["no CUDA device was found", "nvidia-smi"]),
            (["--suite", "gemm", "--quick"], 4, ["no CUDA device was found"]),
            (["--suite", "gem"], 2, ["'gem'", "gemm"]),
            (["--suite", ""], 2, ["--suite"]),
            (["--budget", "-1"], 2, ["--budget"]),
            (["--devices", "0,x"], 2, ["'x'"]),
            (["--devices", "0,0"], 2, ["twice"]),
            (["--quick=yes"], 2, ["--quick"]),
            (["--output"], 2, ["--output"]),
            (["samples.jsonl"], 2, ["'samples.jsonl'"]),
        ]:
            done = subprocess.run([program, *words], cwd=folder, capture_output=True, text=True, timeout=60,
                                  env={**os.environ, "CUDA_VISIBLE_DEVICES": ""}, check=False)
            assert done.returncode == code, (words, done.returncode, done.stderr)
            assert done.stderr.count("\n") == 1 and done.stdout == "", (words, done.stderr, done.stdout)
            for part in parts:
                assert part in done.stderr, (words, part, done.stderr)
            assert os.listdir(folder) == [], "a file was left behind"
        done = subprocess.run([program, "--list"], capture_output=True, text=True, timeout=60, check=True)
        names = [line.split()[0] for line in done.stdout.splitlines()]
        assert names[0] == "machine" and {"launch", "gemm", "copy"} <= set(names), names
        done = subprocess.run([program, "--help"], capture_output=True, text=True, timeout=60, check=True)
        assert "--output" in done.stdout and done.stderr == "", done.stdout


main()
