"""What the converters beside this file share: machines, networks, recipes, and the record that they write.

A converter is a module with FILE (the name of what it reads, or several), SOURCE, SOFTWARE where one ran all of it, and
convert(row): a record of docs/proof.md, a list of them, or LeftOut. A row is an entry of a JSON file's "records", or a
line of a CSV file as a dict of texts.
"""

GIB = 2**30


class LeftOut(Exception):
    """Why no scenario says what was measured."""


class NotMine(Exception):
    """The row of a file that several converters read belongs to another."""


def record(name, scenario, seconds=None, memory=None, group=None, fits=True):
    """
    memory: (GiB, "allocated" | "reserved" | "device"), with 0 behind them if it is that of rank 0; scenario: one, or a
    list of which the fastest counts.
    """
    metrics = []
    if seconds is not None:
        metrics.append({"name": "step_time", "value": seconds, "unit": "s"})
    if memory is not None:
        metrics.append({"name": f"{memory[1]}_memory", "value": memory[0], "unit": "GiB"})
        if len(memory) > 2:
            metrics[-1]["rank"] = memory[2]
    result = {"id": name, "scenario": scenario, "metrics": metrics}
    if group is not None:
        result["group"] = group
    if not fits:
        result["outcome"] = "out of memory"
    return result


def metric(row, *names):
    """The first of the named metrics that is a number, or None."""
    for name in names:
        for one in row.get("metrics", []):
            if one.get("name") == name and isinstance(one["value"], (int, float)):
                return one["value"]
    return None


def tokens_seconds(row):
    """Seconds of a step whose row states tokens/s of a GPU, or None."""
    rate = metric(row, "tokens_per_s_per_gpu")
    if not rate:
        return None
    return row["batch"]["gbs"] * row["model"]["seq"] / (rate * row["hardware"]["num_gpus"])


def even(layers, stages):
    return [layers // stages + (stage < layers % stages) for stage in range(stages)]


# -------------------------------------------------------------------------------------------------------------
# Machines. What the program ships is named; what it does not is written with datasheet values.


def servers(gpus, per=8):
    """(servers, GPUs of each) of a job: part of a server where it is smaller than one."""
    return (1, gpus) if gpus < per else (-(-gpus // per), per)


def preset_cluster(cluster, node, gpus, **changes):
    count, each = servers(gpus)
    of_node = {"preset": node, **changes}
    if each < 8:
        of_node.update(gpus=each, nics=each)
    return {"preset": cluster, "nodes": count, "node": of_node}


def a100(gpus, node="dgx-a100-80gb", **changes):
    return preset_cluster("selene", node, gpus, **changes)


def h100(gpus, **changes):
    return preset_cluster("dgx-h100-superpod", "dgx-h100", gpus, **changes)


def h200(gpus):
    return preset_cluster("dgx-h100-superpod", "dgx-h200", gpus)


def blackwell(gpus, kind="dgx-b200"):
    """Servers of 8 GPUs, or racks of which a job takes as many of the 72 GPUs as divide it."""
    each = 8 if kind.startswith("dgx") else max(size for size in range(1, 73) if gpus % size == 0)
    count, each = servers(gpus, each)
    return {"nodes": count, "node": {"preset": kind, "gpus": each, "nics": each},
            "fabric": {"kind": "fat_tree", "tiers": 3, "radix": 64, "switch_latency": "150ns"}}


# -------------------------------------------------------------------------------------------------------------
# Networks.


def llama(model, **changes):
    return {"layers": model["layers"], "hidden": model["hidden"], "heads": model["heads"],
            "kv_heads": model.get("kv_heads") or model["heads"], "ffn_hidden": model["ffn"], "ffn": "swiglu",
            "vocab": model["vocab"], "positional": "rope", "norm": "rms_norm", "biases": False, "dropout": False,
            "tied_embeddings": False, **changes}


def gpt(model, **changes):
    return {"layers": model["layers"], "hidden": model["hidden"], "heads": model["heads"],
            "kv_heads": model.get("kv_heads") or model["heads"],
            "ffn_hidden": model.get("ffn") or 4 * model["hidden"], "ffn": "gelu", "vocab": model.get("vocab") or 51200,
            "positional": "learned", "norm": "layer_norm", "biases": True, "dropout": True, "tied_embeddings": True,
            **changes}


def nemo_model(model):
    """A network of NeMo or Megatron-Core."""
    known = {"swiglu": "swiglu", "geglu": "geglu", "gelu": "gelu", "squared-relu": "squared_relu"}
    activation = known[model.get("act") or "gelu"]
    if activation == "gelu":
        return gpt(model)
    return llama(model, ffn=activation, norm="layer_norm" if activation == "squared_relu" else "rms_norm")


# -------------------------------------------------------------------------------------------------------------
# Recipes.


def precision(compute, gradients=None, recipe=None):
    states = {"compute": compute, "master_weights": "fp32"}
    if compute == "fp8" and recipe:
        states["fp8_recipe"] = recipe
    return {**states, "gradients": gradients} if gradients else states


def nemo_pipeline(layers, pp, chunks):
    schedule = {"schedule": "1f1b", "overlap_p2p": pp == 1}
    if pp > 1 and chunks > 1:
        schedule = {"schedule": "interleaved_1f1b", "chunks_per_stage": chunks, "overlap_p2p": True}
    if layers % (pp * chunks):
        schedule["layer_split"] = even(layers, pp * chunks)
    return schedule


def nemo(row, model, cluster, fp8, recompute="none", chunked=True, chunks=None, micro_batch=None,
         gradients="bf16"):
    """NeMo on Megatron-Core and Transformer Engine: fused attention, a distributed optimizer, overlapped sends,
    tensor parallelism with sequence parallelism in chunks (userbuffers), ring context parallelism. Gradients are kept
    and reduced in bf16, as its recipes for performance do (NVIDIA/NeMo@8cfedd72
    nemo/collections/llm/recipes/llama3_70b.py:246)."""
    said, batch, gpus = row["parallelism"], row["batch"], row["hardware"]["num_gpus"]
    tp, pp, cp, ep = (said.get(key) or 1 for key in ("tp", "pp", "cp", "ep"))
    sequence_parallel = tp > 1 and bool(said.get("sp", True))
    dp = gpus // (tp * pp * cp)
    fsdp = said.get("fsdp") or 0
    data = {"kind": "distributed_optimizer", "bucket_size": "160MB"}
    if fsdp:
        data = {"kind": "fsdp"} if fsdp >= dp else {"kind": "hsdp", "shard_size": fsdp}
    degrees = {"tp": tp, "pp": pp, "dp": dp, "sequence_parallel": sequence_parallel, "data_parallel": data,
               "pipeline": nemo_pipeline(model["layers"], pp, chunks or said.get("vp") or 1)}
    if cp > 1:
        degrees.update(cp=cp, rank_order="tp-cp-dp-pp", context_parallel={"method": "ring"})
    if ep > 1:
        degrees["ep"] = ep
    if said.get("etp"):
        degrees["etp"] = said["etp"]
    if sequence_parallel:
        degrees["tensor_parallel"] = {"overlap": "chunked" if chunked else "weight_gradient"}
    training = {"global_batch": batch["gbs"], "micro_batch": micro_batch or batch.get("mbs") or 1,
                "sequence_length": row["model"]["seq"], "precision": precision("fp8" if fp8 else "bf16", gradients),
                "optimizer": {"type": "adamw"}, "recompute": recompute, "fused_attention": True}
    return {"model": model, "cluster": cluster, "training": training, "parallelism": degrees}


# Tokens of a sample of SQuAD, which NeMo packs: 117 words of a paragraph, 11 of a question, 3 of an answer, 1.3 tokens
# each and the template (Rajpurkar et al. 2016). Of 128 or 512 steps would differ by 1 %.
SQUAD_SAMPLE = 180


def lora(rank, *targets, **more):
    """Adapters beside frozen weights, which no distributed optimizer is for in NeMo."""
    return {"kind": "lora", "rank": rank, "targets": list(targets), **more}


def megatron_2021(model, cluster, training, tp, pp, dp, chunks=1):
    """Megatron-LM of 2021: fp16, full recomputation, blocking sends, no overlap of any reduction."""
    return {"model": model, "cluster": cluster,
            "training": {"precision": precision("fp16", "fp16"), "optimizer": {"type": "adam"}, "recompute": "full",
                         **training},
            "parallelism": {"tp": tp, "pp": pp, "dp": dp, "tensor_parallel": {"overlap": "none"},
                            "data_parallel": {"overlap_backward": False},
                            "pipeline": {"schedule": "interleaved_1f1b" if chunks > 1 else "1f1b",
                                         "chunks_per_stage": chunks, "overlap_p2p": False}}}
