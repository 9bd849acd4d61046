"""Sailor's validation: Megatron-DeepSpeed on servers of 4 GH200 with 4 x 200 Gb/s Slingshot, fp16.

The cuts of stages are printed, and count embedding and head. Scores are stored, nothing is recomputed, fp16 gradients
are reduced after the last backward pass. Machines other than the GH200 are not described here.
Its engine prints what nvidia-smi says is used, what is reserved and what is allocated (deepspeed/pipe_engine.py); the
data do not say which of them a peak is. Peaks lie four to seven GiB above what tensors take, whatever the samples, so
they are taken for the first.
Inside a server messages are taken to go through the host's memory, by slots as an H100 has them, as if each rank saw
its own GPU alone: two rows of eight samples (sailor-14, sailor-20) decided that; over NVLink they take a third of what
was measured, and the others tell how good it is. Nothing in the source says it.
"""

from common import GIB, LeftOut, gpt, metric, precision, record, servers

FILE = "sailor_validation.json"
SOFTWARE = "megatron-deepspeed"
SOURCE = "eth-easl/sailor, validation data of SOSP 2025"


def machine(gpus):
    count, each = servers(gpus, 4)
    return {"nodes": count, "node": {
        "gpu": "gh200-96gb", "gpus": each, "nics": each,
        "intra": {"kind": "none", "bandwidth_per_gpu": "50GB/s", "latency": "1.1us"},
        "nic": {"bandwidth": "200Gbps", "latency": "2us", "rail": "gpu", "efficiency": 0.9},
        "host": {"launch_factor": 2.6}}}


def stage_layers(printed, layers, stages):
    split = [len(indices) for indices in printed]
    if sum(split) != layers + 2 or len(split) != stages:
        raise LeftOut("the printed stages do not add up to the layers")
    if stages > 1:
        split[0] -= 1
        split[-1] -= 1
    return split


def convert(row):
    said, batch, model, gpus = row["parallelism"], row["batch"], row["model"], row["hardware"]["num_gpus"]
    if not row["hardware"]["gpu"].startswith("GH"):
        raise LeftOut("links of this machine not stated")
    split = stage_layers(said["layers_per_stage"], model["layers"], said["pp"])
    degrees = {"tp": said["tp"], "pp": said["pp"], "dp": said["dp"], "tensor_parallel": {"overlap": "none"},
               "data_parallel": {"kind": "allreduce", "overlap_backward": False}}
    if said["pp"] > 1:
        degrees["pipeline"] = {"schedule": "1f1b", "layer_split": split, "overlap_p2p": False}
    training = {"global_batch": batch["gbs"], "micro_batch": batch["mbs"], "sequence_length": model["seq"],
                "precision": precision("fp16", "fp16"), "optimizer": {"type": "adam"}, "recompute": "none"}
    memory = metric(row, "max_peak_memory_per_gpu")
    return record(row["id"], {"model": gpt(model), "cluster": machine(gpus), "training": training,
                              "parallelism": degrees},
                  metric(row, "iteration_time"), (memory / GIB, "device") if memory else None,
                  f"{model['name']} on {gpus} GPUs, batch {batch['gbs']}")
