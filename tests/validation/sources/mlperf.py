"""NVIDIA's submissions to MLPerf Training: GPT-3 175B and LoRA of Llama 2 70B on H100, H200, B200 and L40S.

LoRA is of attention's two linear layers, of rank 16, with dropout (adapter_dim, target_modules and adapter_dropout of
the submissions' configs); there is no other dropout (hidden_dropout, attention_dropout, ffn_dropout: 0.0;
mlcommons/training_results_v3.0@9f08e30c NVIDIA/benchmarks/gpt3/implementations/pytorch/conf/megatron_gpt_config.yaml).
Where a job's FP8 is set, the frozen weights of layers are kept in fp8, and once
(fp8_params: ${FP8}, disable_parameter_transpose_cache: True; mlcommons/training_results_v4.0@62f111b7
NVIDIA/benchmarks/llama2_70b_lora/implementations/nemo/conf/megatron_gpt_peft_tuning_config.yaml; taken for 4.1 too).
Where a log has the times of its blocks between evaluations alone, a step is a block's time over its steps (median).
GPT-3's weights are kept in fp8 where a job's environment has FP8_PARAMS; without TP_COMM_OVERLAP nothing is chunked.
Largest numbers are reduced unless FP8_REDUCE_AMAX is False. Attention in fp8 (FP8_DPA) is priced as that of 16 bits.
FP8_ACTIVATION is Megatron-Core's activation_func_fp8_input_store. Placeholders of gradients are dropped: Transformer
Engine keeps them since release 2.3, after the last of these rounds.
"""

from statistics import median

from common import LeftOut, blackwell, h100, h200, lora, metric, nemo, nemo_model, record

FILE = "mlperf_llm.json"
SOFTWARE = "nemo"
SOURCE = "MLPerf Training, NVIDIA's submissions"
SEEN_BEFORE = ("mlp-llm-020",)


def block_seconds(row):
    """Median over blocks of the log, of `epoch_count` tokens each."""
    for said in row["metrics"]:
        if said["name"] == "block_durations":
            steps = said["meta"]["start_meta"]["epoch_count"] / (row["batch"]["gbs"] * row["model"]["seq"])
            return median(said["value"]) / steps
    return None


def cluster_of(machine, gpus):
    """Servers of L40S have four on PCIe, and two NICs of 400 Gb/s for what they send each other."""
    if "L40S" in machine:
        nic = {"transport": "roce", "bandwidth": "400Gbps", "latency": "1.5us", "rail": "gpu"}
        return {"nodes": gpus // 4, "node": {"preset": "pcie-8xl40s", "gpus": 4, "nics": 2, "nic": nic},
                "fabric": {"kind": "single_switch"}}
    for kind in ("GB300", "GB200"):
        if kind in machine:
            return blackwell(gpus, f"{kind.lower()}-nvl72")
    if "B200" in machine or "B300" in machine:
        return blackwell(gpus)
    return h200(gpus) if "H200" in machine else h100(gpus)


def convert(row):
    if row["id"] in SEEN_BEFORE:
        raise LeftOut("the same log as in the round before")
    model, said, gpus = row["model"], row["parallelism"], row["hardware"]["num_gpus"]
    seconds = metric(row, "tracked_train_step_time", "iteration_time_derived") or block_seconds(row)
    if "tp" not in said:
        raise LeftOut("the layout is not published")
    if "NVFP4" in row["precision"]:
        raise LeftOut("fp8 or NVFP4: not known")
    if not seconds:
        raise LeftOut("no time")
    system = row["hardware"]["system"]
    machine = system["system_name"] + " " + system.get("accelerator_model_name", "")
    network = {**nemo_model(model), "dropout": False}
    scenario = nemo(row, network, cluster_of(machine, gpus), "FP8" in row["precision"],
                    chunked=str(said.get("tp_comm_overlap")) in ("True", "1"))
    scenario["training"]["gradient_placeholders"] = "dropped"
    if row.get("env", {}).get("FP8_PARAMS") == "True":
        scenario["training"]["precision"]["parameters"] = "fp8"
    if row.get("env", {}).get("FP8_REDUCE_AMAX") == "False":
        scenario["training"]["precision"]["fp8_amax_reduction"] = "none"
    if row.get("env", {}).get("FP8_ACTIVATION") == "True":
        scenario["training"]["precision"]["kept_fp8_gates"] = True
    if "lora" in row["benchmark"]:
        scenario["training"]["finetune"] = lora(16, "linear_qkv", "linear_proj", dropout=0.1)
        if row["env"].get("FP8") == "True":
            scenario["training"]["precision"]["parameters"] = "fp8"
            scenario["training"]["finetune"]["dtype"] = "bf16"
    return record(row["id"], scenario, seconds)
