"""Real ranks: a process for each host of a cluster, torch.distributed with gloo, and what they record."""

import json
import mmap
import os
import select
import signal
import struct
import time
import traceback

import torch
import torch.distributed as dist

import namespaces

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
                if start > getattr(self, "last", 0.0):
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
        self.spans, self.starts, self.ends = [], [], []
        self.extra = {}

    def compute(self, seconds, label):
        """A paced pass: takes as long as the plan says, from where the pass before it ended or was waited for."""
        begin = time.monotonic()
        pause_until(begin + seconds)
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
    refused = namespaces.enter(cluster.network.hosts[options.get("hosts", range(world))[number]])
    scheduling = namespaces.wake_promptly(options.get("real_time", True))
    namespaces.keep_memory()
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
    """Runs program(rank) on the first hosts of the cluster, or on options["hosts"], and returns the ranks' records.

    Raises RankError with what a rank printed; no process of the run is left then either.
    """
    options = options or {}
    meeting = Meeting(world)
    run.count = getattr(run, "count", 0) + 1
    store = f"/run/store-{os.getpid()}-{run.count}"
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


def _complete(text):
    if text.startswith(b"!"):
        raise RankError(text[1:].decode())
    try:
        return json.loads(text)
    except ValueError:
        return None


def _collected(pipes, deadline):
    records = {}
    open_pipes = set(pipes)
    while len(records) < len(pipes):
        left = deadline - time.monotonic()
        ready = select.select(list(open_pipes), [], [], max(left, 0))[0]
        if not ready:
            raise RankError(f"{len(pipes) - len(records)} of {len(pipes)} ranks did not end in time")
        for pipe in ready:
            piece = os.read(pipe, 1 << 16)
            pipes[pipe] += piece
            if not piece:
                open_pipes.discard(pipe)
                if pipes[pipe].startswith(b"!"):
                    raise RankError(pipes[pipe][1:].decode())
                if pipe not in records:
                    raise RankError("a rank ended without a word")
            elif not pipes[pipe].startswith(b"!"):
                record = _complete(pipes[pipe])
                if record:
                    records[pipe] = record
    return sorted(records.values(), key=lambda record: record["rank"])


def step_times(records, warm_up):
    """Seconds from the common start of each step to the end of its last rank, without the first steps."""
    count = len(records[0]["starts"])
    return [max(r["ends"][i] - r["starts"][i] for r in records) for i in range(warm_up, count)]
