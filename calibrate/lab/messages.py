"""What a message of gloo takes between two hosts of the lab: measured, and fitted by `trainyard fit`."""

import datetime
import json
import statistics
import time

import torch
import torch.distributed as dist

import collectives
import namespaces
import network
import predicted
import ranks
import scenarios

# Bytes. Below, what passes an idle cable at once (namespaces.BURST) is a part of the message that counts.
SIZES = tuple(250_000 * factor for factor in (1, 2, 3, 4, 6, 8, 12, 16, 24, 32))
QUICK_SIZES = (500_000, 1_000_000, 1_500_000, 2_000_000)
TREE_SIZES = (4_000_000, 8_000_000)
PERFECT = scenarios.Messages(1.0, 0.0, ((1000, 0.0),), ((1000, 0.0),))  # what the cables are built for
KINDS = {"send-recv": SIZES, "all-reduce": SIZES, "tree": TREE_SIZES}


def _once(kind, rank, tensor):
    if kind == "all-reduce":
        dist.all_reduce(tensor)
    elif kind == "tree":
        collectives.tree_all_reduce(tensor, rank.number, rank.world)
    elif rank.number == 0:
        dist.send(tensor, 1)
    else:
        dist.recv(tensor, 0)


def _measuring(rank):
    """Each kind of message, one size after the other."""
    number = 0
    for kind, size in rank.options["cases"]:
        tensor = torch.ones(size // 4)
        for _ in range(rank.options["repeats"]):
            number += 1
            rank.starts.append(rank.meeting.meet(rank.number, number))
            _once(kind, rank, tensor)
            rank.ends.append(time.monotonic())


def _two_hosts(bits_per_s):
    """Two hosts on a switch, as the lab's stars have them."""
    cable = network.Cable(bits_per_s // 8, 0.0)
    ends = [("h0", "s0"), ("s0", "h0"), ("h1", "s0"), ("s0", "h1")]
    return network.Network(("h0", "h1"), ("s0",), {end: cable for end in ends})


def measured(quick=False, bits_per_s=scenarios.LINE_BITS_PER_S, more=()):
    """[(kind, bytes, seconds of each repeat)] between two hosts; more: of the ranks' options. Only in the sandbox."""
    cases = [(kind, size) for kind, sizes in KINDS.items() for size in sizes]
    if quick:
        cases = [(kind, size) for kind in ("send-recv", "all-reduce") for size in QUICK_SIZES]
    options = {"cases": cases, "repeats": 5 if quick else 9, **dict(more)}
    with namespaces.Cluster(_two_hosts(bits_per_s)) as cluster:
        records = ranks.run(cluster, _measuring, 2, options)
    times = [max(r["ends"][i] - r["starts"][i] for r in records) for i in range(len(records[0]["starts"]))]
    found = []
    for at, (kind, size) in enumerate(cases):
        first = at * options["repeats"]
        found.append((kind, size, sorted(times[first + 1:first + options["repeats"]])))  # the first is a warm-up
    return found


def samples_of(found):
    """Lines of docs/samples.md, without that of the machine; what has no kind there (a tree of two) is left out."""
    lines = []
    for kind, size, times in found:
        if kind == "tree":
            continue
        middle, quarter = statistics.median(times), len(times) // 4
        lines.append({"kind": "collective", "collective": kind, "ranks": 2, "servers": 2, "bytes": size,
                      "backend": "gloo", "time_us": round(middle * 1e6, 1), "repeats": len(times),
                      "spread": round((times[-1 - quarter] - times[quarter]) / middle, 4)})
    return lines


def _seconds(text):
    """Of a time as profiles write it."""
    units = {"ps": 1e-12, "ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0}
    number = text.rstrip("pnums")
    return float(number) * units[text[len(number):]]


def _bytes_per_s(text):
    units = {"TB/s": 1e12, "GB/s": 1e9, "MB/s": 1e6, "KB/s": 1e3, "B/s": 1.0}
    number = text.rstrip("TGMKB/s")
    return float(number) * units[text[len(number):]]


def constants_of(profile, found, bits_per_s=scenarios.LINE_BITS_PER_S):
    """scenarios.Messages of a fitted profile: the send's law is the cable's, and what an all-reduce of two hosts takes
    beside its bytes is divided among its two steps; of a tree of two, which samples have no kind for, likewise."""
    send = next(law for law in profile["point_to_point"] if not law["same_server"])
    reduce = next(law for law in profile["collectives"] if law["kind"] == "all-reduce")
    rate, start = _bytes_per_s(send["bandwidth"]), _seconds(send["start"])
    line = bits_per_s / 8

    def beside(size, seconds):
        return max((seconds - size / rate) / 2 - start, 0.0)
    steps = []
    for size in sorted({size for kind, size, _ in found if kind == "all-reduce"}):
        law = (_seconds(reduce["start"]) + size / _bytes_per_s(reduce["bandwidth"]) +
               _seconds(reduce["per_sqrt_MB"]) * (size / 1e6) ** 0.5)
        steps.append((size // 2, beside(size, law)))
    trees = [(size, beside(size, statistics.median(times))) for kind, size, times in found if kind == "tree"]
    return scenarios.Messages(min(rate / line, 1.0), start, tuple(steps), tuple(trees) or tuple(steps))


def calibrated(trainyard, folder, preset, quick=False, name="messages", **conditions):
    """Measures between two hosts and fits; samples and profile stay in the folder. conditions: as of measured()."""
    found = measured(quick, **conditions)
    machine = {"kind": "machine", "probe": "calibrate/lab", "date": datetime.date.today().isoformat(),
               "gpus": [{"name": ranks.probe_cpu.cpu_facts()["name"], "multiprocessors": 1}]}
    samples = folder / f"{name}.samples.jsonl"
    samples.write_text("".join(json.dumps(line) + "\n" for line in [machine] + samples_of(found)), encoding="utf-8")
    profile = predicted.fitted(trainyard, samples, folder / f"{name}.json", preset)
    return constants_of(profile, found, conditions.get("bits_per_s", scenarios.LINE_BITS_PER_S))
