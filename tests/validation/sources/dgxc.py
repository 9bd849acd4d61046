"""NVIDIA DGX Cloud Benchmarking: NeMo on H100 and GB200.

JAX (Paxml, MaxText) compiles, and shards parameters over all ranks, as its tables say: torchtitan's compiled layers
stand for it. With FSDP layers are recomputed (MaxText's remat_policy save_qkv_proj, Paxml's SAVE_QKV_OUT_PROJ, which
keep some products: taken as whole layers but for what nothing reads). Paxml's GPT 5B keeps its products (SAVE_DOT_ONLY)
and runs attention and norms again (paxml/paxml_mod_configs.py, maxtext/configure.sh @35a9aecc), and drops nothing
(google/paxml, paxml/tasks/lm/model_params.py: DROPOUT_PROB = 0.0). Llama 4 Maverick has
experts in every second layer and a shared one (model card). A rack of GB200 is one server.
LoRA is of linear_qkv alone, of rank 16 (70B) and 8 (8B), with packed sequences of one micro-batch and without a
distributed optimizer. Source: NVIDIA/NeMo, nemo/collections/llm/recipes/llama3_70b.py and llama3_8b.py
(finetune_recipe, finetune_performance_optimizations: SQuAD).
"""

from common import SQUAD_SAMPLE, LeftOut, blackwell, h100, lora, metric, nemo, nemo_model, precision, record

FILE = "dgxc_benchmarking.json"
SOFTWARE = "nemo"
SOURCE = "NVIDIA/dgxc-benchmarking, README of each workload"


def reason_to_leave_out(row):
    model, said = row["model"], row["parallelism"]
    error = row["check_tokens_per_s_rel_err"]
    if "mamba_layers" in model:
        return "the order of its Mamba layers is not stated"
    if error is not None and error > 0.02:
        return "the printed row contradicts itself"
    if model["name"] == "gpt3-175b" and said["tp"] * said["pp"] == 1:
        return "175B on one GPU: the layout is incomplete"
    return None if row["batch"].get("mbs") or row.get("peft") == "LoRA" else "no micro-batch"


def network(model):
    if model["name"].startswith("deepseek"):
        return {"preset": "deepseek-v3", "layers": 61}
    result = nemo_model(model)
    if "experts" in model:
        result["moe"] = {"experts": model["experts"], "top_k": model["topk"]}
        if model["name"].startswith("llama4"):
            result["moe"].update(every=2, shared_experts=1, expert_ffn_hidden=8192, shared_ffn_hidden=8192)
    return result


def convert(row):
    reason = reason_to_leave_out(row)
    if reason:
        raise LeftOut(reason)
    said, gpus = row["parallelism"], row["hardware"]["num_gpus"]
    cluster = h100(gpus) if row["hardware"]["profile"] == "DGX-H100" else blackwell(gpus, "gb200-nvl72")
    scenario = nemo(row, network(row["model"]), cluster, row["precision"].startswith("FP8"),
                    recompute="full" if said.get("fsdp") else "none")
    if row.get("framework", "").startswith("JAX"):
        scenario["software"] = "torchtitan-compiled"
        scenario["model"]["dropout"] = False
        scenario["training"].update(precision=precision(scenario["training"]["precision"]["compute"]),
                                    execution="compiled")
        if not said.get("fsdp"):
            scenario["parallelism"]["data_parallel"] = {"kind": "fsdp"}
            scenario["training"]["recompute"] = {"modules": ["core_attn", "layernorm"]}
    if row.get("peft") == "LoRA":
        scenario["training"]["finetune"] = lora(16 if row["model"]["layers"] > 32 else 8, "linear_qkv")
        scenario["training"]["document_length"] = SQUAD_SAMPLE
        scenario["parallelism"]["data_parallel"] = {"kind": "allreduce"}
    return record(row["id"], scenario, metric(row, "iteration_time"))
