"""More papers: GPT with FlashAttention on 8 A100, DeepSeek-V3 on 2,048 H800, TeraPipe's GPipe on V100, Qwen3 on GB200.

FlashAttention: micro-batches are not stated: 4 from hidden size 2,048 on, 8 below; words are 50,257 and 7 more,
without dropout (Dao-AILab/flash-attention training/configs/experiment/pile/gpt3s-flash.yaml: pad_vocab_size_multiple
8, resid_pdrop 0). DeepSeek-V3: DualPipe, experts in two steps in fp8, norms and up-projections recomputed, moments in
bf16. TeraPipe: its GPipe rows, on servers with one 25 Gb/s NIC; slices of a sequence cannot be said. Qwen3: CUDA
graphs, as its guide has them.
"""

from common import LeftOut, NotMine, a100, blackwell, gpt, metric, precision, preset_cluster, record, servers
from networks import DEEPSEEK_V3, QWEN3_30B

FILE = ("papers.json", "papers2.json")
SOURCE = "Dao-AILab/flash-attention; arXiv:2412.19437; arXiv:2102.07988; A4X guide"


def of_flash_attention(row):
    sequences = {500000.0: 256, 1000000.0: 512}.get(row["batch"]["gbs_tokens"])
    if sequences is None:
        raise LeftOut("does not state gbs")
    training = {"global_batch": sequences, "micro_batch": 4 if row["model"]["hidden"] >= 2048 else 8,
                "sequence_length": 2048, "precision": precision("bf16", "bf16"), "optimizer": {"type": "adamw"},
                "recompute": "none", "fused_attention": "fa1", "execution": "fused"}
    model = gpt(row["model"], vocab=50264, dropout=False)
    scenario = {"software": "pytorch-ddp", "model": model, "cluster": a100(8), "training": training,
                "parallelism": {"dp": 8}}
    return record(row["id"], scenario, sequences * 2048 / metric(row, "tokens_per_s"))


def of_deepseek(row):
    training = {"global_batch": row["batch"]["gbs"], "micro_batch": 1, "sequence_length": 4096,
                "precision": {**precision("fp8", "fp32", "blockwise"), "optimizer_states": "bf16"},
                "optimizer": {"type": "adamw"},
                "recompute": {"modules": ["layernorm", "mla_up_proj"]}, "fused_attention": True}
    degrees = {"tp": 1, "pp": 16, "dp": 128, "ep": 64,
               "pipeline": {"schedule": "dualpipe", "layer_split": "balanced_with_embeddings"},
               "expert_parallel": {"dispatch": "hierarchical", "dispatch_dtype": "fp8"},
               "data_parallel": {"kind": "distributed_optimizer", "bucket_size": "512MB",
                                 "overlap_param_gather": False}}
    scenario = {"model": DEEPSEEK_V3, "cluster": preset_cluster("dgx-h100-superpod", "hgx-h800", 2048),
                "training": training, "parallelism": degrees}
    return record(row["id"], scenario, metric(row, "iteration_time_derived"))


def of_terapipe(row):
    said, batch, gpus = row["parallelism"], row["batch"], row["hardware"]["num_gpus"]
    if "TeraPipe" in row["schedule"]:
        raise LeftOut("slices of a sequence")
    node = {"preset": "dgx-1v", "nics": 1,
            "nic": {"bandwidth": "25Gbps", "latency": "10us", "rail": "none", "efficiency": 0.9}}
    training = {"global_batch": batch["gbs"], "micro_batch": max(1, batch["gbs"] // said["pipeline_slices"]),
                "sequence_length": 2048, "precision": precision("fp16", "fp16"), "optimizer": {"type": "adam"},
                "recompute": "none"}
    degrees = {"tp": said["tp"], "pp": said["pp"], "dp": said["dp"], "pipeline": {"schedule": "gpipe"},
               "tensor_parallel": {"overlap": "none"}}
    scenario = {"software": "megatron-lm-2021", "model": gpt(row["model"]),
                "cluster": {"nodes": servers(gpus)[0], "node": node}, "training": training, "parallelism": degrees}
    return record(row["id"], scenario, metric(row, "iteration_time"))


def of_a4x(row):
    training = {"global_batch": 512, "micro_batch": 4, "sequence_length": 4096, "precision": precision("fp8", "bf16"),
                "optimizer": {"type": "adamw"}, "recompute": "none", "launch_time": "0us"}
    scenario = {"software": "nemo", "model": QWEN3_30B, "cluster": blackwell(8, "gb200-nvl72"), "training": training,
                "parallelism": {"tp": 1, "pp": 1, "dp": 8, "ep": 8}}
    memory = metric(row, "peak_memory")
    return record(row["id"], scenario, metric(row, "iteration_time"), (memory, "device") if memory else None)


def convert(row):
    for prefix, made in (("fatt", of_flash_attention), ("dsv3", of_deepseek), ("tera", of_terapipe), ("a4x", of_a4x)):
        if row["id"].startswith(prefix):
            return made(row)
    for prefix, reason in (("mxt", "does not state gbs"), ("tog", "NVFP4")):
        if row["id"].startswith(prefix):
            raise LeftOut(reason)
    raise NotMine
