"""What the converters of plain data-parallel training share: its machines, its networks and its recipe."""

from common import LeftOut, record

VOLTA, TURING, AMPERE = "v100", "turing", "ampere"
SGD, ADAM = {"type": "sgd", "momentum": True}, {"type": "adam"}
ADAMW, LAMB = {"type": "adamw"}, {"type": "lamb"}
# BertAdam of NVIDIA/DeepLearningExamples' PyTorch/LanguageModeling/BERT/optimization.py: 19 operators on each array, of
# .27 of a launch (docs/software.md), after run_squad.py has read the norm of all gradients.
BERT_ADAM = {"type": "adamw", "accesses": 32, "launches": 5.1, "waits": True}
# Apex's O2: gradients of 16 bits are unscaled into those of fp32, and weights cast back, each by a kernel beside the
# optimizer's, after the host has read whether they are finite (apex/amp: _process_optimizer.py, scaler.py).
APEX_ADAM = {"type": "adam", "accesses": 10, "launches": 0.1, "waits": True}
APEX_LAMB = {"type": "lamb", "accesses": 15, "launches": 0.1, "waits": True}
QUADRO = {"name": "quadro-rtx-6000", "memory": "24GiB", "memory_bandwidth": "672GB/s", "compute_capability": "7.5",
          "peak": {"fp32": "16.3TFLOP/s", "fp16": "130.5TFLOP/s"}, "l2": "6MiB", "multiprocessors": 72}
PASCAL_PCIE = {"name": "p100-pcie-16gb", "memory": "16GiB", "memory_bandwidth": "732GB/s", "compute_capability": "6.0",
               "peak": {"fp32": "9.3TFLOP/s", "fp16": "18.7TFLOP/s"}, "l2": "4MiB", "multiprocessors": 56}
# NVLinks of two generations of DGX-1: (GPU, GPU): links.
CUBE_V100 = {(0, 1): 1, (0, 2): 1, (0, 3): 2, (0, 4): 2, (1, 2): 2, (1, 3): 1, (1, 5): 2, (2, 3): 2, (2, 6): 1,
             (3, 7): 1, (4, 5): 1, (4, 6): 1, (4, 7): 2, (5, 6): 2, (5, 7): 1, (6, 7): 2}
CUBE_P100 = {pair: 1 for pair in ((0, 1), (0, 2), (0, 3), (1, 2), (1, 3), (2, 3), (4, 5), (4, 6), (4, 7), (5, 6),
                                  (5, 7), (6, 7), (0, 4), (1, 5), (2, 6), (3, 7))}


def cluster(node, nodes):
    result = {"nodes": nodes, "node": node}
    if nodes > 1:
        result["fabric"] = {"kind": "single_switch", "switch_latency": "300ns"}
    return result


def one_gpu(gpu):
    return cluster({"gpu": gpu, "gpus": 1, "intra": {"kind": "nvswitch", "bandwidth_per_gpu": "20GB/s",
                                                     "latency": "1.5us"}, "nics": 0}, 1)


def cube(preset, gpu, links, gpus, nodes, **changes):
    """A DGX-1, or a part of one."""
    if gpus == 1 and nodes == 1:
        return one_gpu(gpu)
    node = {"preset": preset, "gpus": gpus, **changes}
    if gpus < 8:
        mesh = [{"a": a, "b": b, "links": count} for (a, b), count in links.items() if b < gpus]
        node.update(intra={"mesh": mesh}, host={"sockets": 1})
    if nodes == 1:
        node["nics"] = 0
    return cluster(node, nodes)


def dgx1v(memory, gpus, nodes=1, **changes):
    return cube("dgx-1v" if memory == 16 else "dgx-1v-32gb", f"v100-sxm2-{memory}gb", CUBE_V100, gpus, nodes, **changes)


def dgx1p(gpus):
    return cube("dgx-1p", "p100-sxm2-16gb", CUBE_P100, gpus, 1)


def switched(preset, gpus, nodes=1):
    """Part of a server whose GPUs share a switch."""
    node = {"preset": preset, "gpus": gpus}
    if nodes == 1:
        node["nics"] = 0
    return cluster(node, nodes)


def boxes(gpu, gpus, nodes=1, nic="50Gbps"):
    """Servers of GPUs on PCIe with one NIC, as fast as their slots."""
    node = {"gpu": gpu, "gpus": gpus, "intra": {"kind": "pcie", "latency": "2us"}, "nics": int(nodes > 1)}
    if isinstance(gpu, dict):
        node["intra"]["bandwidth_per_gpu"] = "12GB/s"
    if nodes > 1:
        node["nic"] = {"bandwidth": nic, "latency": "1.5us", "efficiency": 0.9, "rail": "none"}
    return cluster(node, nodes)


# -------------------------------------------------------------------------------------------------------------

NETWORKS = {"resnet50": "resnet50", "resnet101": "resnet101", "resnet152": "resnet152", "vgg16": "vgg16",
            "inceptionv3": "inception-v3", "alexnet": "alexnet", "resnet18 cifar10": "cifar-resnet18"}


def network(name):
    """A network of images by the names that sources use."""
    plain = name.lower().replace("-", "").replace("_", "").split(" imagenet")[0].strip()
    if plain not in NETWORKS:
        raise LeftOut(f"no network file for {name}")
    return {"preset": NETWORKS[plain]}


# NVIDIA's scripts for PyTorch and PaddlePaddle have rows of 8 words (DeepLearningExamples@a5388a45
# PaddlePaddle/LanguageModeling/BERT/program.py, build; PyTorch/LanguageModeling/BERT/run_pretraining.py,
# prepare_model_and_optimizer).
PADDED_WORDS = {"vocab": 30528}


def bert(size, predictions, **changes):
    """Without predictions: SQuAD, whose two classes per token the pooler and its two classes stand for."""
    return {"preset": f"bert-{size}", **({} if predictions else {"encoder": {"masked_lm": False}}), **changes}


def precision(kind):
    """amp: fp16 products, fp32 weights and gradients; apex: gradients of 16 bits; else a type of its own."""
    if kind not in ("amp", "apex"):
        return {"compute": kind}
    return {"compute": "fp16", "gradients": "fp32" if kind == "amp" else "fp16", "master_weights": "fp32"}


def with_apex(described):
    """With Apex's replicas: a message is 10 million numbers (message_size), which no bucket holds beside them."""
    if described["parallelism"]["dp"] > 1:
        kept = described["training"]["precision"].get("gradients") == "fp16"
        described["parallelism"]["data_parallel"] = {"gradient_as_bucket_view": True,
                                                     "bucket_size": "20MB" if kept else "40MB",
                                                     "first_bucket_size": "20MB" if kept else "40MB"}
    return described


def after_accumulation(described):
    """With one all-reduce of all gradients, in 16 bits, when the last micro-batch is done: two casts beside it."""
    if described["parallelism"]["dp"] > 1:
        message = {"overlap_backward": False, "gradient_as_bucket_view": True, "bucket_size": "4GB",
                   "first_bucket_size": "4GB"}
        training = described["training"]
        if training["precision"].get("gradients") == "fp16":
            optimizer = training["optimizer"]
            training["optimizer"] = {**optimizer, "accesses": optimizer["accesses"] + 3}
        else:
            message["compression"] = {"kind": "fp16"}
        described["parallelism"]["data_parallel"] = message
    return described


def without_peers(machine):
    """GPUs whose messages go through the host's memory (NCCL_P2P_DISABLE=1)."""
    machine["node"]["intra"] = {"kind": "none", "latency": "2us"}
    return machine


def scenario(model, machine, software, of_gpu, kind, optimizer, accumulated=1, **training):
    """of_gpu: samples of a GPU and micro-batch."""
    gpus = sum(machine.get("gpus_used", [machine["node"]["gpus"]] * machine["nodes"]))
    if "sequence_length" in training:  # BERT's scripts all clip
        training["gradient_clipping"] = True
    return {"software": software, "model": model, "cluster": machine,
            "training": {"global_batch": of_gpu * gpus * accumulated, "micro_batch": of_gpu,
                         "precision": precision(kind), "optimizer": optimizer, **training},
            "parallelism": {"dp": gpus}}


def rate(name, described, per_second):
    """A record of the measured samples/s of a scenario."""
    return record(name, described, described["training"]["global_batch"] / per_second)
