"""Scenarios of clusters that are large, or whose ranks are not alike, for whole_process.py."""

import json
import os


def clos(gpus):
    return {"kind": "clos", "levels": [
        {"name": "rack", "gpus": 16, "latency": "600ns"},
        {"name": "pod", "gpus": 4096, "oversubscription": 1, "latency": "900ns"},
        {"name": "spine", "gpus": max(gpus, 8192), "oversubscription": 7, "latency": "1.2us"}]}


def gpt3(gpus):
    """GPT-3 175B, tp 8 x pp 8, 16 micro-batches each."""
    data = gpus // 64
    return {"version": 1, "model": {"preset": "gpt3-175b"},
            "cluster": {"nodes": gpus // 8, "node": {"preset": "dgx-h100", "nic": {"rail": "none"}},
                        "fabric": clos(gpus)},
            "training": {"global_batch": data * 16, "micro_batch": 1, "sequence_length": 2048,
                         "precision": {"compute": "bf16", "gradients": "fp32", "master_weights": "fp32"},
                         "optimizer": {"type": "adam"}, "recompute": "full"},
            "parallelism": {"tp": 8, "pp": 8, "dp": data, "sequence_parallel": True,
                            "pipeline": {"schedule": "1f1b"},
                            "data_parallel": {"kind": "allreduce", "bucket_size": "160MB"}}}


def stragglers(count):
    """So many of 1,024 GPUs, each of its own speed, spread over replicas and stages."""
    scenario = gpt3(1024)
    scenario["perturbations"] = {"stragglers": [
        {"select": {"rank": (i * 37) % 1024}, "compute_slowdown": round(1.01 + 0.0005 * i, 4)}
        for i in range(count)]}
    return scenario


def uneven_experts(gpus):
    """DeepSeek-V3 whose ranks all hold experts of another load: 1,024 rank classes of 1,024 GPUs."""
    data = gpus // 16
    return {"version": 1, "model": {"preset": "deepseek-v3"},
            "cluster": {"nodes": gpus // 8, "node": {"preset": "dgx-h100"}},
            "training": {"global_batch": data * 32, "micro_batch": 1, "sequence_length": 4096,
                         "precision": {"compute": "bf16", "gradients": "fp32", "master_weights": "fp32"},
                         "optimizer": {"type": "adamw"}, "recompute": "full", "fused_attention": True},
            "parallelism": {"tp": 1, "pp": 16, "dp": data, "ep": min(64, data),
                            "pipeline": {"schedule": "1f1b", "layer_split": "balanced_with_embeddings"},
                            "expert_parallel": {"imbalance": 0.3},
                            "data_parallel": {"kind": "distributed_optimizer", "bucket_size": "512MB"}}}


def llama3_flows(gpus, radix, routing):
    """Llama 3 70B whose messages are flows under a 2:1 fat tree. A leaf of 64 down-links holds whole servers, one of
    42 parts of them, so that no two GPUs lie alike."""
    data = gpus // 32
    return {"version": 1, "model": {"preset": "llama3-70b"},
            "cluster": {"nodes": gpus // 8, "node": {"preset": "dgx-h100"},
                        "fabric": {"kind": "fat_tree", "tiers": 2, "radix": radix, "switch_latency": "150ns",
                                   "oversubscription": [2], "routing": routing}},
            "training": {"global_batch": data * 16, "micro_batch": 1, "sequence_length": 8192,
                         "precision": {"compute": "bf16", "gradients": "fp32", "master_weights": "fp32"},
                         "optimizer": {"type": "adamw"}, "recompute": "full"},
            "parallelism": {"tp": 8, "pp": 4, "dp": data, "sequence_parallel": True,
                            "pipeline": {"schedule": "1f1b"},
                            "data_parallel": {"kind": "allreduce", "bucket_size": "160MB"}},
            "simulation": {"fidelity": "flow"}}


def write_all(folder):
    """(file, options, runs): a run without folding takes minutes."""
    written = []
    for name, scenario, options, runs in (
            ("large-16384", gpt3(16384), [], 5),
            ("large-131072", gpt3(131072), [], 5),
            ("stragglers-16", stragglers(16), [], 5),
            ("uneven-experts-1024", uneven_experts(1024), [], 5),
            *((f"flows-{routing}-{gpus}", llama3_flows(gpus, radix, routing), [], 1)
              for gpus, radix in ((512, 64), (1024, 64), (4096, 256)) for routing in ("ecmp", "d_mod_k")),
            ("flows-whole-servers-4096", llama3_flows(4096, 96, "d_mod_k"), [], 5),
            ("unfolded-131072", gpt3(131072), ["--unfold"], 1)):
        path = os.path.join(folder, f"{name}.json")
        with open(path, "w", encoding="utf-8") as file:
            json.dump({**scenario, "name": name}, file)
        written.append((path, options, runs))
    return written
