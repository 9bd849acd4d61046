"""torchtitan: FSDP2, tensor, context and pipeline parallelism, fp8, on A100, H100 and H200.

fp32 master weights and gradients, gradient clipping; layers compiled where the record says so (the loss not in December
2024); PyTorch's attention of that time ran FlashAttention-2. The H100 of these tables have 96 GB at 2.4 TB/s and 500 W.
Attention read a key and a value for every query head (repeat_kv, torchtitan/models/llama/model.py at 6d74b81c and
0199cbc1), and an RMSNorm not compiled ran by operators on an fp32 copy (torchtitan/models/norms.py at 026e23a9).
"Async" tensor parallelism is chunked, the other not overlapped. A pipeline has as many micro-batches as stages.
"""

from common import a100, even, h100, llama, metric, precision, preset_cluster, record

FILE = "torchtitan.json"
SOURCE = "pytorch/torchtitan, benchmarks and docs/performance.md"
H100_96 = {"preset": "h100-sxm5-80gb", "memory": "94GiB", "memory_bandwidth": "2400GB/s",
           "power": {"limit": "500W"}}
OTHER_GPU = {"calibration": "h100-sxm5-80gb", "calibration_of_other_gpu": True}


def cluster_of(gpu, gpus):
    if gpu.startswith("H100"):
        return {**h100(gpus, gpu=H100_96), **OTHER_GPU}
    if gpu.startswith("H200"):
        return {**preset_cluster("dgx-h100-superpod", "dgx-h200", gpus), **OTHER_GPU}
    return a100(gpus)


def recompute_of(said):
    if said in ("full", "none"):
        return said
    return {"method": "every", "layers": 2} if "layer" in said else "selective_op"


def degrees_of(row, technique):
    said, gpus = row["parallelism"], row["hardware"]["num_gpus"]
    tp, pp, cp = (said.get(key, 1) for key in ("tp", "pp", "cp"))
    degrees = {"tp": tp, "pp": pp, "cp": cp, "dp": gpus // (tp * pp * cp), "data_parallel": {"kind": "fsdp"}}
    if cp > 1:
        degrees["context_parallel"] = {"method": "all_gather"}
    if tp > 1:
        degrees["sequence_parallel"] = True
        degrees["tensor_parallel"] = {"overlap": "chunked" if "async" in technique else "none"}
    if pp > 1:
        chunks = 2 if "Interleaved" in row.get("schedule", "") else 1
        degrees["data_parallel"]["reduce_every_microbatch"] = False  # PipelineStage: in the last backward only
        degrees["pipeline"] = {"schedule": "interleaved_1f1b" if chunks > 1 else "1f1b", "chunks_per_stage": chunks,
                               "layer_split": even(row["model"]["layers"], pp * chunks)}
    return degrees


def convert(row):
    batch, model, gpus = row["batch"], row["model"], row["hardware"]["num_gpus"]
    path, technique = row["source"].get("path", ""), (row.get("technique") or "").lower()
    compiled = "performance.md" in path or any(word in technique for word in ("compile", "asynctp", "float8"))
    degrees = degrees_of(row, technique)
    training = {"global_batch": batch["gbs"], "micro_batch": batch.get("mbs") or batch["local_batch"] // degrees["pp"],
                "sequence_length": model["seq"], "optimizer": {"type": "adamw"}, "fused_attention": "fa2",
                "precision": precision("fp8" if "fp8" in row["precision"] else "bf16", "fp32",
                                       "rowwise" if "rowwise" in row["precision"] else "current"),
                "recompute": recompute_of(row["recompute"]), "execution": "compiled" if compiled else "eager",
                "gradient_clipping": True, "key_value_heads": "repeated"}
    if not compiled:
        training["norm"] = "operators"
    if compiled and "202412" in path:
        training["loss"] = "eager"
    scenario = {"model": llama(model), "cluster": cluster_of(row["hardware"]["gpu"], gpus), "training": training,
                "parallelism": degrees, "software": "torchtitan-compiled" if compiled else "torchtitan"}
    rate, memory = metric(row, "tokens_per_s_per_gpu"), metric(row, "gpu_memory")
    return record(row["id"], scenario, batch["gbs"] * model["seq"] / (rate * gpus) if rate else None,
                  (memory, "reserved") if memory else None)
