#!/usr/bin/python3
"""What scenarios of docs/guide (nn-data-parallel.md, model-parallel.md, mixed.md) say of themselves. As cases.py."""

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


def run(folder, name, variant, *more, code=0):
    words = [os.path.join(GUIDE, f"{name}.json"), "--variant", variant, *more, "--json", "-q"]
    return json.loads(expect(code, "run", *words, cwd=folder)[0])


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
def mixed_gpus(folder):
    """In equal parts a new card waits for an old one, by speed both are busy"""
    step = variants(folder, "mixed-gpus", "step_time_s")
    require(step["two-3090"] < step["by-speed"] < step["given"] < step["equal"] < step["one-3090"], step)
    shares = run(folder, "mixed-gpus", "by-speed")["gpu_shares"]
    require_equal([share["gpu"] for share in shares], ["rtx-3090", "rtx-2080-ti"], "kinds")
    require_equal(sum(share["most_micro_batch"] for share in shares), 128, "images")
    require(all(share["busy_fraction"] > 0.9 for share in shares), shares)
    shares = run(folder, "mixed-gpus", "equal")["gpu_shares"]
    require(shares[0]["busy_fraction"] < 0.7 < 0.9 < shares[1]["busy_fraction"], shares)


@case
def mixed_servers(folder):
    """An old server helps a new one by speed or by time, and is no help in equal parts"""
    step = variants(folder, "mixed-servers", "step_time_s")
    require(step["by-speed"] < step["layers-by-time"] < step["new-alone"], step)
    require(step["layers-by-time"] < 1.02 * step["layers-by-memory"], step)
    require(0.99 * step["new-alone"] < step["equal"], step)
    require(step["equal"] < step["layers-by-count"], step)
    large = ("--set", "variants.1.with.training.micro_batch=8")
    full = run(folder, "mixed-servers", "equal", *large, code=1)
    require(not full["memory"]["fits"] and full["memory"]["peak_rank"] >= 8, full["memory"])
    new, old = full["gpu_shares"]
    require(new["peak_bytes"] < new["capacity_bytes"] and old["peak_bytes"] > old["capacity_bytes"], (new, old))


@case
def shared_cluster(folder):
    """Two jobs across narrow uplinks slow each other, in racks of their own or on wide ones they do not"""
    jobs = variants(folder, "shared-cluster", "jobs")
    require_equal([len(jobs[name]) for name in ("alone", "both", "both-2to1", "racks")], [0, 2, 2, 2], "jobs")
    require(all(job["slowdown"] > 1.1 for job in jobs["both"]), jobs["both"])
    require(all(abs(job["slowdown"] - 1) < 0.01 for name in ("both-2to1", "racks") for job in jobs[name]), jobs)
    require(all(job["fits"] for job in jobs["both"]), jobs["both"])
    step = variants(folder, "shared-cluster", "step_time_s")
    require_equal(step["both"], jobs["both"][0]["together_s"], "the report is of the scenario's own job")


@case
def two_towers(folder):
    """AlexNet's towers on a GPU each beat a shared batch and a cut in order, and are what is found by time"""
    step = variants(folder, "two-towers", "step_time_s")
    require(step["a-tower-each"] < step["distributed"] < step["one-gpu"] < step["in-series"], step)
    require(abs(step["by-time"] / step["a-tower-each"] - 1) < 0.01, step)
    peak = {name: memory["peak_bytes"] for name, memory in variants(folder, "two-towers", "memory").items()}
    require(peak["by-memory"] < min(value for name, value in peak.items() if name != "by-memory"), peak)


@case
def branches(folder):
    """Inception's branches gain over NVSwitch, little over PCIe, and less than a shared batch"""
    step = variants(folder, "branches", "step_time_s")
    gain = {name: step["one-gpu"] / value for name, value in step.items()}
    require(gain["distributed"] > gain["branches"] > gain["pipeline"] > gain["branches-pcie"] > 1.05, gain)
    require(gain["branches"] > 1.4 and gain["branches-pcie"] < 1.2 and gain["in-series"] < 1.01, gain)


@case
def unet(folder):
    """With its loader the U-Net on two cards gains what was published: 30.5 % shared by batch, 4.5 % by layers"""
    rate = variants(folder, "unet-2x2070s", "samples_per_s")
    require(abs(rate["distributed"] / rate["one-gpu"] - 1.305) < 0.06, rate)
    require(abs(rate["pipeline"] / rate["one-gpu"] - 1.045) < 0.06, rate)


@case
def amoebanet(folder):
    """AmoebaNet-D on two, four and eight P40 speeds up as published, within 8 %, but for one row"""
    rate = variants(folder, "amoebanet-8xp40", "samples_per_s")
    measured = {"n2-m1": 26.733, "n2-m4": 41.133, "n2-m32": 47.386, "n4-m1": 26.827, "n4-m32": 72.412,
                "n8-m1": 24.918, "n8-m4": 70.065, "n8-m32": 132.413}
    for name, value in measured.items():
        wanted = value / measured["n2-m1"]
        require(abs(rate[name] / rate["n2-m1"] / wanted - 1) < 0.08, (name, wanted, rate))


case.main()
