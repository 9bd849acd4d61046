"""Lambda's runs of NVIDIA's PyTorch scripts on one server, and PaddlePaddle/Perf's of four frameworks on up to four.

Lambda's BERT is SQuAD with 384 tokens, in mixed precision with one kernel of Adam, else with BertAdam's operators, as
the scripts have it, under Apex (replicas.py); Paddle's is base, phase 1: 128 tokens, 20 predictions. Paddle's V100
servers have one NIC of 100 Gb/s. GPUs of 8 are on NVSwitch where their boards have it, else on PCIe; in Lambda's runs
messages go through the host's memory all the same, as their script says NCCL_P2P_DISABLE=1 (lambdal/
deeplearning-benchmark@0a684b62 pytorch/scripts/benchmark_pytorch.sh; other revisions do not, and which row is of which
is not stated: V100 and A100 are nearer by it, H100 hardly differs). SSD is SSD300 with ResNet-50 under torch.cuda.amp
and Apex's replicas (LambdaLabsML/DeepLearningExamples@45d3d4c2 PyTorch/Detection/SSD/main.py).
"""

from common import LeftOut, metric

from data_parallel.replicas import (ADAM, APEX_ADAM, BERT_ADAM, PADDED_WORDS, SGD, bert, boxes, dgx1v, network,
                                    one_gpu, rate, scenario, switched, with_apex, without_peers)
from data_parallel.sequences import TRANSFORMER_XL, transformer_xl

FILE = "lambda_paddle_dp.json"
SOURCE = "lambdal/deeplearning-benchmark and PaddlePaddle/Perf"
RTX_8000 = {"name": "quadro-rtx-8000", "memory": "48GiB", "memory_bandwidth": "672GB/s", "compute_capability": "7.5",
            "peak": {"fp32": "16.3TFLOP/s", "fp16": "130.5TFLOP/s"}, "l2": "6MiB", "multiprocessors": 72}
ADA_6000 = {"name": "rtx-6000-ada", "memory": "48GiB", "memory_bandwidth": "960GB/s", "compute_capability": "8.9",
            "peak": {"fp32": "91.1TFLOP/s", "tf32": "182.1TFLOP/s", "fp16": "364.2TFLOP/s", "bf16": "364.2TFLOP/s"},
            "l2": "96MiB", "multiprocessors": 142}
SSD = {"preset": "ssd300-resnet50"}
# SSD on GH200 prints one batch for both types, as no other row does: 480 images in fp32 keep 107 GiB of 95.
OF_MIXED = ("lam-0979",)
SWITCHED = {"A100 80GB SXM4": "dgx-a100-80gb", "H100 80GB SXM5": "dgx-h100", "B200 192GB SXM5": "dgx-b200",
            "B200 180GB SXM6": "dgx-b200"}
BOXED = {"RTX 4090": "rtx-4090", "A10": "a10", "A100 40GB PCIe": "a100-pcie-40gb", "A100 80GB PCIe": "a100-pcie-80gb",
         "H100 80GB PCIe Gen5": "h100-pcie-80gb", "H100 80GB PCIe": "h100-pcie-80gb", "Quadro RTX 8000": RTX_8000,
         "RTX 3090": "rtx-3090", "RTX A6000": "rtx-a6000", "RTX 6000 Ada": ADA_6000}
FRAMEWORKS = {"PaddlePaddle": "paddle", "MXNet": "mxnet", "MxNet": "mxnet", "TensorFlow": "tensorflow-1-horovod",
              "TensorFlow 1.x": "tensorflow-1-horovod", "PyTorch": "pytorch-ddp", "NGC PyTorch": "pytorch-ddp",
              "NGC TensorFlow 1.15": "tensorflow-1-horovod", "NGC MXNet": "mxnet"}


def of_lambda(row, gpus, batch, amp):
    gpu, name = row["hardware"]["gpu"], row["model"]["name"]
    squad = name.startswith("bert")
    if name == "gnmt":
        raise LeftOut("words of a sentence not stated, LSTMs in sequence")
    kind = "amp" if amp else "fp32" if gpu in ("V100 16GB", "Quadro RTX 8000") else "tf32"
    if gpu == "V100 16GB":
        machine = dgx1v(16, gpus)
    elif gpu == "GH200 96GB" and gpus == 1:
        machine = one_gpu("gh200-96gb")
    elif gpu in SWITCHED:
        machine = switched(SWITCHED[gpu], gpus)
    elif gpu in BOXED:
        machine = boxes(BOXED[gpu], gpus)
    else:
        raise LeftOut(f"no preset for {gpus} {gpu}")
    if gpus > 1:
        machine = without_peers(machine)
    if name in TRANSFORMER_XL:
        return transformer_xl(name, machine, batch, kind)
    if name == "ssd":
        return with_apex(scenario(SSD, machine, "pytorch-ddp", batch, kind, SGD))
    if not squad:
        return scenario(network(name), machine, "pytorch-ddp", batch, kind, SGD)
    model = bert("base" if "base" in name else "large", None)
    return with_apex(scenario(model, machine, "pytorch-ddp", batch, "apex" if amp else kind,
                              APEX_ADAM if amp else BERT_ADAM, sequence_length=384))


def of_paddle(row, gpus, batch, amp):
    hardware, name = row["hardware"], row["model"]["name"]
    volta, each = "V100" in hardware["gpu"], gpus // hardware["nodes"]
    machine = (dgx1v(32, each, hardware["nodes"], nics=1) if volta else
               switched("dgx-a100-40gb", each, hardware["nodes"]))
    said = row.get("framework") or "PyTorch"
    software = next((ours for theirs, ours in FRAMEWORKS.items() if theirs == said), "pytorch-ddp")
    kind = "amp" if amp else "fp32" if volta else "tf32"
    if "BERT" in name:
        words = PADDED_WORDS if said == "NGC PyTorch" else {}
        return scenario(bert("base", 20, **words), machine, software, batch, kind, ADAM, sequence_length=128,
                        predictions_per_sequence=20)
    return scenario(network(name.split()[0]), machine, software, batch, kind, SGD)


def convert(row):
    gpus, batch = row["hardware"]["num_gpus"], int(row["batch"]["per_gpu_batch"])
    amp, name = row["precision"].lower().startswith("amp"), row["model"]["name"]
    printed = metric(row, *(one["name"] for one in row["metrics"]))
    if row["id"] in OF_MIXED:
        raise LeftOut("the batch is that of mixed precision")
    if name in TRANSFORMER_XL:  # of tokens on GPUs that do not speak
        return rate(row["id"], of_lambda(row, 1, batch, amp), printed / (gpus * TRANSFORMER_XL[name][1]))
    return rate(row["id"], (of_lambda if row["id"].startswith("lam") else of_paddle)(row, gpus, batch, amp), printed)
