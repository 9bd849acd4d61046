"""NeMo AutoModel's table, GPT-2 on 8 A100 40 GB, and a grid of Llama 2 7B on 4 A100 80 GB.

AutoModel: FSDP2 and experts in two steps (DeepEP); networks with experts as examples/benchmark/configs and
components/moe/parallelizer.py have them: all layers recomputed but of gpt-oss, parameters kept gathered but of gpt-oss
of 120 B, reductions in fp32, all states in the networks' bf16. Others: nothing recomputed, or all where that does not
fit. gpt-oss with 8 ranks of experts, which its row leaves open.
GPT-2: compiled PyTorch over NVLink, bf16 autocast. The grid states neither
links nor states: PCIe, as four GPUs on NVLink would take half of what is printed with tensor ranks (a choice made after
looking at the rows), micro-batch 1, all states in bf16, as four whole copies have no room for more, nothing recomputed,
or all where that does not fit.
"""

from common import LeftOut, a100, gpt, h100, llama, lora, metric, precision, record
from networks import cut, has_experts, named

FILE = "misc_training.json"
SOURCE = "NVIDIA-NeMo/Automodel, docs/performance-summary.mdx; GPT-2 with DDP; a grid on 4 A100"


def degrees_of(row, **more):
    said = row["parallelism"]
    tp, pp, cp = (said.get(key) or 1 for key in ("tp", "pp", "cp"))
    return {"tp": tp, "pp": pp, "cp": cp, "dp": row["hardware"]["num_gpus"] // (tp * pp * cp), **more}


def automodel(row):
    name, said, batch = row["model"]["name"], row["parallelism"], row["batch"]
    if "Nemotron" in name and "Nano" not in name:
        raise LeftOut("experts of a narrower stream than the layers'")
    network = named(name) or llama(row["model"])
    if "oss" in name.lower():
        moe = {**network["moe"], "experts": row["model"]["experts"]}
        network = {**network, "layers": row["model"]["layers"], "moe": moe}
    is_oss, mixture = "oss" in name.lower(), has_experts(network)
    data = {"kind": "fsdp", "reduce_dtype": "fp32" if mixture else "bf16"}
    if mixture and not (is_oss and row["model"]["layers"] > 24):
        data["reshard_after_forward"] = False
    degrees = degrees_of(row, data_parallel=data)
    chunks, ep = said.get("vp") or 1, said.get("ep") or (8 if is_oss else 1)
    if mixture:
        degrees.update(ep=ep, etp=1, expert_parallel={"dispatch": "hierarchical"})
    if degrees["tp"] > 1:
        degrees["sequence_parallel"] = True
    if degrees["pp"] > 1:
        degrees["pipeline"] = {"schedule": "interleaved_1f1b" if chunks > 1 else "1f1b", "chunks_per_stage": chunks}
        if row["model"]["layers"] % (degrees["pp"] * chunks):
            degrees["pipeline"]["layer_split"] = cut(row["model"]["layers"], degrees["pp"], chunks)
    training = {"global_batch": batch["gbs"], "micro_batch": batch["mbs"], "sequence_length": row["model"]["seq"],
                "precision": precision("bf16", "bf16"), "optimizer": {"type": "adamw"}, "fused_attention": True,
                "execution": "fused", "gradient_clipping": True}
    if mixture:
        training["precision"].update(master_weights="none", optimizer_states="bf16")
    # Source: NVIDIA-NeMo/Automodel@1b668020 examples/llm_finetune/llama3_1/llama3_1_8b_peft_benchmark.yaml.
    if "LoRA" in row.get("schedule", ""):
        training["finetune"] = lora(16, "all-linear", dropout=0.1)
    scenarios = [{"software": "torchtitan-compiled", "model": network, "cluster": h100(row["hardware"]["num_gpus"]),
                  "training": {**training, "recompute": recompute}, "parallelism": degrees}
                 for recompute in (("none",) if is_oss else ("full",) if mixture else ("none", "full"))]
    return record(row["id"], scenarios, metric(row, "iteration_time"))


def gpt2(row):
    batch, gpus = row["batch"], row["hardware"]["num_gpus"]
    if "socket" in row.get("schedule", ""):
        raise LeftOut("the bandwidth of its sockets is not stated")
    training = {"global_batch": batch["gbs"], "micro_batch": batch["mbs"], "sequence_length": 1024,
                "precision": precision("bf16", "fp32"), "optimizer": {"type": "adamw"}, "recompute": "none",
                "fused_attention": True, "execution": "compiled", "gradient_clipping": True}
    scenario = {"software": "pytorch-ddp", "model": gpt(row["model"], dropout=False),
                "cluster": a100(gpus, "dgx-a100-40gb"), "training": training, "parallelism": {"dp": gpus}}
    return record(row["id"], scenario, metric(row, "iteration_time") / 1000)


def pcie(gpus):
    return {"nodes": 1, "node": {"preset": "pcie-8xa100", "gpus": gpus}}


def grid(row):
    seconds = metric(row, "iteration_time")
    if seconds is None:
        raise LeftOut("the framework refused the run")
    sharded = row["parallelism"]["zero_stage"] == 3
    training = {"global_batch": 128, "micro_batch": 1, "sequence_length": 4096,
                "precision": {"compute": "bf16", "gradients": "bf16", "master_weights": "none",
                              "optimizer_states": "bf16"},
                "optimizer": {"type": "adamw"}, "fused_attention": True}
    scenarios = [{"software": "pytorch-fsdp1" if sharded else "pytorch-ddp", "model": llama(row["model"]),
                  "cluster": pcie(row["hardware"]["num_gpus"]), "training": {**training, "recompute": recompute},
                  "parallelism": degrees_of(row, data_parallel={"kind": "fsdp" if sharded else "allreduce"})}
                 for recompute in ("none", "full")]
    return record(row["id"], scenarios, seconds, group="Llama 2 7B on 4 A100")


def convert(row):
    for prefix, made in (("amodel", automodel), ("g2ddp", gpt2), ("uci", grid)):
        if row["id"].startswith(prefix):
            return made(row)
    raise LeftOut("no whole description of network, batch and layout")
