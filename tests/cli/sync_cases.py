#!/usr/bin/python3
"""What the scenarios of docs/guide/sync-methods.md and tensorflow.md say of themselves. As cases.py."""

import json
import os

from process import Cases, require, require_equal

HERE = os.path.dirname(os.path.abspath(__file__))
GUIDE = os.path.join(os.path.dirname(os.path.dirname(HERE)), "configs", "scenarios", "guide")
case = Cases()
expect = case.expect


def variants(folder, name):
    out, _ = expect(0, "compare", os.path.join(GUIDE, f"{name}.json"), "--json", "-q", cwd=folder)
    return {variant["name"]: variant for variant in json.loads(out)["variants"]}


@case
def sync_methods(folder):
    """One server's link saturates with workers, shards divide its load, and a ring's step hardly grows"""
    found = variants(folder, "sync-methods")
    step = {name: variant["step_time_s"] for name, variant in found.items()}
    require(step["server-32"] > 6 * step["server-4"], step)
    require(step["server-32"] > 3.5 * step["4-shards-32"], step)
    require(step["ring-32"] < 1.15 * step["ring-8"], step)
    require(all(step[f"hierarchical-{n}"] < step[f"ring-{n}"] < step[f"naive-{n}"] for n in (8, 16, 32)), step)
    require(all(step[f"4-shards-by-layer-{n}"] < step[f"4-shards-{n}"] for n in (4, 8, 16, 32)), step)
    require(all(step[f"async-{n}"] < step[f"4-shards-{n}"] for n in (4, 8, 16, 32)), step)
    require_equal(found["ring-4"]["server_updates"], None, "ranks of a ring wait for each other")


@case
def staleness(folder):
    """Of n equal workers at their own pace a gradient is about n - 1 updates old"""
    found = variants(folder, "sync-methods")
    for n in (4, 8, 16, 32):
        updates = found[f"async-{n}"]["server_updates"]
        require(abs(updates["mean_staleness"] / (n - 1) - 1) < 0.15, (n, updates))
        require_equal(len(updates["updates_by_staleness"]), updates["most_stale"] + 1, "one number for each age")
        require(abs(updates["updates_per_s"] * found[f"async-{n}"]["step_time_s"] / n - 1) < 1e-6, (n, updates))


@case
def straggler(folder):
    """A worker at a third of the speed costs a synchronous step all of it, an asynchronous one its share"""
    found = variants(folder, "straggler")
    slower = {
        way: found[f"{way}-straggler"]["step_time_s"] / found[way]["step_time_s"]
        for way in ("synchronous", "backup", "asynchronous", "stale")
    }
    require(slower["synchronous"] > 2.1 and slower["stale"] > 2.1, slower)
    require(slower["backup"] < 1.05, slower)
    require(abs(slower["asynchronous"] - 8 / (7 + 1 / 3)) < 0.05, slower)


@case
def tensorflow_strategies(folder):
    """On NVLink mirrored copies lose little, and storage in the host's memory costs three steps for one"""
    found = variants(folder, "tensorflow-strategies")
    step = {name: variant["step_time_s"] for name, variant in found.items()}
    require(step["one-device"] < step["mirrored"] < step["horovod"] < step["mirrored-one-device"], step)
    require(step["one-device"] < step["mirrored-hierarchical-copy"] < step["mirrored-one-device"], step)
    require(step["horovod"] < 1.2 * step["one-device"], step)
    require(step["central-storage"] > 3 * step["mirrored"], step)
    require(step["horovod"] < step["parameter-server-gpus"] < 0.5 * step["central-storage"], step)
    require(step["multi-worker"] < 1.5 * step["one-device"], step)
    require(step["parameter-server-synchronous"] > 6 * step["distributed-replicated"], step)
    require(found["parameter-server"]["server_updates"]["updates_per_s"] > 0, "the servers update")


case.main()
