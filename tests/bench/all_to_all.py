#!/usr/bin/python3
"""An all-to-all of 128 hosts whose sizes are random, so that every end of a flow divides the bandwidth again: user
time and peak memory, and beside them SimGrid's where it is installed (Debian: libsimgrid-dev).

usage: all_to_all.py FOLDER [HOSTS]
"""

import os
import subprocess
import sys
import tempfile


def measure(words):
    """What it prints, seconds of user time and peak resident MiB."""
    with tempfile.TemporaryFile() as output:
        with subprocess.Popen(words, stdout=output, stderr=subprocess.DEVNULL) as child:
            _, status, usage = os.wait4(child.pid, 0)
            child.returncode = os.waitstatus_to_exitcode(status)
        if child.returncode != 0:
            sys.exit(f"{words[0]}: exit code {child.returncode}")
        output.seek(0)
        return int(output.read()), usage.ru_utime, usage.ru_maxrss / 1024


def main():
    folder, hosts = sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else "128"
    other = os.path.join(folder, "all_to_all_simgrid")
    print(f"{'all-to-all':<10} {'hosts':>5} {'user s':>8} {'MiB':>6} {'SimGrid s':>10} {'MiB':>6} {'times':>7}")
    for fabric in ("fat", "star"):
        simulated, seconds, mib = measure([os.path.join(folder, "all_to_all"), fabric, hosts])
        line = f"{fabric:<10} {hosts:>5} {seconds:>8.3f} {mib:>6.1f}"
        if os.path.exists(other):
            same, its_seconds, its_mib = measure([other, fabric, hosts])
            if abs(same - simulated) > 1:
                sys.exit(f"{fabric}: {simulated} ns here, {same} ns in SimGrid")
            line += f" {its_seconds:>10.3f} {its_mib:>6.1f} {its_seconds / seconds:>7.1f}"
        print(line, flush=True)
    if not os.path.exists(other):
        print("SimGrid was not found (Debian: libsimgrid-dev): no comparison")


main()
