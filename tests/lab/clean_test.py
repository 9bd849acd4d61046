#!/usr/bin/env python3
"""The lab and its clusters leave nothing behind, however they end: no process, namespace, device or file.

usage: clean_test.py TRAINYARD

Exits with 77 where the machine cannot run the lab.
"""

import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import uuid

import machine

ROOT = pathlib.Path(__file__).resolve().parents[2]
LAB = ROOT / "calibrate" / "lab"
sys.path.insert(0, str(LAB))

import scenarios  # noqa: E402

GONE_S = 5     # in which all must be gone
STARTS_S = 30  # in which it must have begun


class Started:
    """A program of the lab in a group of its own, as a shell starts it; what it says is in files beside the folder."""

    def __init__(self, folder, *words):
        self.mark = uuid.uuid4().hex
        self.folder = folder / self.mark
        self.folder.mkdir()
        self.log = folder / f"{self.mark}.log"
        with open(self.log, "wb") as log:
            self.process = subprocess.Popen(
                [machine.PYTHON, "-B", *map(str, words)], cwd=self.folder, env=machine.marked(self.mark),
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True)

    def said(self):
        return self.log.read_text(encoding="utf-8", errors="replace")

    def has_begun(self, processes):
        """Whether as many processes of it run; fails where it has ended instead."""
        def counted():
            assert self.process.poll() is None, self.said()
            return len(machine.alive(self.mark)) >= processes
        assert machine.within(STARTS_S, counted), (machine.alive(self.mark), self.said())

    def tell(self, number, everybody):
        """A signal: to everybody, as from a terminal, or to the first process alone."""
        (os.killpg if everybody else os.kill)(self.process.pid, number)

    def left_nothing(self, code, before):
        """It ends as it should, soon, and the machine is as it was."""
        found = self.process.wait(GONE_S + 5)
        assert found == code, (found, code, self.said())
        assert machine.within(GONE_S, lambda: not machine.alive(self.mark)), machine.alive(self.mark)
        assert not list(self.folder.iterdir()), list(self.folder.iterdir())
        assert machine.traces() == before, (machine.traces(), before)


def cluster(*words):
    """Runs cluster.py to its end: exit code and all that it said."""
    done = subprocess.run([machine.PYTHON, str(LAB / "cluster.py"), *map(str, words)], stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, text=True, check=False, timeout=60)
    return done.returncode, done.stdout


def says(expected, code, found):
    assert found[0] == code and expected in found[1], (expected, code, found)


def lab_is_interrupted_killed_or_refused(program, folder):
    lab = (LAB / "lab.py", "--trainyard", program, "--quick", "-o", "lab")
    before = machine.traces()
    # The driver, two in the sandbox, and two ranks that measure messages.
    first = Started(folder, *lab)
    first.has_begun(5)
    second = Started(folder, *lab)
    second.left_nothing(4, before)
    assert "another one is running" in second.said(), second.said()
    first.tell(signal.SIGINT, everybody=True)
    first.left_nothing(130, before)
    assert "interrupted; nothing was written" in first.said(), first.said()
    for number, code in ((signal.SIGINT, 130), (signal.SIGKILL, -signal.SIGKILL)):
        run = Started(folder, *lab)
        run.has_begun(5)
        run.tell(number, everybody=False)
        run.left_nothing(code, before)


def a_cluster_ends_with_its_command(program, scenario, folder):
    up = (LAB / "cluster.py", "up", scenario, "--trainyard", program, "--")
    before = machine.traces()
    run = Started(folder, *up, "sh", "-c", "ip netns exec h1 ip -brief address; sleep 0.1 & exit 3")
    run.left_nothing(3, before)
    assert "10.9.0.2/16" in run.said(), run.said()
    # Of a signal that only the driver gets, the command is told by another.
    for number, everybody, code in ((signal.SIGINT, True, 130), (signal.SIGINT, False, 143),
                                    (signal.SIGTERM, False, 143), (signal.SIGKILL, False, -signal.SIGKILL)):
        run = Started(folder, *up, "sleep", "100")
        machine.within(STARTS_S, lambda run=run: "sleep 100" in machine.alive(run.mark).values())
        says("one is up already", 4, cluster("up", scenario, "--trainyard", program, "--", "true"))
        says("10.9.0.4/16", 0, cluster("exec", "h3", "ip", "-brief", "address"))
        run.tell(number, everybody)
        run.left_nothing(code, before)


def a_cluster_stays_until_it_is_taken_down(program, scenario, folder):
    before = machine.traces()
    run = Started(folder, LAB / "cluster.py", "up", scenario, "--trainyard", program)
    assert run.process.wait(STARTS_S) == 0, run.said()
    assert "h0 - s0  200 Mbit/s each way" in run.said(), run.said()
    assert len(machine.alive(run.mark)) == 3, machine.alive(run.mark)
    says("one is up already", 4, cluster("up", scenario, "--trainyard", program))
    says("there is no h4", 2, cluster("exec", "h4", "true"))
    says("", 7, cluster("exec", "h2", "sh", "-c", "sleep 100 >/dev/null 2>&1 & exit 7"))
    says("rate 200Mbit", 0, cluster("exec", "s0", "tc", "class", "show", "dev", "p0"))
    says("cluster: down", 0, cluster("down"))
    run.left_nothing(0, before)
    says("none was up", 0, cluster("down"))
    says("none is up", 4, cluster("exec", "h0", "true"))
    # Neither a command that does not want to end nor stopped processes are an obstacle, and down waits for the last.
    run = Started(folder, LAB / "cluster.py", "up", scenario, "--trainyard", program, "--", "sh", "-c",
                  "trap '' TERM HUP; sleep 100")
    assert machine.within(STARTS_S, lambda: "sleep 100" in machine.alive(run.mark).values()), run.said()
    for process in machine.alive(run.mark):
        os.kill(process, signal.SIGSTOP)
    says("cluster: down", 0, cluster("down"))
    assert not machine.alive(run.mark), machine.alive(run.mark)
    run.left_nothing(130, before)
    # However it is killed, it is gone.
    run = Started(folder, LAB / "cluster.py", "up", scenario, "--trainyard", program, "--fifo")
    assert run.process.wait(STARTS_S) == 0, run.said()
    os.kill(min(machine.alive(run.mark)), signal.SIGKILL)
    run.left_nothing(0, before)
    says("none is up", 4, cluster("exec", "h0", "true"))


def what_cannot_be_built_is_refused(program, scenario, folder):
    before = machine.traces()
    for code, words in ((2, ("up",)), (2, ("up", scenario, "--")), (2, ("exec", "h0")), (2, ("rise",)),
                        (3, ("up", folder / "none.json", "--trainyard", program)),
                        (4, ("up", scenario, "--trainyard", folder / "no-program"))):
        run = Started(folder, LAB / "cluster.py", *words)
        run.left_nothing(code, before)
        assert run.said().strip(), words


def main():
    why = machine.missing()
    if why:
        return machine.skipped(why)
    if cluster("exec", "h0", "true")[0] != 4:
        return machine.skipped("a cluster is up on this machine")
    program = os.path.abspath(sys.argv[1])
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        scenario = folder / "star.json"
        ideal = scenarios.Messages(1.0, 0.0, ((1000, 0.0),), ((1000, 0.0),))
        scenario.write_text(json.dumps(scenarios.scenario(
            "star", scenarios.model_of(scenarios.layers_of(1, 1, 1, 1000)), scenarios.star(ideal, 4), 4, {"dp": 4})),
            encoding="utf-8")
        what_cannot_be_built_is_refused(program, scenario, folder)
        a_cluster_ends_with_its_command(program, scenario, folder)
        a_cluster_stays_until_it_is_taken_down(program, scenario, folder)
        probe = Started(folder, "-c", "import sys; sys.path.insert(0, sys.argv[1]); import lab, namespaces; "
                        "sys.exit(not namespaces.lock(lab.LOCK))", LAB)
        if probe.process.wait():
            return machine.skipped("a lab is running on this machine, so lab.py itself was not tried")
        lab_is_interrupted_killed_or_refused(program, folder)
    print("lab: nothing is left behind")
    return 0


if __name__ == "__main__":
    sys.exit(main())
