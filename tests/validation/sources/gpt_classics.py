"""Transformers of older benchmarks: NeuSight's eager steps in fp32, and GPT on 32 V100 of DLPerf.

NeuSight times forward and backward alone, and the optimizer cannot be left out: plain SGD, the least that there is,
stands for it. DLPerf: DGX-1V with one 100 Gb/s NIC, fp16, full recomputation, gradients reduced after the backward
pass, for Megatron-LM and OneFlow alike.
"""

from common import LeftOut, metric, precision, record
from data_parallel.replicas import boxes, dgx1v, one_gpu, switched

FILE = ("neusight_models.json", "dlperf.json")
SOURCE = "sitar-lab/NeuSight, measured labels; Oneflow-Inc/DLPerf, GPT"
GPUS = {"NVIDIA_A100-SXM4-40GB": "a100-sxm4-40gb", "NVIDIA_H100_80GB_HBM3": "h100-sxm5-80gb",
        "NVIDIA_A100-PCIE-40GB": "a100-pcie-40gb", "NVIDIA_A100_80GB_PCIe": "a100-pcie-80gb", "NVIDIA_L4": "l4",
        "Tesla_T4": "t4", "Tesla_V100-PCIE-16GB": "v100-pcie-16gb",
        "Tesla_V100-PCIE-32GB": {"name": "v100-pcie-32gb", "memory": "32GiB", "memory_bandwidth": "900GB/s",
                                 "compute_capability": "7.0", "peak": {"fp32": "14TFLOP/s", "fp16": "112TFLOP/s"},
                                 "l2": "6MiB", "multiprocessors": 80},
        "Tesla_P100-PCIE-16GB": {"name": "p100-pcie-16gb", "memory": "16GiB", "memory_bandwidth": "732GB/s",
                                 "compute_capability": "6.0", "peak": {"fp32": "9.3TFLOP/s", "fp16": "18.7TFLOP/s"},
                                 "l2": "4MiB", "multiprocessors": 56},
        "Tesla_P4": {"name": "p4", "memory": "8GB", "memory_bandwidth": "192GB/s", "compute_capability": "6.1",
                     "peak": {"fp32": "5.5TFLOP/s"}, "l2": "2MiB", "multiprocessors": 20}}
SERVERS = {"NVIDIA_A100-SXM4-40GB": "dgx-a100-40gb", "NVIDIA_H100_80GB_HBM3": "dgx-h100"}


def machine(gpu, gpus):
    if gpu.startswith("AMD"):
        raise LeftOut("AMD: no law of a kernel of theirs")
    if gpu not in GPUS:
        raise LeftOut(f"{gpu} is not described")
    if gpus == 1:
        return one_gpu(GPUS[gpu])
    return switched(SERVERS[gpu], gpus) if gpu in SERVERS else boxes(GPUS[gpu], gpus)


def neusight(row):
    model, said, batch = row["model"], row["parallelism"], row["batch"]
    if "inference" in row["mode"]:
        raise LeftOut("inference")
    if model["name"].startswith("switch"):
        raise LeftOut("Switch Transformer: experts in an encoder-decoder")
    network = {"layers": model["layers"], "hidden": model["hidden"], "heads": model["heads"], "vocab": model["vocab"],
               "positional": "learned", "max_positions": model["seq"], "tied_embeddings": True,
               **({"ffn": "relu"} if model["name"].startswith("opt") else {})}
    if model["name"] == "bert_large":
        network = {"preset": "bert-large", "encoder": {"masked_lm": True, "next_sentence": True}}
    pieces = said.get("num_microbatches") or 1
    degrees = {key: said[key] for key in ("dp", "tp", "pp")}
    if said["pp"] > 1:
        degrees["pipeline"] = {"schedule": "1f1b" if pieces == 1 else "gpipe"}
    training = {"global_batch": batch["gbs"], "micro_batch": batch["gbs"] // said["dp"] // pieces,
                "sequence_length": model["seq"], "precision": {"compute": "fp32"}, "optimizer": {"type": "sgd"}}
    scenario = {"software": "pytorch-ddp", "model": network,
                "cluster": machine(row["hardware"]["gpu"], row["hardware"]["num_gpus"]), "training": training,
                "parallelism": degrees}
    return record(row["id"], scenario, metric(row, "e2e_latency") / 1000)


def dlperf(row):
    model, said, batch = row["model"], row["parallelism"], row["batch"]
    gpus = said["dp"] * said["tp"] * said["pp"]
    cluster = dgx1v(16, min(8, gpus), max(1, gpus // 8), **({"nics": 1} if gpus > 8 else {}))
    training = {"global_batch": batch["gbs"], "micro_batch": batch["mbs"], "sequence_length": model["seq"],
                "precision": precision("fp16", "fp16"), "optimizer": {"type": "adam"}, "recompute": "full"}
    network = {key: model[key] for key in ("layers", "hidden", "heads", "vocab")}
    scenario = {"software": "megatron-lm-2021", "model": {**network, "max_positions": model["seq"]}, "cluster": cluster,
                "training": training, "parallelism": {key: said[key] for key in ("dp", "tp", "pp")}}
    return record(row["id"], scenario, batch["gbs"] / metric(row, "samples_per_s"),
                  group=f"{model['name']} on {gpus} GPUs, batch {batch['gbs']}, {row['framework']}")


def convert(row):
    return dlperf(row) if row["id"].startswith("dlperf") else neusight(row)
