"""Real ranks: a process for each host of a cluster, torch.distributed with gloo, and what they record."""

import contextlib
import json
import mmap
import os
import pathlib
import select
import signal
import struct
import sys
import tempfile
import time
import traceback

import torch
import torch.distributed as dist

import namespaces

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1] / "probe" / "cpu"))

import probe_cpu  # noqa: E402

SPIN_S = 0.0001        # of a pause, at its end, without sleeping
STEP_LEAD_S = 0.004    # from the last rank's arrival to the common start of a step


def pause_until(moment):
    """Sleeps up to a moment of time.monotonic()."""
    left = moment - time.monotonic()
    if left > SPIN_S:
        time.sleep(left - SPIN_S / 2)
    while time.monotonic() < moment:
        pass


class Meeting:
    """Where all ranks of a run agree on a moment, through memory that they share and not through the network."""

    def __init__(self, world):
        self.world = world
        self.memory = mmap.mmap(-1, 8 * (world + 1))
        self.last = 0.0  # start that this process has seen

    def meet(self, rank, number):
        """The common start of the step with this number, from 1: some milliseconds after the last rank has come."""
        struct.pack_into("d", self.memory, 8 * (rank + 1), float(number))
        if rank == 0:
            while any(struct.unpack_from("d", self.memory, 8 * (r + 1))[0] < number for r in range(self.world)):
                time.sleep(0.0005)
            start = time.monotonic() + STEP_LEAD_S
            struct.pack_into("d", self.memory, 0, start)
        else:
            while True:
                start = struct.unpack_from("d", self.memory, 0)[0]
                if start > self.last:
                    break
                time.sleep(0.0005)
        self.last = start
        pause_until(start)
        return start


class Rank:
    """What a program of a rank is given: who it is, how it computes, and where it writes what it did."""

    def __init__(self, number, world, meeting, options):
        self.number, self.world, self.options = number, world, options
        self.meeting = meeting
        self.slowdown = options.get("slowdown", {}).get(str(number), 1)
        self.spans, self.starts, self.ends = [], [], []
        self.extra = {}

    def compute(self, seconds, label):
        """A paced pass: as long as the plan says, from where the pass before it ended; on a slow rank longer."""
        begin = time.monotonic()
        pause_until(begin + seconds * self.slowdown)
        self.spans.append((label, "compute", begin, time.monotonic()))

    def span(self, label, kind, begin):
        """Records what has just ended."""
        self.spans.append((label, kind, begin, time.monotonic()))

    def steps(self, count):
        """Yields the number of each step after all ranks have met; spans of the last one are kept."""
        for number in range(1, count + 1):
            self.spans = []
            self.starts.append(self.meeting.meet(self.number, number))
            yield number
            self.ends.append(time.monotonic())

    def record(self):
        """Of this rank, for the driver: starts and ends of steps, spans of the last, and what the program adds."""
        return {"rank": self.number, "starts": self.starts, "ends": self.ends,
                "spans": self.spans, **self.extra}


def _rank_process(cluster, program, number, world, meeting, options, store, pipe):
    refused = namespaces.enter(cluster.network.hosts[number])
    scheduling = namespaces.wake_promptly(options.get("real_time", True))
    probe_cpu.keep_memory()
    if "core" in options:
        os.sched_setaffinity(0, {sorted(os.sched_getaffinity(0))[options["core"][number]]})
    torch.set_num_threads(1)
    os.environ["GLOO_SOCKET_IFNAME"] = "net0"
    rank = Rank(number, world, meeting, options)
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=number, world_size=world)
    program(rank)
    rank.extra.update(refused=refused, scheduling=scheduling)
    text = json.dumps(rank.record()).encode()
    while text:
        text = text[os.write(pipe, text):]
    # Nobody leaves while another may still hear from it.
    rank.meeting.meet(number, 1e9)


class RankError(Exception):
    """A rank failed or did not end in time."""


def run(cluster, program, world, options=None, limit_s=120):
    """Runs program(rank) on the first hosts of the cluster and returns the ranks' records.

    Raises RankError with what a rank printed; no process of the run is left then either.
    """
    options = options or {}
    meeting = Meeting(world)
    store = tempfile.mktemp(dir="/run")  # made by the first rank that comes; /run is the sandbox's own
    children, pipes = {}, {}
    for number in range(world):
        ours, theirs = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(ours)
            code = 1
            try:
                signal.signal(signal.SIGINT, signal.SIG_IGN)
                _rank_process(cluster, program, number, world, meeting, options, store, theirs)
                code = 0
            except BaseException:  # the driver tells it
                os.write(theirs, b"!" + traceback.format_exc().encode())
            finally:
                os._exit(code)
        os.close(theirs)
        children[child], pipes[ours] = number, b""
    try:
        return _collected(pipes, time.monotonic() + limit_s)
    finally:
        for child in children:
            try:
                os.kill(child, signal.SIGKILL)
            except ProcessLookupError:
                pass
            os.waitpid(child, 0)
        for pipe in pipes:
            os.close(pipe)
        if os.path.exists(store):
            os.unlink(store)


def _collected(pipes, deadline):
    """The ranks' records in order, once each has written its own; the pipes stay open."""
    records = {}
    while len(records) < len(pipes):
        waited_for = [pipe for pipe in pipes if pipe not in records]
        ready = select.select(waited_for, [], [], max(deadline - time.monotonic(), 0))[0]
        if not ready:
            raise RankError(f"{len(waited_for)} of {len(pipes)} ranks did not end in time")
        for pipe in ready:
            piece = os.read(pipe, 1 << 16)
            pipes[pipe] += piece
            is_failure = pipes[pipe].startswith(b"!")
            if not piece:
                raise RankError(pipes[pipe][1:].decode() if is_failure else "a rank ended without a word")
            if not is_failure:
                with contextlib.suppress(ValueError):  # a part of it
                    records[pipe] = json.loads(pipes[pipe])
    return sorted(records.values(), key=lambda record: record["rank"])


def step_times(records, warm_up):
    """Seconds from the common start of each step to the end of its last rank, without the first steps."""
    count = len(records[0]["starts"])
    return [max(r["ends"][i] - r["starts"][i] for r in records) for i in range(warm_up, count)]
