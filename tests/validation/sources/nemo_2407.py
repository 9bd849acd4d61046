"""NeMo 24.07 on DGX H100, fp8. GPT3-20B and Nemotron-22B are NeMo's own configurations, whose parameters come to their
names. Its optimizer is Apex's, which keeps the remainders of fp32 weights (NVIDIA/NeMo, megatron_gpt_model.py:
store_param_remainders). Transformer Engine kept no placeholders of gradients before its release 2.3 of 2025.
Fine-tuning packs samples of SQuAD: its FLOP/s count no attention. LoRA is of rank 32, of queries, keys and values
(NVIDIA/NeMo-Framework-Launcher@04c921b, launcher_scripts/conf/peft/llama/squad.yaml: adapter_dim, and what NeMo targets
where nothing is said). Its table prints no chunks of stages, so they have none; Llama 13B's fine-tuning of all weights,
+10 and +15 %, would be -4 and +1 % with the ten of its pre-training."""

from common import SQUAD_SAMPLE, LeftOut, h100, lora, metric, nemo, nemo_model, record

FILE = "nemo_2407_h100.json"
SOFTWARE = "nemo"
SOURCE = "NVIDIA NeMo 24.07, performance documentation"
KNOWN = {"GPT3-20B": {"layers": 44, "hidden": 6144, "heads": 48, "ffn": 24576, "vocab": 51200, "act": "gelu"},
         "Nemotron-22B": {"layers": 40, "hidden": 6144, "heads": 48, "ffn": 24576, "vocab": 256000,
                          "act": "squared-relu"}}


def convert(row):
    model = {**row["model"], **KNOWN.get(row["model"]["name"], {})}
    if "layers" not in model:
        raise LeftOut("the network is not described")
    scenario = nemo(row, nemo_model(model), h100(row["hardware"]["num_gpus"]), True)
    scenario["training"]["gradient_placeholders"] = "dropped"
    if row.get("task") in ("SFT", "LoRA"):
        scenario["training"]["document_length"] = SQUAD_SAMPLE
    if row.get("task") == "LoRA":
        scenario["training"]["finetune"] = lora(32, "linear_qkv")
        scenario["parallelism"]["data_parallel"] = {"kind": "allreduce"}
    else:
        scenario["training"]["precision"]["master_weights"] = "remainder"
    return record(row["id"], scenario, metric(row, "iteration_time_derived"))
