"""Tables of papers: SC21 table 2 (ZeRO-3 against Megatron-LM), MegaScale's baseline and its steps away from it, Llama 3
405B, Nemotron-4 15B, Llama with Megatron-LM in fp8.

SC21: full recomputation; chunks of its interleaved pipeline are the least number above 1 that divides. MegaScale: A100
with 8 x 200 Gb/s, micro-batch 1, selective recomputation; each step (table 3) has those before it. The size of its
windows is not stated: full attention, 1 to 2 % of a step more; chunks of tensor parallelism are Transformer Engine's;
efficient operators are FlashAttention-2; of the other optimizations nothing is said that could be counted. Llama 3:
FSDP without resharding, 4 chunks of two layers, the first and the last of one; a step is 6 N + 6 l h s FLOPs a token.
"""

from common import LeftOut, NotMine, a100, gpt, h100, megatron_2021, metric, nemo, nemo_model, precision, record

FILE = "papers.json"
SOURCE = "arXiv:2104.04473, arXiv:2402.15627, arXiv:2407.21783, arXiv:2402.16819, NVIDIA/Megatron-LM"
MEGASCALE_STEPS = ("parallel transformer block", "sliding window attention", "TP overlap", "PP overlap", "DP overlap",
                   "efficient operators", "misc optimizations", "LAMB")
PEAK = {"H100": 989e12, "A100": 312e12}


def of_sc21(row):
    model, said, batch, gpus = row["model"], row["parallelism"], row["batch"], row["hardware"]["num_gpus"]
    training = {"global_batch": batch["gbs"], "micro_batch": batch["mbs"], "sequence_length": model["seq"]}
    of_stage = model["layers"] // said["pp"]
    chunks = next((v for v in range(2, of_stage + 1) if of_stage % v == 0), 1) if said["pp"] > 1 else 1
    scenario = megatron_2021(gpt(model), a100(gpus), training, said["tp"], said["pp"], said["dp"], chunks)
    scenario["software"] = "megatron-lm-2021"
    if said.get("zero_stage") == 3:
        scenario["software"] = "deepspeed"
        scenario["parallelism"] = {"tp": said["tp"], "pp": said["pp"], "dp": said["dp"],
                                   "data_parallel": {"kind": "zero3"}}
    return scenario


def of_megascale(row):
    model, said, gpus, words = row["model"], row["parallelism"], row["hardware"]["num_gpus"], row["schedule"]
    step = next((at for at, head in enumerate(MEGASCALE_STEPS) if words.startswith("+" + head)), -1)
    if step < 0 and "Megatron-LM" not in words:
        raise LeftOut("MegaScale as a whole: windows of a size that is not stated")
    has = {head: at <= step for at, head in enumerate(MEGASCALE_STEPS)}
    training = {"global_batch": row["batch"]["gbs"], "micro_batch": 1, "sequence_length": model["seq"],
                "precision": precision("bf16", "fp32"), "optimizer": {"type": "lamb" if has["LAMB"] else "adam"},
                "recompute": "selective", "gradient_accumulation": "product"}
    if has["efficient operators"]:
        training.update(fused_attention="fa2", recompute="none")
    degrees = {"tp": said["tp"], "pp": said["pp"], "dp": said["dp"], "sequence_parallel": True,
               "pipeline": {"schedule": "interleaved_1f1b", "chunks_per_stage": said["vp"]},
               "data_parallel": {"kind": "distributed_optimizer", "bucket_size": "160MB"}}
    if has["TP overlap"]:
        degrees["tensor_parallel"] = {"overlap": "chunked"}
    if has["PP overlap"]:
        degrees["pipeline"]["overlap_p2p"] = True
    if has["DP overlap"]:
        degrees["data_parallel"].update(overlap_backward=True, overlap_param_gather=True)
    network = gpt(model, blocks="parallel_one_norm") if has["parallel transformer block"] else gpt(model)
    return {"software": "megatron-lm-2021", "model": network, "cluster": a100(gpus), "training": training,
            "parallelism": degrees}


def of_llama3(row):
    model, said = row["model"], row["parallelism"]
    degrees = {"tp": 8, "pp": 16, "dp": said["dp"], "cp": said["cp"], "rank_order": "tp-cp-pp-dp",
               "sequence_parallel": True,
               "pipeline": {"schedule": "interleaved_1f1b", "chunks_per_stage": 4, "layer_split": [1] + [2] * 62 + [1]},
               "data_parallel": {"kind": "fsdp", "reshard_after_forward": False, "reduce_every_microbatch": False}}
    if said["cp"] > 1:
        degrees["context_parallel"] = {"method": "all_gather"}
    return {"model": nemo_model({**model, "act": "swiglu"}), "cluster": h100(row["hardware"]["num_gpus"]),
            "training": {"global_batch": row["batch"]["gbs"], "micro_batch": 1, "sequence_length": model["seq"],
                         "precision": precision("bf16", "fp32"), "optimizer": {"type": "adamw"}, "recompute": "none",
                         "fused_attention": True},
            "parallelism": degrees}


def of_nemo(row, fp8, chunked):
    scenario = nemo(row, nemo_model({"act": "swiglu", **row["model"]}), h100(row["hardware"]["num_gpus"]), fp8,
                    chunked=chunked)
    return {"software": "nemo", **scenario}


def seconds_of(row):
    time, rate, share = (metric(row, *names) for names in (("iteration_time", "iteration_time_derived"),
                                                           ("tflops_per_gpu",), ("mfu",)))
    if time:
        return time
    model, gpus = row["model"], row["hardware"]["num_gpus"]
    layers, hidden, length = model["layers"], model["hidden"], model["seq"]
    kv_share = (model.get("kv_heads") or model["heads"]) / model["heads"]
    matrices = 3 if model.get("act") in ("swiglu", "geglu") or model["name"].startswith("llama") else 2
    parameters = layers * (hidden**2 * (2 + 2 * kv_share) + matrices * hidden * model["ffn"]) + hidden * model["vocab"]
    work = row["batch"]["gbs"] * length * (6 * parameters + 6 * layers * hidden * length)
    peak = PEAK["H100" if "H100" in row["hardware"].get("profile", "") else "A100"]
    return work / gpus / (rate * 1e12 if rate else share / 100 * peak)


def convert(row):
    name = row["id"]
    if name.startswith("sc21t2"):
        scenario = of_sc21(row)
    elif name.startswith("megascale"):
        scenario = of_megascale(row)
    elif name.startswith("llama3-t4"):
        scenario = of_llama3(row)
    elif name.startswith("nemotron4"):
        scenario = of_nemo({**row, "parallelism": {**row["parallelism"], "sp": True}}, False, False)
    elif name.startswith("mlm-llama"):
        scenario = of_nemo(row, True, True)
    elif name.startswith("korth-t4"):
        raise LeftOut("times of one layer")
    else:
        raise NotMine
    return record(name, scenario, seconds_of(row))
