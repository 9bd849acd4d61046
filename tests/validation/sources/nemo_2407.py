"""NeMo 24.07 on DGX H100, fp8. GPT3-20B and Nemotron-22B are NeMo's own configurations, whose parameters come to their
names; fine-tuning of all weights is taken as pre-training. Its optimizer is Apex's, which keeps the remainders of fp32
weights (NVIDIA/NeMo, megatron_gpt_model.py: store_param_remainders). Transformer Engine kept no placeholders of
gradients before its release 2.3 of 2025."""

from common import LeftOut, h100, metric, nemo, nemo_model, record

FILE = "nemo_2407_h100.json"
SOFTWARE = "nemo"
SOURCE = "NVIDIA NeMo 24.07, performance documentation"
KNOWN = {"GPT3-20B": {"layers": 44, "hidden": 6144, "heads": 48, "ffn": 24576, "vocab": 51200, "act": "gelu"},
         "Nemotron-22B": {"layers": 40, "hidden": 6144, "heads": 48, "ffn": 24576, "vocab": 256000,
                          "act": "squared-relu"}}


def convert(row):
    model = {**row["model"], **KNOWN.get(row["model"]["name"], {})}
    if row.get("task") == "LoRA":
        raise LeftOut("LoRA")
    if "layers" not in model:
        raise LeftOut("the network is not described")
    scenario = nemo(row, nemo_model(model), h100(row["hardware"]["num_gpus"]), True)
    scenario["training"]["precision"]["master_weights"] = "remainder"
    scenario["training"]["gradient_placeholders"] = "dropped"
    return record(row["id"], scenario, metric(row, "iteration_time_derived"))
