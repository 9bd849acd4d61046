"""The spaces of Calculon's own search (Isaev et al. 2023, section 5), for whole_process.py: tp x pp x dp x micro-batch
x chunks x recomputation x sharded optimizer x sequence parallelism, on A100 of 80 GB, at most 64 micro-batches."""

import itertools
import json
import os

MICRO_BATCHES = (1, 2, 4, 8)
MOST_MICRO_BATCHES = 64
# name, network, its layers, GPUs, global batch
SPACES = [("gpt-22b-32", "gpt-22b", 48, 32, 64), ("gpt3-175b-64", "gpt3-175b", 96, 64, 64),
          ("gpt3-175b-1024", "gpt3-175b", 96, 1024, 1024), ("gpt-530b-280", "gpt-530b", 105, 280, 1120)]
PIPELINES = [{"schedule": "1f1b"}] + [{"schedule": "interleaved_1f1b", "chunks_per_stage": c} for c in (2, 4)]
RECOMPUTE = ["none", "selective", "full"]
SHARDING = [{"kind": kind, "bucket_size": "160MB"} for kind in ("allreduce", "distributed_optimizer")]


def scenario(name, model, gpus, batch):
    return {"version": 1, "name": name, "model": {"preset": model},
            "cluster": {"preset": "selene", "nodes": gpus // 8},
            "training": {"global_batch": batch, "sequence_length": 2048,
                         "precision": {"compute": "fp16", "gradients": "fp32", "master_weights": "fp32"},
                         "optimizer": {"type": "adam"}, "recompute": "full"}}


def divisions(layers, gpus, batch):
    """Replicas, their pairs of tp and pp, and micro-batches."""
    for replicas in (d for d in range(1, gpus + 1) if gpus % d == 0 and batch % d == 0):
        degrees = [(t, p) for t in (1, 2, 4, 8) for p in range(1, layers + 1)
                   if layers % p == 0 and t * p * replicas == gpus]
        each = batch // replicas
        micro = [m for m in MICRO_BATCHES if each % m == 0 and each // m <= MOST_MICRO_BATCHES]
        if degrees and micro:
            yield replicas, degrees, micro


def searches(space):
    """Names and scenarios: one for each number of replicas, which decides what micro-batches there may be."""
    name, model, layers, gpus, batch = space
    for replicas, degrees, micro in divisions(layers, gpus, batch):
        file = scenario(f"{name}-dp{replicas}", model, gpus, batch)
        file["training"]["micro_batch"] = micro[0]
        file["parallelism"] = {"tp": degrees[0][0], "pp": degrees[0][1], "dp": replicas}
        file["search"] = {
            "axes": {"parallelism.tp": [t for t, _ in degrees], "parallelism.pp": [p for _, p in degrees],
                     "training.micro_batch": micro, "parallelism.pipeline": PIPELINES,
                     "training.recompute": RECOMPUTE, "parallelism.data_parallel": SHARDING,
                     "parallelism.sequence_parallel": [True, False]},
            "constraints": {"fixed": {"parallelism.dp": replicas}}}
        yield file["name"], file


def fitting_nothing(file):
    """The same space where nothing fits, so that nothing is simulated."""
    copy = json.loads(json.dumps(file))
    copy["search"]["constraints"]["memory"] = "1MiB"
    return copy


def variants(space, count):
    """A scenario of so many of the space, evenly spread."""
    name, model, layers, gpus, batch = space
    found = []
    for replicas, degrees, micro in divisions(layers, gpus, batch):
        for (tp, pp), size, pipeline, recompute, sharding, sequence in itertools.product(
                degrees, micro, PIPELINES, RECOMPUTE, SHARDING, (True, False)):
            chunks = pipeline.get("chunks_per_stage", 1)
            if (chunks > 1 and (pp == 1 or layers // pp % chunks or batch // replicas // size % pp)) or (
                    sequence and tp == 1) or (replicas == 1 and sharding != SHARDING[0]):
                continue
            found.append({"training": {"micro_batch": size, "recompute": recompute},
                          "parallelism": {"tp": tp, "pp": pp, "dp": replicas, "sequence_parallel": sequence,
                                          "pipeline": pipeline, "data_parallel": sharding}})
    found = found[:: len(found) // count][:count]
    file = scenario(f"{name}-{count}", model, gpus, batch)
    file["training"]["micro_batch"] = found[0]["training"]["micro_batch"]
    file["parallelism"] = {key: found[0]["parallelism"][key] for key in ("tp", "pp", "dp")}
    file["variants"] = [{"name": f"v{i}", "with": patch} for i, patch in enumerate(found)]
    return file


def write(folder, name, file):
    path = os.path.join(folder, f"{name}.json")
    with open(path, "w", encoding="utf-8") as out:
        json.dump(file, out)
    return path
