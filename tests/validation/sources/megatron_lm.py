"""Tables of Megatron-LM's READMEs: 2020 on V100 and A100 40 GB, January and April 2021 on A100, weak scaling on H100.

Where the micro-batch is not printed the fastest of 1, 2, 4, 8, 16 that divides counts (of 1, 2, 4 on H100); chunks of
an interleaved pipeline are the least number above 1 that divides the layers of a stage. Weak scaling prints TFLOP/s
of the model, 72 B s l h^2 (1 + s/(6h) + V/(12 l h)) a step.

The README of 2020 names PyTorch's DDP, which overlaps, as the more efficient of two data-parallel implementations; its
own reduces after the backward pass. Its largest network, 8.7B with tp 8, takes 37 ms longer on 1,024 GPUs than on 8,
where a ring moves two times 2.2 GB of gradients through the one NIC of a GPU: 173 ms at the 25 GB/s of HDR InfiniBand.
So these rows overlap; those of 2021 do not, as its own was the default.
"""

from common import LeftOut, a100, gpt, h100, megatron_2021, metric, nemo, record, servers

FILE = "megatron_lm.json"
SOURCE = "NVIDIA/Megatron-LM, README of 2020, January and April 2021, 2024"


def machine(profile, gpus):
    if "DGX-2" in profile:
        count, each = servers(gpus, 16)
        return {"nodes": count, "node": {
            "gpu": "v100-sxm2-32gb", "gpus": each, "nics": 8,
            "intra": {"kind": "nvswitch", "bandwidth_per_gpu": "150GB/s", "latency": "1.5us"},
            "nic": {"bandwidth": "100Gbps", "latency": "1.5us", "rail": "gpu", "efficiency": 0.9}}}
    if "H100" in profile:
        return h100(gpus)
    return a100(gpus, "dgx-a100-40gb" if "40GB" in profile else "dgx-a100-80gb")


def model_seconds(row):
    model, rate = row["model"], metric(row, "model_tflops_per_gpu")
    layers, hidden, length = model["layers"], model["hidden"], model["seq"]
    work = 72 * row["batch"]["gbs"] * length * layers * hidden**2 * (
        1 + length / (6 * hidden) + model["vocab"] / (12 * layers * hidden))
    return work / (rate * 1e12 * row["hardware"]["num_gpus"])


def one_scenario(row, micro_batch, chunks):
    model, said, gpus = row["model"], row["parallelism"], row["hardware"]["num_gpus"]
    profile = row["hardware"].get("profile", "")
    if "H100" in profile:
        network = gpt(model, positional="rope", dropout=False, tied_embeddings=False)
        scenario = nemo(row, network, machine(profile, gpus), False, chunks=chunks, micro_batch=micro_batch,
                        gradients="fp32")
        # Megatron Core overlaps neither unless told to, and the README tells it.
        flags = said.get("overlap") or ""
        scenario["parallelism"]["data_parallel"].update(overlap_backward="--overlap-grad-reduce" in flags,
                                                        overlap_param_gather="--overlap-param-gather" in flags)
        return {**scenario, "software": "megatron-core"}
    training = {"global_batch": row["batch"]["gbs"], "micro_batch": micro_batch,
                "sequence_length": model.get("seq") or 2048}
    scenario = megatron_2021(gpt(model), machine(profile, gpus), training, said["tp"], said["pp"], said["dp"], chunks)
    if "2020" in row["source"]["title"] and said["dp"] > 1:
        scenario["parallelism"]["data_parallel"]["overlap_backward"] = True
    return {**scenario, "software": "megatron-lm-2021"}


def convert(row):
    model, said, batch, gpus = row["model"], row["parallelism"], row["batch"], row["hardware"].get("num_gpus")
    seconds = metric(row, "iteration_time", "iteration_time_derived")
    if "tp" not in said:
        raise LeftOut("the layout is not published")
    if not gpus or not (seconds or metric(row, "model_tflops_per_gpu")):
        raise LeftOut("no time")
    is_h100 = "H100" in row["hardware"].get("profile", "")
    of_stage = model["layers"] // said["pp"]
    interleaved = said["pp"] > 1 and (is_h100 or "April" in row["source"]["title"])
    chunks = next((v for v in range(2, of_stage + 1) if of_stage % v == 0), 1) if interleaved else 1
    scenarios = []
    for size in [batch["mbs"]] if batch.get("mbs") else [1, 2, 4] if is_h100 else [1, 2, 4, 8, 16]:
        whole = batch["gbs"] % (said["dp"] * size) == 0
        if whole and (chunks == 1 or batch["gbs"] // said["dp"] // size % said["pp"] == 0):
            scenarios.append(one_scenario(row, size, chunks))
    if not scenarios:
        raise LeftOut("no micro-batch divides")
    return record(row["id"], scenarios, seconds or model_seconds(row))
