#!/usr/bin/python3
"""What the scenarios of docs/guide/nn-data-parallel.md and model-parallel.md say of themselves. As cases.py."""

import json
import os

from process import Cases, require, require_equal

HERE = os.path.dirname(os.path.abspath(__file__))
GUIDE = os.path.join(os.path.dirname(os.path.dirname(HERE)), "configs", "scenarios", "guide")
case = Cases()
expect = case.expect


def variants(folder, name, key):
    out, _ = expect(0, "compare", os.path.join(GUIDE, f"{name}.json"), "--json", "-q", cwd=folder)
    return {variant["name"]: variant[key] for variant in json.loads(out)["variants"]}


def run(folder, name, variant, *more):
    words = [os.path.join(GUIDE, f"{name}.json"), "--variant", variant, *more, "--json", "-q"]
    return json.loads(expect(0, "run", *words, cwd=folder)[0])


@case
def one_process(folder):
    """DataParallel falls behind DistributedDataParallel with each GPU, by what its threads wait for each other"""
    step = variants(folder, "data-parallel-or-distributed", "step_time_s")
    behind = [step[f"data-parallel-{n}"] / step[f"distributed-{n}"] for n in (2, 4, 8)]
    require(1.02 < behind[0] < behind[1] < behind[2] and behind[2] > 1.4, behind)
    free = run(folder, "data-parallel-or-distributed", "data-parallel-8",
               "--set", "parallelism.data_parallel.lock_share=0")
    require(free["step_time_s"] < 0.9 * step["data-parallel-8"], free["step_time_s"])


@case
def memory_of_the_first_gpu(folder):
    """Outputs of all GPUs fill the first, a loss in the network leaves it as full as one of many processes"""
    peaks = {}
    for variant in ("outputs-on-gpu-0", "loss-in-the-network", "distributed"):
        found = run(folder, "data-parallel-memory", variant)
        peaks[variant] = [rank["peak_bytes"] for rank in found["ranks"]]
        require_equal(max(peaks[variant]), found["memory"]["peak_bytes"], variant)
    require(peaks["outputs-on-gpu-0"][0] > 2 * peaks["outputs-on-gpu-0"][1], peaks)
    require(peaks["loss-in-the-network"][1] < peaks["loss-in-the-network"][0] < peaks["distributed"][0], peaks)


@case
def shared_layers(folder):
    """A series of two GPUs is slower than one, a pipeline faster, fastest with layers by time, leanest by memory"""
    step = variants(folder, "model-parallel", "step_time_s")
    require(step["distributed"] < step["data-parallel"] < step["by-time"] < step["one-gpu"] < step["in-series"], step)
    require(step["by-time"] <= min(step["pipeline"], step["by-count"], step["by-memory"]), step)
    peak = {name: memory["peak_bytes"] for name, memory in variants(folder, "model-parallel", "memory").items()}
    require(peak["by-memory"] < min(peak["pipeline"], peak["by-count"], peak["by-time"]), peak)


@case
def unet(folder):
    """With its loader the U-Net on two cards gains what was published: 30.5 % shared by batch, 4.5 % by layers"""
    rate = variants(folder, "unet-2x2070s", "samples_per_s")
    require(abs(rate["distributed"] / rate["one-gpu"] - 1.305) < 0.06, rate)
    require(abs(rate["pipeline"] / rate["one-gpu"] - 1.045) < 0.06, rate)


case.main()
