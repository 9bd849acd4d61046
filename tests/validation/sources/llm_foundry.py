"""llm-foundry: MPT networks on PyTorch FSDP, A100 (1600 Gb/s a server) and H100 (3200 Gb/s).

ALiBi, no biases, tied embeddings, Triton's flash attention (the table is of May 2023), eager PyTorch with a fused loss;
gradients reduced in bf16 where the mixed precision is PURE, else in fp32. PyTorch of that month ran layers again whole:
it stops early since 2.1 of October 2023.
"""

from common import a100, gpt, h100, metric, precision, record

FILE = "llm_foundry.json"
SOFTWARE = "llm-foundry"
SOURCE = "mosaicml/llm-foundry, scripts/train/benchmarking/README.md (Apache-2.0)"


def convert(row):
    model, batch, gpus = row["model"], row["batch"], row["hardware"]["num_gpus"]
    gpu = row["hardware"]["gpu"]
    shards = {"kind": "fsdp", "reduce_dtype": "bf16" if row["parallelism"]["mp_mode"] == "PURE" else "fp32"}
    if row["parallelism"]["fsdp"] == "SHARD_GRAD_OP":
        shards["reshard_after_forward"] = False
    scenario = {
        "model": gpt(model, positional="none", biases=False, dropout=False),
        "cluster": h100(gpus) if gpu.startswith("h100") else a100(gpus, f"dgx-a100-{'80' if '80' in gpu else '40'}gb"),
        "training": {"global_batch": int(batch["gbs"]), "micro_batch": int(batch["mbs"]),
                     "sequence_length": model["seq"], "optimizer": {"type": "adamw"}, "recompute": row["recompute"],
                     "precision": precision("fp8" if "fp8" in row["precision"] else "bf16", "bf16"),
                     "fused_attention": "triton", "execution": "eager", "loss": "compiled", "gradient_clipping": True},
        "parallelism": {"dp": gpus, "data_parallel": shards}}
    if row["recompute"] == "full":
        scenario["training"]["recompute_stops_early"] = False
    rate = metric(row, "tokens_per_s_per_gpu")
    return record(row["id"], scenario, batch["gbs"] * model["seq"] / (rate * gpus))
