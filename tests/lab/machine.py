"""What the lab's tests ask of a machine before they blame the lab, and how they see what is left behind."""

import os
import shutil
import subprocess
import time

SKIPPED = 77
PYTHON = "/usr/bin/python3"  # Debian's, which has python3-torch
MARK = "TRAINYARD_LAB_TEST"
PATH = os.environ.get("PATH", os.defpath) + ":/usr/sbin:/sbin"
NEEDED = """set -e
mount -t tmpfs none /run
ip link add name port0 type veth peer name port1
ip link add name bridge0 type bridge
tc qdisc add dev port0 root handle 1: htb default 2
tc qdisc add dev port1 root tbf rate 1mbit burst 16kb limit 1mb
"""


def missing():
    """What this machine lacks for the lab, or nothing. Mistakes of the lab's own are no reason to skip."""
    for tool in ("ip", "tc", "bridge", "unshare"):
        if not shutil.which(tool, path=PATH):
            return f"{tool} is not installed"
    look = "import numpy, torch.distributed as d, sys; sys.exit(not d.is_gloo_available())"
    if subprocess.run([PYTHON, "-c", look], capture_output=True, check=False).returncode:
        return f"{PYTHON} has no torch with gloo, or no numpy"
    words = ["unshare", "--mount", "--net", "--pid", "--fork"]
    if os.geteuid():
        words += ["--user", "--map-root-user"]
    tried = subprocess.run(words + ["sh", "-c", NEEDED], capture_output=True, text=True, check=False,
                           env={**os.environ, "PATH": PATH})
    return "" if tried.returncode == 0 else f"no network namespaces, or a kernel without queues: {tried.stderr.strip()}"


def skipped(why):
    """For main to return."""
    print(f"lab: not tested: {why}")
    return SKIPPED


def marked(value):
    """An environment by which all that descends from a process is found."""
    return {**os.environ, MARK: value}


def alive(value):
    """Process ids of all that have the mark, with their command lines."""
    found = {}
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{name}/environ", "rb") as stream:
                if f"{MARK}={value}".encode() not in stream.read().split(b"\0"):
                    continue
            with open(f"/proc/{name}/cmdline", "rb") as stream:
                found[int(name)] = stream.read().replace(b"\0", b" ").decode(errors="replace").strip()
        except OSError:
            pass  # it has just ended, or is somebody else's
    return found


def within(seconds, condition):
    """What condition() returns as soon as it is true, or what it returned last."""
    end = time.monotonic() + seconds
    while True:
        value = condition()
        if value or time.monotonic() > end:
            return value
        time.sleep(0.05)


def traces():
    """What namespaces could leave on the machine beside processes: names, mounts and devices."""
    with open("/proc/self/mounts", encoding="utf-8") as stream:
        mounts = sorted(line for line in stream if "nsfs" in line or "/run/netns" in line)
    netns = sorted(os.listdir("/run/netns")) if os.path.isdir("/run/netns") else []
    return {"mounts": mounts, "namespaces": netns, "devices": sorted(os.listdir("/sys/class/net"))}
