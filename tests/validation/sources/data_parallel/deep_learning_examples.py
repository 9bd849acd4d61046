"""NVIDIA's DeepLearningExamples: ResNet-50 and BERT on servers of V100 and A100, a record per printed precision.

ResNet-50's batch where none is printed: 256 with mixed precision, else 128, the scripts' defaults. Accumulation not
printed: 1. SQuAD: 384 tokens; pre-training: 20 predictions of 128 tokens, 80 of 512. Products in fp32 on A100 are
TF32. TensorFlow and MXNet exchange gradients by Horovod, as the scripts do; TensorFlow's BERT behind the backward
pass, as its scripts turn XLA on (use_xla true in run_squad.sh, run_pretraining_lamb.sh, finetune_train_benchmark.sh),
whose cluster gives all gradients when it ends (issue 156 of the repository, tensorflow issue 29640), and those of
several micro-batches behind the last, in 16 bits in mixed precision (allreduce_post_accumulation and the compression
of optimization.py). BERT's scripts pre-train with LAMB; PyTorch's fine-tune with one kernel of Adam in mixed
precision, with BertAdam's operators else. Kernels of TensorFlow 1 are taken to be the plain operators all the same:
its single GPUs' times are those of their bytes. Mixed precision has a norm of one kernel there (fused_layer_norm).
Those of TensorFlow 2 are taken to run with XLA, in whose clusters norms, activations, dropout and the optimizer count
as one kernel each, but SQuAD without mixed precision, whose tokens take a third longer than those of pre-training on
the same GPU. Today's scripts of PyTorch and PaddlePaddle compute nothing for padding; how much there is of it is not
stated. It is left aside in sequences of 128 tokens; those of 512 are left out (V100 would do more than its peak).
Their predecessors of PyTorch, whose tables are in older revisions, compute logits of all tokens: BertPreTrainingHeads
of modeling.py (1d4211fe) has no choice of tokens; dense_sequence_output came with native mixed precision, as did
TorchScript, for pre-training alone; all else runs operator by operator on PyTorch of before 1.12 (containers of 2019
to 2021), in mixed precision with Apex's O2: with one micro-batch gradients travel in 16 bits, with more each
micro-batch's are converted and added (run_squad.py, run_pretraining.py at 0663b67c, 042e8724). Pre-training of those
whose scripts/run_pretraining.sh has allreduce_post_accumulation and its _fp16 exchanges all gradients at once, in 16
bits, after the last micro-batch (take_optimizer_step of run_pretraining.py, 042e8724). Images are stored channel by
channel, the frameworks' default, but with MXNet and PaddlePaddle in mixed precision, whose batch norms take in
additions and ReLUs (MxNet/Classification/RN50v1.5/runner at 1bd98ac3: --fuse-bn-relu 1 --fuse-bn-add-relu 1 where
dtype is float16; PaddlePaddle's create_strategy: fuse_bn_act_ops, fuse_bn_add_act_ops). Other networks are those of
sequences.py and recommenders.py.
"""

import re

from common import LeftOut

from data_parallel.recommenders import ROWS as RECOMMENDERS
from data_parallel.replicas import (ADAM, ADAMW, APEX_ADAM, APEX_LAMB, BERT_ADAM, LAMB, PADDED_WORDS, SGD,
                                    after_accumulation, bert, dgx1v, rate, scenario, switched, with_apex)
from data_parallel.sequences import ROWS as SEQUENCES

FILE = "deep_learning_examples.json"
SOURCE = "NVIDIA/DeepLearningExamples, READMEs (Apache-2.0 and BSD-3)"
FRAMEWORKS = {"MxNet": "mxnet", "TensorFlow": "tensorflow-1", "TensorFlow2": "tensorflow-1", "PaddlePaddle": "paddle",
              "PyTorch": "pytorch-ddp"}
OTHERS = {**RECOMMENDERS, **SEQUENCES}
# Revisions whose scripts/run_pretraining.sh is taken to say allreduce_post_accumulation, as beside 042e8724 it does.
REDUCED_AT_THE_END = ("3d3ff3e1", "88864b92")


def numbers(text):
    return [int(digits) for digits in re.findall(r"\d+", str(text or ""))]


def cell(batch, *words):
    """The first cell whose heading begins with, or holds, one of the words."""
    return next((text for key, text in batch.items() if any(word in key.lower() for word in words)), None)


def machine_of(row, title):
    """(cluster, GPU) of a row. With several servers some tables print all GPUs, some those of a server."""
    hardware, said = row["hardware"], row["hardware"].get("system", "")
    headed = "DGX 1" if "DGX-1" in title else ""
    system = said or headed
    gpu = hardware.get("gpu") or ("V100" if system.startswith(("DGX 1", "DGX 2")) else None)
    gpus, nodes = hardware.get("num_gpus") or row["parallelism"].get("dp"), hardware.get("nodes") or 1
    if not gpu or not gpus:
        raise LeftOut("GPU or their number not stated")
    of_server = 16 if system.startswith(("DGX 2", "DGX2")) else 8
    each = gpus if gpus <= of_server else gpus // nodes
    memory = hardware.get("mem_gb") or (32 if "32G" in title else 16)
    if gpu == "A100":
        return switched(f"dgx-a100-{memory}gb", each, nodes), gpu
    if gpu != "V100" or each > 16:
        raise LeftOut(f"no preset for {each} {gpu}")
    if of_server == 16 or each == 16:
        return switched("dgx-2", each, nodes), gpu
    return dgx1v(memory, each, nodes), gpu


def image_training(row, kind, machine, software):
    printed = numbers(cell(row["batch"], "batch"))
    batch = printed[0] if len(printed) == 1 else 256 if kind == "amp" else 128
    turned = kind == "amp" and row["model"]["name"].startswith(("MxNet", "Paddle"))
    layout = {"batch_norm": "fused"} if turned else {"image_layout": "nchw"}
    return scenario({"preset": "resnet50"}, machine, software, batch, kind, SGD, **layout)


def language_training(row, kind, machine, software, title):
    cells = row["batch"]
    column = 0 if kind == "amp" else 1
    if "tf32 and" in " ".join(cells).lower() or "fp32 and" in " ".join(cells).lower():
        column = 1 - column
    printed = numbers(next((text for key, text in cells.items() if "batch" in key.lower() and
                            (f"({kind.upper()})" in key or "(FP16)" in key) == (kind == "amp")), cell(cells, "batch")))
    printed = printed or numbers(cell(cells, "batch"))
    if not printed:
        raise LeftOut("no batch per GPU")
    batch = printed[column] if len(printed) > column else printed[0]
    steps = numbers(cell(cells, "gradient accumulation", "accumulation steps"))
    accumulated = (steps[column] if len(steps) > column else steps[0]) if steps else 1
    if batch > 1024 and accumulated > 1:  # of all micro-batches of a step
        batch //= accumulated
    tuned = any(word in title for word in ("SQuAD", "squad", "Fine-tuning", "fine-tuning"))
    if any(word in title.lower() for word in ("glue", "mrpc", "sst", " ner ")):
        raise LeftOut("length of sequences not stated")
    lengths = numbers(cell(cells, "sequence length", "seq length"))
    if not lengths and not tuned:
        raise LeftOut("length of sequences not stated")
    length = lengths[0] if lengths else 384
    predictions = None if tuned else 20 if length == 128 else 80
    if predictions == 80 and software in ("pytorch-ddp", "paddle") and row["source"]["rev"] == "HEAD":
        raise LeftOut("padding removed, tokens not stated")
    size = "base" if "base" in title.lower() or "base" in str(cells).lower() else "large"
    whole = software == "pytorch-ddp" and row["source"]["rev"] != "HEAD"
    said = {"predictions_per_sequence": predictions} if predictions and not whole else {}
    optimizer = LAMB if predictions else ADAMW if software.startswith("tensorflow") else ADAM
    if software == "pytorch-ddp" and not predictions and kind != "amp":
        optimizer = BERT_ADAM
    if software == "pytorch-ddp" and (tuned or row["source"]["rev"] != "HEAD"):
        software = "pytorch-ddp-2020"
    if software == "pytorch-ddp-2020" and kind == "amp":
        if accumulated == 1:
            kind = "apex"
            optimizer = APEX_ADAM if optimizer == ADAM else APEX_LAMB
        else:
            said["gradient_accumulation"] = "converted"
    words = {} if software.startswith("tensorflow") else PADDED_WORDS
    described = scenario(bert(size, predictions, **words), machine, software, batch, kind, optimizer, accumulated,
                         sequence_length=length, **said)
    if software == "pytorch-ddp-2020":
        ends = predictions and row["source"]["rev"] in REDUCED_AT_THE_END
        return after_accumulation(described) if ends else with_apex(described)
    return described


def under_horovod(described, kind):
    """With gradients that leave XLA's cluster together, behind the backward pass; those accumulated in 16 bits."""
    training, degrees = described["training"], described["parallelism"]
    if degrees["dp"] == 1:
        return
    message = {"overlap_backward": False}
    if kind == "amp" and training["global_batch"] > training["micro_batch"] * degrees["dp"]:
        message["compression"] = {"kind": "fp16"}
    degrees["data_parallel"] = message


def as_run(described, name, kind):
    """The scenario with what XLA fuses (TensorFlow 2), and with the scripts' own norm of 16 bits (TensorFlow 1)."""
    training = described["training"]
    if name.startswith("TensorFlow"):
        under_horovod(described, kind)
    plain = kind != "amp" and training["sequence_length"] == 384
    if name.startswith("TensorFlow2") and not plain:
        training.update(norm="kernel", activation="kernel", dropout="kernel", bias="product")
        training["optimizer"] = {**training["optimizer"], "accesses": 0, "launches": 0}
    elif name.startswith("TensorFlow/") and kind == "amp":
        training["norm"] = "kernel"
    return described


def of_other(row, made, title):
    """Records of networks that have a converter of their own: of each printed precision one."""
    machine, gpu = machine_of(row, title)
    records = []
    for column, value in row["raw"].items():
        kind = precision_of(column, gpu)
        if kind and value != "N/A":
            records.append(rate(f"{row['id']} {kind}", made(row, kind, machine, title), printed_rate(value)))
    if not records:
        raise LeftOut("no throughput of plain training")
    return records


def precision_of(column, gpu):
    """What a column of throughputs says, else nothing."""
    said = column.lower()
    if "throughput" not in said or "speedup" in said:
        return None
    if "bf16" in said:
        return "bf16"
    return "amp" if "mixed" in said else "tf32" if gpu == "A100" else "fp32"


def printed_rate(text):
    """Units a second of a cell: 59,961 or 22.59M."""
    digits = text.replace(",", "").strip()
    return float(digits[:-1]) * 1e6 if digits.endswith("M") else float(digits)


def convert(row):
    name, title = row["model"]["name"], " ".join(row["source"]["headings"])
    if name in OTHERS:
        return of_other(row, OTHERS[name], title)
    known = name.lower() + str(row["batch"].get("Model", "")).lower()
    images = ("rn50" in known or "resnet50" in known) and "resnext" not in known
    if not images and "languagemodeling/bert" not in known or "biobert" in known:
        raise LeftOut("no network file for " + name.split("/", 1)[-1])
    machine, gpu = machine_of(row, title)
    framework = FRAMEWORKS.get(name.split("/")[0], "pytorch-ddp")
    if framework in ("tensorflow-1", "mxnet") and machine["nodes"] * machine["node"]["gpus"] > 1:
        framework = "tensorflow-1-horovod" if framework == "tensorflow-1" else "horovod"
    values = {one.get("precision"): one["value"] for one in row["metrics"]}
    if values.get("FP32", 0) > 1.01 * values.get("mixed", float("inf")):
        raise LeftOut("fp32 faster than mixed precision: columns swapped")
    records = []
    for index, one in enumerate(row["metrics"]):
        kind = {"mixed": "amp", "FP32": "tf32" if gpu == "A100" else "fp32", "TF32": "tf32"}.get(one.get("precision"))
        if not kind or "XLA" in one.get("column", "") or one["value"] < 1:
            continue
        described = (image_training(row, kind, machine, framework) if images else
                     as_run(language_training(row, kind, machine, framework, title), name, kind))
        again = any(record["id"] == f"{row['id']} {kind}" for record in records)
        records.append(rate(f"{row['id']} {kind}" + f" {index}" * (index > 1 or again), described, one["value"]))
    if not records:
        raise LeftOut("no throughput of plain training")
    return records
