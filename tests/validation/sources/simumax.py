"""SimuMax's measurements of Megatron-LM on one server of 8 B200: networks of a few layers.

Distributed optimizer, fp32 gradients, sequence parallelism with tensor parallelism, all-gather context parallelism.
Rows of A100 PCIe were read off a chart, and are left out.
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
    "405": {"preset": "llama3-405b", "layers": 4},
    "70": {"preset": "llama3-70b", "layers": 12},
}


def network(name):
    key = "deepseek-v3" if "v3" in name else "deepseek-v2" if "v2" in name else "405" if "405" in name else "70"
    return NETWORKS[key]


def convert(row):
    if "PCIe" in row["hardware"]["gpu"]:
        raise LeftOut("read off a chart")
    said, batch = row["parallelism"], row["batch"]
    tp, pp, cp, ep = (said.get(key, 1) for key in ("tp", "pp", "cp", "ep"))
    dp = 8 // (tp * pp * cp)
    length = re.search(r"seq(\d+)", row.get("case") or "")
    degrees = {"tp": tp, "pp": pp, "cp": cp, "ep": ep, "dp": dp, "sequence_parallel": tp > 1,
               "data_parallel": {"kind": "distributed_optimizer" if dp * cp > 1 else "allreduce"}}
    if cp > 1:
        degrees["context_parallel"] = {"method": "all_gather"}
    scenario = {
        "model": network(row["model"]["name"]), "cluster": blackwell(8),
        "training": {"global_batch": batch["mbs"] * batch["micro_batches"] * dp, "micro_batch": batch["mbs"],
                     "sequence_length": int(length.group(1)) if length else 4096,
                     "precision": precision("bf16", "fp32"), "optimizer": {"type": "adamw"}, "fused_attention": True,
                     "gradient_clipping": True},
        "parallelism": degrees}
    memory = metric(row, "gpu_memory_alloc")
    return record(row["id"], scenario, metric(row, "iteration_time"), (memory, "allocated") if memory else None)
