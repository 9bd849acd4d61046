"""Pipelines, tensor and expert parallelism as scripts of a rank with paced passes (see data_parallel.py)."""

import time

import torch
import torch.distributed as dist


def slots_of(schedule, stage, stages, micro_batches):
    """The passes of a stage in order, as ("forward", 0), ("backward", 0), ...: GPipe, or one forward one backward."""
    if schedule == "gpipe":
        return [("forward", m) for m in range(micro_batches)] + [("backward", m) for m in range(micro_batches)]
    warm_up = min(stages - stage, micro_batches)
    slots = [("forward", m) for m in range(warm_up)]
    for m in range(micro_batches):
        slots.append(("backward", m))
        if warm_up + m < micro_batches:
            slots.append(("forward", warm_up + m))
    return slots


def _passes(rank, stage, peers, layers, before):
    """One step of a stage of a pipeline; peers: the ranks of all its stages, before: numbers that the stage reads."""
    options = rank.options
    stages, micro_batches = len(peers), options["micro_batches"]
    slow = options.get("slowdown", {}).get(str(stage), 1)
    after = layers[-1]["outputs"]
    arriving, sent = {}, []

    def expect(direction, neighbour, numbers):
        """In the order in which the neighbour sends."""
        for sent_direction, m in slots_of(options["schedule"], neighbour, stages, micro_batches):
            if sent_direction == direction:
                arriving[direction, m] = dist.irecv(torch.empty(numbers), peers[neighbour], tag=m)
    if stage:
        expect("forward", stage - 1, before)
    if stage + 1 < stages:
        expect("backward", stage + 1, after)
    for direction, m in slots_of(options["schedule"], stage, stages, micro_batches):
        if (direction, m) in arriving:
            arriving[direction, m].wait()
        rank.compute(sum(layer[direction] for layer in layers) * slow, f"{direction} {m}")
        if direction == "forward" and stage + 1 < stages:
            sent.append(dist.isend(torch.ones(after), peers[stage + 1], tag=m))
        if direction == "backward" and stage:
            sent.append(dist.isend(torch.ones(before), peers[stage - 1], tag=m))
    for work in sent:
        work.wait()


def pipeline(rank):
    """Stages of layers on ranks in order; nobody waits until activations or their gradients are sent."""
    options = rank.options
    first, last = options["stage_layers"][rank.number]
    before = options["layers"][first - 1]["outputs"] if rank.number else 0
    for _ in rank.steps(options["steps"]):
        _passes(rank, rank.number, list(range(rank.world)), options["layers"][first:last], before)


def hybrid(rank):
    """A pipeline on each replica, and an all-reduce of each stage's gradients among the replicas behind it."""
    options = rank.options
    stages, replicas = options["stages"], rank.world // options["stages"]
    pipelines_first = options["order"] == "tp-pp-dp"
    number = (lambda stage, replica: replica * stages + stage) if pipelines_first else \
        (lambda stage, replica: stage * replicas + replica)
    own = next((s, r) for s in range(stages) for r in range(replicas) if number(s, r) == rank.number)
    groups = [dist.new_group([number(s, r) for r in range(replicas)]) for s in range(stages)]
    first, last = options["stage_layers"][own[0]]
    layers = options["layers"][first:last]
    gradients = torch.ones(sum(layer["parameters"] for layer in layers))
    peers = [number(s, own[1]) for s in range(stages)]
    for _ in rank.steps(options["steps"]):
        _passes(rank, own[0], peers, layers, options["layers"][first - 1]["outputs"] if own[0] else 0)
        begin = time.monotonic()
        dist.all_reduce(gradients, group=groups[own[0]])
        rank.span("all-reduce", "data", begin)


def tensor_parallel(rank):
    """Megatron-LM's: two all-reduces of the activations in each layer's forward pass, and two in its backward pass."""
    options = rank.options
    for _ in rank.steps(options["steps"]):
        for label, seconds, numbers in options["script"]:
            if seconds:
                rank.compute(seconds, label)
            if numbers:
                begin = time.monotonic()
                dist.all_reduce(torch.ones(numbers))
                rank.span("all-reduce activations", "tensor", begin)


def exchange(rank):
    """All-to-alls of even or uneven sizes between paced passes, as experts on all ranks need them.

    options["script"]: (label, seconds, None or [numbers that each rank sends to rank 0, 1, ...] by rank).
    """
    options = rank.options
    for _ in rank.steps(options["steps"]):
        for label, seconds, sizes in options["script"]:
            if isinstance(seconds, list):
                seconds = seconds[rank.number]
            if seconds:
                rank.compute(seconds, label)
            if not sizes:
                continue
            begin = time.monotonic()
            if isinstance(sizes, int):
                dist.all_reduce(torch.ones(sizes))
                rank.span("all-reduce", "data", begin)
                continue
            outgoing = sizes[rank.number]
            incoming = [row[rank.number] for row in sizes]
            peers = [(rank.number + step) % rank.world for step in range(1, rank.world)]
            ends, waiting = [], []
            for peer in peers:
                if incoming[peer]:
                    waiting.append((peer, dist.irecv(torch.empty(incoming[peer]), peer)))
            works = [dist.isend(torch.ones(outgoing[peer]), peer) for peer in peers if outgoing[peer]]
            for peer, work in waiting:
                work.wait()
                ends.append((peer, time.monotonic()))
            for work in works:
                work.wait()
            rank.span("all-to-all", "expert", begin)
