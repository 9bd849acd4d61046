"""BLOOM's sweeps before its training: Megatron-DeepSpeed on Jean Zay, 8 A100 and 4 Omni-Path links a server.

ZeRO-1, 1F1B, full recomputation, fused softmax, nothing overlapped; gradients are fp32 where the record says so. Where
TFLOP/s alone are printed they count 96 B s l h^2 (1 + s/(6h) + V/(16 l h)) a step. Layouts of one network, batch, type
and number of GPUs are alternatives.
Messages are taken to reach .28 of the links' bandwidth. Three rows that differ in their batches alone (bloom-128 to
130: 59.65, 83.11 and 107.12 s with 64, 96 and 128 micro-batches) say what a step takes whatever its batch: .742 s for
each micro-batch and for each of 11 that fill the pipeline, and 3.9 s for gradients and parameters, 1.1 with .9 of the
bandwidth. The constant is of these rows; in others, too, the missing time grows with a rank's parameters (36 to 42 s in
two stages with one sample or two). Why it is so little is not known: NCCL has no transport of Omni-Path's own.
"""

from common import GIB, LeftOut, a100, even, gpt, metric, precision, record

FILE = "bloom_bigscience.json"
SOFTWARE = "megatron-deepspeed"
SOURCE = "bigscience-workshop/bigscience, notes on throughput of the 104B and 176B networks"
NIC = {"bandwidth": "100Gbps", "latency": "2us", "rail": "none", "efficiency": 0.28}


def seconds_of(row):
    time, rate = metric(row, "iteration_time"), metric(row, "hardware_tflops_per_gpu")
    if time is not None or not rate:
        return time
    model = row["model"]
    layers, hidden, length, vocab = (model[key] for key in ("layers", "hidden", "seq", "vocab"))
    work = 96 * row["batch"]["gbs"] * length * layers * hidden**2 * (
        1 + length / (6 * hidden) + vocab / (16 * layers * hidden))
    return work / (rate * 1e12 * row["hardware"]["num_gpus"])


def pipeline_of(layers, stages):
    pipeline = {"schedule": "1f1b", "overlap_p2p": False}
    if stages > 1 and layers % stages:
        if (layers + 2) % stages == 0:  # embedding and head count as layers
            each = (layers + 2) // stages
            pipeline["layer_split"] = [each - 1] + [each] * (stages - 2) + [each - 1]
        else:
            pipeline["layer_split"] = even(layers, stages)
    return pipeline


def convert(row):
    said, batch, gpus = row.get("parallelism") or {}, row.get("batch") or {}, row["hardware"].get("num_gpus")
    model = row["model"] if isinstance(row.get("model"), dict) else {}
    if "A100" not in row["hardware"].get("gpu", ""):
        raise LeftOut("V100")
    for key in ("layers", "hidden", "heads", "vocab", "seq"):
        if not model.get(key):
            raise LeftOut(f"does not state {key}")
    fits, seconds, memory = metric(row, "oom") != 1, seconds_of(row), metric(row, "gpu_memory_max")
    if fits and seconds is None and not memory:
        raise LeftOut("no time")
    compute = "bf16" if "bf16" in row["precision"] else "fp16"
    scenario = {
        "model": gpt(model, positional="none"), "cluster": a100(gpus, nics=4, nic=NIC),
        "training": {"global_batch": batch["gbs"], "micro_batch": batch["mbs"], "sequence_length": model["seq"],
                     "precision": precision(compute, "fp32" if "fp32" in row["precision"] else compute),
                     "optimizer": {"type": "adam"}, "recompute": "full"},
        "parallelism": {"tp": said["tp"], "pp": said["pp"], "dp": said["dp"], "tensor_parallel": {"overlap": "none"},
                        "pipeline": pipeline_of(model["layers"], said["pp"]),
                        "data_parallel": {"kind": "zero1" if said.get("zero") == 1 and said["dp"] > 1 else "allreduce",
                                          "bucket_size": "1GB", "overlap_backward": False}}}
    network = f"{model['layers']} layers of {model['hidden']}, {model['heads']} heads"
    return record(row["id"], scenario, seconds if fits else None,
                  (memory * 1e9 / GIB, "device") if memory and fits else None,
                  f"{network}, batch {batch['gbs']}, {row['precision']}, {gpus} GPUs", fits)
