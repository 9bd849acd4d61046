"""SimuMax's measurements of Megatron-LM on one server of 8 B200 or A100 PCIe: networks of a few layers.

Their scripts (simu_tools/megatron_scripts) say the flags: the distributed optimizer, fp32 gradients, sequence
parallelism, all-to-alls between the heads of context-parallel ranks, experts that take their even share of rows,
cross-entropy in compiled kernels where a case ends in _cef (it keeps fp32 logits, and peaks agree), 16 heads of keys
and values in Llama 3 405B (the published network has 8), and the versions: on A100 Megatron-Core 0.12 and Transformer
Engine 2.1, on B200 a commit of 2026 and 2.11. Rows of A100 PCIe give TFLOP/s, read off a chart, of 6 FLOPs a parameter
and token and of causal attention.
"""

import re

from common import LeftOut, blackwell, metric, precision, record

FILE = "simumax_real.json"
SOFTWARE = "megatron-core"
SOURCE = "MooreThreads/SimuMax, docs/b200"
NETWORKS = {
    "deepseek-v3": {"preset": "deepseek-v3", "layers": 4, "moe": {"first_dense": 1}},
    "deepseek-v2": {"preset": "deepseek-v3", "layers": 4, "hidden": 5120, "ffn_hidden": 12288, "vocab": 102400,
                    "moe": {"experts": 160, "top_k": 6, "expert_ffn_hidden": 1536, "shared_experts": 2,
                            "first_dense": 1}},
    "405": {"preset": "llama3-405b", "layers": 4, "kv_heads": 16},
    "70": {"preset": "llama3-70b", "layers": 12},
}


def network(name):
    key = "deepseek-v3" if "v3" in name else "deepseek-v2" if "v2" in name else "405" if "405" in name else "70"
    return NETWORKS[key]


def chart_seconds(row, length, sequences):
    """Of 12 layers of Llama 3 70B, the only network of that chart."""
    rate = metric(row, "tflops_per_gpu_chart_read")
    if "70" not in row["model"]["name"] or not rate:
        raise LeftOut("no time")
    hidden, key_value, ffn, vocab, layers = 8192, 1024, 28672, 128256, 12
    parameters = layers * (2 * hidden * (hidden + key_value) + 3 * hidden * ffn) + vocab * hidden
    return (6 * parameters + 6 * layers * length * hidden) * length * sequences / (8 * rate * 1e12)


def convert(row):
    said, batch = row["parallelism"], row["batch"]
    tp, pp, cp, ep = (said.get(key, 1) for key in ("tp", "pp", "cp", "ep"))
    dp = 8 // (tp * pp * cp)
    found, is_pcie = re.search(r"seq(\d+)", row.get("case") or ""), "PCIe" in row["hardware"]["gpu"]
    length, sequences = int(found.group(1)) if found else 4096, batch["mbs"] * batch["micro_batches"] * dp
    degrees = {"tp": tp, "pp": pp, "cp": cp, "ep": ep, "dp": dp, "sequence_parallel": tp > 1,
               "data_parallel": {"kind": "distributed_optimizer" if dp * cp > 1 else "allreduce"}}
    if cp > 1:
        degrees["context_parallel"] = {"method": "ulysses"}
    model = network(row["model"]["name"])
    if "moe" in model:
        degrees["expert_parallel"] = {"capacity_factor": 1}
    training = {"global_batch": sequences, "micro_batch": batch["mbs"], "sequence_length": length,
                "precision": precision("bf16", "fp32"), "optimizer": {"type": "adamw"}, "fused_attention": True,
                "gradient_clipping": True}
    if is_pcie:
        training["gradient_placeholders"] = "dropped"
        if "moe" in model:
            training["expert_weights"] = "combination"
    if (row.get("case") or "").endswith("_cef"):
        training["loss"] = "compiled"
    scenario = {
        "model": model,
        "cluster": {"nodes": 1, "node": "pcie-8xa100"} if is_pcie else blackwell(8),
        "training": training,
        "parallelism": degrees}
    memory = metric(row, "gpu_memory_alloc")
    seconds = chart_seconds(row, length, sequences) if is_pcie else metric(row, "iteration_time")
    return record(row["id"], scenario, seconds, (memory, "allocated") if memory else None)
