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
        rank.compute(sum(layer[direction] for layer in layers), f"{direction} {m}")
        if direction == "forward" and stage + 1 < stages:
            sent.append(dist.isend(torch.ones(after), peers[stage + 1], tag=m))
        if direction == "backward" and stage:
            sent.append(dist.isend(torch.ones(before), peers[stage - 1], tag=m))
    for work in sent:
        work.wait()


def pipeline(rank):
    """A pipeline on each replica; nobody waits until activations or their gradients are sent. Behind it each stage's
    gradients are all-reduced among the replicas."""
    options = rank.options
    stages, replicas = options["stages"], rank.world // options["stages"]

    def number(stage, replica):
        return replica * stages + stage if options["order"] == "tp-pp-dp" else stage * replicas + replica
    own, replica = next((s, r) for s in range(stages) for r in range(replicas) if number(s, r) == rank.number)
    groups = [dist.new_group([number(s, r) for r in range(replicas)]) for s in range(stages)] if replicas > 1 else None
    first, last = options["stage_layers"][own]
    layers = options["layers"][first:last]
    gradients = torch.ones(sum(layer["parameters"] for layer in layers))
    peers = [number(s, replica) for s in range(stages)]
    for _ in rank.steps(options["steps"]):
        _passes(rank, own, peers, layers, options["layers"][first - 1]["outputs"] if own else 0)
        if groups:
            begin = time.monotonic()
            dist.all_reduce(gradients, group=groups[own])
            rank.span("all-reduce", "data", begin)


def _all_to_all(rank, sizes):
    """sizes[i][j]: numbers that rank i sends to rank j; all receives are posted before the sends."""
    peers = [(rank.number + step) % rank.world for step in range(1, rank.world)]
    works = [dist.irecv(torch.empty(sizes[peer][rank.number]), peer) for peer in peers if sizes[peer][rank.number]]
    works += [dist.isend(torch.ones(sizes[rank.number][peer]), peer) for peer in peers if sizes[rank.number][peer]]
    for work in works:
        work.wait()


def scripted(rank):
    """Passes with collectives between them, as tensor and expert parallelism have them.

    options["script"]: (label, seconds by rank, kind of the lane, what moves then), which is nothing (0), an all-reduce
    of so many numbers, or an all-to-all of a matrix of them.
    """
    options = rank.options
    for _ in rank.steps(options["steps"]):
        for label, seconds, kind, numbers in options["script"]:
            if seconds[rank.number]:
                rank.compute(seconds[rank.number], label)
            begin = time.monotonic()
            if isinstance(numbers, list):
                _all_to_all(rank, numbers)
                rank.span("all-to-all", kind, begin)
            elif numbers:
                dist.all_reduce(torch.ones(numbers))
                rank.span("all-reduce", kind, begin)
