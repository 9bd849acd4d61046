"""Megatron-Bridge's performance summary: dense networks and experts on H100, B200 and GB200.

Recomputation is the least of the recipe's or more that fits. Recipes (recompute_modules): DeepSeek-V3 the expansion of
latent attention, GPT-OSS norms and the activations of experts, but none in MXFP8; Nemotron 3 Nano on H100 attention,
norms and all of the experts (nemotronh/nemotron_3_workload_base_configs.py); the others none. More: norms, those
and the MLP or the activations of experts, all; with FSDP activations of a quarter of the layers, half and so on go to
the host before any (cpu_offloading_num_layers: 20 or 40 of 80). Tensor parallelism of dense networks is chunked. Tokens
of experts go once to each server and rank (DeepEP, HybridEP) where recipes say so (moe_flex_dispatcher_backend): on
racks since release 26.02 but for GPT-OSS in bf16; elsewhere but for GPT-OSS and Qwen3 235B. Exchanges hide under
the other pass of 1F1B (moe_a2a_overlap) for Qwen3 235B on H100 since release 26.02, and for DeepSeek-V3 in MXFP8 on
racks in recipes after release 26.04; earlier ones do not say it. Gradients are bf16 (grad_reduce_in_fp32 is off in
every set_*_common_configs). CUDA graphs changed with releases, are not known by row, and not assumed. Moments of
DeepSeek-V3 are bf16, and where it is trained, or anything in bf16, master weights are remainders
(use_precision_aware_optimizer in recipes/deepseek/deepseek_v3.py and utils/helpers.py). The loss is
Transformer Engine's since release 25.11 (utils/helpers.py, cross_entropy_fusion_impl). GPT-OSS's rotary embeddings have
YaRN's magnitudes, which the fused kernel has not: operators (Megatron-Core's apply_rotary_pos_emb,
gpt_oss_provider.py). Fine-tuning is of packed samples of SQuAD, adapters stand beside linear_qkv
(llama/llama3_llm_finetune.py).
Source: NVIDIA-NeMo/Megatron-Bridge@0a0cb290, @0fa501ac, @01b2977e, @07eea52d and @04264182,
scripts/performance/configs.
"""

from common import SQUAD_SAMPLE, LeftOut, blackwell, h100, lora, metric, precision, record, tokens_seconds
from networks import cut, has_experts, layers_of, named

FILE = "megatron_bridge_perf.json"
SOFTWARE = "nemo"
SOURCE = "NVIDIA-NeMo/Megatron-Bridge, docs/performance-summary.md"
RACKS = {"DGX-GB200": "gb200-nvl72", "DGX-GB300": "gb300-nvl72"}


def release_of(row):
    """"25.11 NeMo Container"; an early one where the row does not say."""
    return row.get("source", {}).get("release", "")


def reason_to_leave_out(row):
    name = row["model"]["name"]
    if "Nemotron" in name and "Nano" not in name:
        return "experts of a narrower stream than the layers'"
    if "DeepSeekV4" in name:
        return "DeepSeek-V4: sparse attention"
    return "NVFP4" if "FP4" in row["precision"].upper() else None


def cluster_of(profile, gpus):
    if profile == "DGX-H100":
        return h100(gpus)
    if profile in RACKS:
        return blackwell(gpus, RACKS[profile])
    if profile in ("DGX-B200", "DGX-B300"):
        return blackwell(gpus, profile.lower())
    raise LeftOut(f"{profile} is not described")


def pipeline_of(network, pp, chunks):
    if pp == 1:
        return {}
    pipeline = {"schedule": "1f1b"}
    if chunks > 1:
        pipeline = {"schedule": "interleaved_1f1b", "chunks_per_stage": chunks}
    layers = layers_of(network)
    if layers < pp * chunks:
        raise LeftOut("virtual stages without layers")
    if layers % (pp * chunks):
        pipeline["layer_split"] = cut(layers, pp, chunks)
    return {"pipeline": pipeline}


def shares_ways(row):
    name, on_rack = row["model"]["name"], row["hardware"]["profile"] in RACKS
    if on_rack and release_of(row) < "26.02":
        return False
    if "GPT OSS" in name:
        return on_rack and "MX" in row["precision"]
    return on_rack or "Qwen3_235B" not in name


def experts_of(row, said):
    degrees = {"etp": said.get("etp") or 1}
    if "tokendrop" in row["model"]["name"]:
        degrees["expert_parallel"] = {"capacity_factor": 1}
    elif shares_ways(row):
        degrees["expert_parallel"] = {"dispatch": "hierarchical"}
    return degrees


def recomputations(row, network):
    """From the least: the recipe's, then more."""
    name = row["model"]["name"]
    parts = ["layernorm", "moe_act" if has_experts(network) else "mlp"]
    choices = ["none", {"modules": parts[:1]}, {"modules": parts}, "full"]
    if "deepseek" in name:
        latent = ["mla_up_proj"]
        return [{"modules": latent + more} for more in ([], parts[:1], parts)] + choices[-1:]
    if "Nemotron" in name and row["hardware"]["profile"] == "DGX-H100":
        return [{"modules": ["core_attn", "layernorm", "moe"]}, "full"]
    return choices[2:] if "GPT OSS" in name and "MX" not in row["precision"] else choices


def overlaps_passes(row):
    name, profile = row["model"]["name"], row["hardware"]["profile"]
    if "deepseek" in name:
        return release_of(row) >= "26.06" and profile in RACKS and "MX" in row["precision"]
    return release_of(row) >= "26.02" and "Qwen3_235B" in name and profile == "DGX-H100"


def degrees_of(row, network):
    said, gpus = row["parallelism"], row["hardware"]["num_gpus"]
    tp, pp, cp, ep, chunks = (said.get(key) or 1 for key in ("tp", "pp", "cp", "ep", "vp"))
    if gpus % (tp * pp * cp):
        raise LeftOut("the printed layout does not divide the GPUs")
    if gpus // pp % (ep * (said.get("etp") or 1)):
        raise LeftOut("the printed expert parallelism does not divide the GPUs of a stage")
    degrees = {"tp": tp, "pp": pp, "cp": cp, "ep": ep, "dp": gpus // (tp * pp * cp), "sequence_parallel": tp > 1,
               "data_parallel": {"kind": "fsdp" if said.get("fsdp") else "distributed_optimizer"},
               **pipeline_of(network, pp, chunks)}
    if has_experts(network):
        if overlaps_passes(row):
            degrees["pipeline"]["overlap_passes"] = True
        degrees.update(experts_of(row, said))
        degrees["tensor_parallel"] = {"overlap": "none"}
    return degrees


def number_types(row, network):
    """With FusedAdam that is aware of precision: DeepSeek-V3, and whatever is in bf16."""
    kind = row["precision"].upper()
    types = precision("fp8" if "FP8" in kind else "bf16", "bf16", "mxfp8" if "MX" in kind else "current")
    is_deepseek = network.get("preset") == "deepseek-v3"
    if is_deepseek:
        types["optimizer_states"] = "bf16"
    if is_deepseek or "FP8" not in kind:
        types["master_weights"] = "remainder"
    return types


def convert(row):
    reason = reason_to_leave_out(row)
    network = named(row["model"]["name"].replace("llama3.1", "llama3").replace("-", "_"))
    if reason or network is None:
        raise LeftOut(reason or "the network is not described")
    batch = row["batch"]
    scenarios = []
    choices = [(recompute, {}) for recompute in recomputations(row, network)]
    if row["parallelism"].get("fsdp"):
        choices[1:1] = [("none", {"offload": {"activations": "cpu", "fraction": part}}) for part in (.25, .5, .75, 1)]
    tuning = {"loss": "in_place"} if release_of(row) >= "25.11" else {}
    if "GPT OSS" in row["model"]["name"]:
        tuning["rotary"] = "operators"
    if "SFT" in row.get("task", "") or "LoRA" in row.get("task", ""):
        tuning["document_length"] = SQUAD_SAMPLE
    if "LoRA" in row.get("task", ""):
        tuning["finetune"] = lora(16, "linear_qkv")
    for recompute, offload in choices:
        scenarios.append({
            "model": network, "cluster": cluster_of(row["hardware"]["profile"], row["hardware"]["num_gpus"]),
            "training": {"global_batch": batch["gbs"], "micro_batch": batch["mbs"],
                         "sequence_length": row["model"]["seq"], "optimizer": {"type": "adamw"},
                         "precision": number_types(row, network),
                         "recompute": recompute, **offload, **tuning},
            "parallelism": degrees_of(row, network)})
    return record(row["id"], scenarios, metric(row, "iteration_time_derived", "iteration_time") or tokens_seconds(row))
