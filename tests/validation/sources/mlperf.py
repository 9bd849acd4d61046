"""NVIDIA's submissions to MLPerf Training: GPT-3 175B and Llama 3.1 405B on H100, B200 and GB200."""

from common import LeftOut, blackwell, h100, metric, nemo, nemo_model, record

FILE = "mlperf_llm.json"
SOFTWARE = "nemo"
SOURCE = "MLPerf Training, NVIDIA's submissions"


def convert(row):
    model, said, gpus = row["model"], row["parallelism"], row["hardware"]["num_gpus"]
    seconds = metric(row, "tracked_train_step_time", "iteration_time_derived")
    if "lora" in row["benchmark"] or model["name"] == "llama2-70b":
        raise LeftOut("LoRA")
    if "tp" not in said:
        raise LeftOut("the layout is not published")
    if "NVFP4" in row["precision"]:
        raise LeftOut("fp8 or NVFP4: not known")
    if not seconds:
        raise LeftOut("no time")
    system = row["hardware"]["system"]
    machine = system["system_name"] + " " + system.get("accelerator_model_name", "")
    is_blackwell = "B200" in machine or "B300" in machine
    if "H200" in machine and not is_blackwell:
        raise LeftOut("H200")
    rack = "gb300-nvl72" if "GB300" in machine else "gb200-nvl72" if "GB200" in machine else "dgx-b200"
    cluster = blackwell(gpus, rack) if is_blackwell else h100(gpus)
    scenario = nemo(row, nemo_model(model), cluster, "FP8" in row["precision"],
                    chunked=str(said.get("tp_comm_overlap")) in ("True", "1"))
    return record(row["id"], scenario, seconds)
