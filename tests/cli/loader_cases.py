#!/usr/bin/python3
"""What the scenario of docs/guide/input-pipeline.md says of itself, and wrong pipelines. As cases.py."""

import json
import os

from process import Cases, require, require_equal, require_one_line

HERE = os.path.dirname(os.path.abspath(__file__))
GUIDE = os.path.join(os.path.dirname(os.path.dirname(HERE)), "configs", "scenarios", "guide", "input-pipeline.json")
INPUT = "training.input_pipeline"
case = Cases()
expect = case.expect


@case
def starving(folder):
    """Few workers starve the GPUs, cores end what more of them gain, and less work for each sample cures it"""
    out, _ = expect(0, "compare", GUIDE, "--json", "-q", cwd=folder)
    found = {variant["name"]: variant for variant in json.loads(out)["variants"]}
    rate = {name: variant["samples_per_s"] for name, variant in found.items()}
    require(rate["ready"] > 3 * rate["two-workers"], rate)
    require(2.4 < rate["five-workers"] / rate["two-workers"] <= 2.5 + 1e-6, rate)
    require(rate["ten-workers"] < 1.05 * rate["five-workers"], rate)
    require(abs(rate["large-batch"] / rate["five-workers"] - 1) < 0.01, rate)
    require(min(rate["prepared-once"], rate["gpu-decoding"]) > 0.85 * rate["ready"], rate)
    require(rate["slow-storage"] < 0.7 * rate["cached"], rate)
    require_equal(found["ready"]["input"], None, "no input pipeline")
    for name, variant in found.items():
        own = variant["input"]
        if own is None:
            continue
        bound = max(own["batch_every_s"], own["taken_every_s"])
        require(bound <= variant["step_time_s"] * (1 + 1e-6), (name, own))
        if not own["keeps_up"]:
            require(abs(variant["step_time_s"] / own["batch_every_s"] - 1) < 1e-3, (name, own))
    require(not found["two-workers"]["input"]["keeps_up"], "two workers are too few")
    require("cores" in found["two-workers"]["findings"][0]["text"], found["two-workers"]["findings"])
    require("storage gives" in found["slow-storage"]["findings"][0]["text"], found["slow-storage"]["findings"])


@case
def saw_teeth(folder):
    """A monitor sees a starved GPU at nothing and at everything, in turn"""
    out, _ = expect(0, "run", GUIDE, "--variant", "two-workers", "--monitor=20ms", "--json", cwd=folder)
    busy = json.loads(out)["monitor"]["ranks"][0]["busy"]
    require(sum(share == 0 for share in busy) > 0.6 * len(busy), busy)
    require(sum(share == 1 for share in busy) > 0.2 * len(busy), busy)


@case
def wrong_pipelines(folder):
    """Wrong input pipelines are located: too much ahead, no storage, nothing read, schedules that never flush"""

    def refused(*values, says):
        words = [word for value in values for word in ("--set", value)]
        _, err = expect(3, "run", GUIDE, "--variant", "five-workers", *words, cwd=folder)
        require_one_line(err, says)

    refused(f"{INPUT}.prefetch_batches=64", f"{INPUT}.prepared_sample=1MB", f"{INPUT}.workers=64",
            says="/training/input_pipeline/prefetch_batches: 4096 batches ahead of 8 ranks")
    refused(f"{INPUT}.storage_of=cluster", f"{INPUT}.storage_bandwidth=null",
            says="/training/input_pipeline/storage_bandwidth: is required and missing")
    refused(f"{INPUT}.stored_sample=0B", f"{INPUT}.storage_bandwidth=null", f"{INPUT}.cached_share=0.5",
            says="/training/input_pipeline/cached_share: means nothing, as nothing is read")
    refused(f"{INPUT}.workers=0", says="/training/input_pipeline/workers")
    refused("cluster.node.host.memory_bandwidth=0B/s", says="/cluster/node/host/memory_bandwidth")


case.main()
