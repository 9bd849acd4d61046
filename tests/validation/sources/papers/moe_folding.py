"""MoE Parallel Folding: experts with Megatron-Core on DGX H100, tables 2 to 5.

Micro-batch 1, nothing recomputed, interleaved 1F1B, distributed optimizer with overlapped gathers, all-to-all, ring
context parallelism: none of it is printed. Chunks are of one layer, as in NeMo's recipe for Mixtral 8x22B (14 for each
of 4 stages: NVIDIA/NeMo@00138e21 nemo/collections/llm/recipes/mixtral_8x22b.py). "Token-drop, capacity factor 1" is a
capacity factor of 1. It is of April 2025: Megatron-Core before 0.13, Transformer Engine before 2.3.
"""

from common import LeftOut, NotMine, h100, llama, metric, nemo_pipeline, precision, record

FILE = "papers2.json"
SOFTWARE = "nemo"
SOURCE = "arXiv:2504.14960, tables 2 to 5"


def network(model):
    moe = {"experts": model["experts"], "top_k": model["topk"], "expert_ffn_hidden": model["moe_ffn"]}
    if model.get("shared"):
        moe["shared_experts"] = model["shared"]
    return {**llama({**model, "ffn": model["moe_ffn"]}), "head_dim": model["head_dim"], "moe": moe}


def convert(row):
    if not row["id"].startswith("mpf"):
        raise NotMine
    said, batch, model, gpus = row["parallelism"], row["batch"], row["model"], row["hardware"]["num_gpus"]
    seconds = metric(row, "iteration_time_derived")
    if seconds is None:
        raise LeftOut("no time")
    tp, pp, cp, ep = (said.get(key) or 1 for key in ("tp", "pp", "cp", "ep"))
    sharded = said.get("zero_stage") == 3
    degrees = {"tp": tp, "pp": pp, "cp": cp, "ep": ep, "dp": gpus // (tp * pp * cp), "sequence_parallel": tp > 1,
               "data_parallel": {"kind": "fsdp", "reduce_dtype": "fp32"} if sharded else {
                   "kind": "distributed_optimizer"},
               "tensor_parallel": {"overlap": "none"},
               "pipeline": nemo_pipeline(model["layers"], pp, model["layers"] // pp)}
    if said.get("etp"):
        degrees["etp"] = said["etp"]
    if "capacity factor 1" in row["schedule"] or "token-drop" in row["schedule"]:
        degrees["expert_parallel"] = {"capacity_factor": 1}
    training = {"global_batch": batch["gbs"], "micro_batch": batch.get("mbs", 1), "sequence_length": model["seq"],
                "precision": precision("fp8" if row["precision"] == "fp8" else "bf16", "fp32"),
                "optimizer": {"type": "adamw"}, "recompute": "none", "gradient_placeholders": "dropped",
                "expert_weights": "combination"}
    scenario = {"model": network(model), "cluster": h100(gpus), "training": training, "parallelism": degrees}
    return record(row["id"], scenario, seconds, group=f"{model['name']} on {gpus} GPUs, batch {batch['gbs']}")
