"""InternEvo's 7B on servers of 8 A100 with 4 x 100 Gb/s RoCE, 8 to 1,024 GPUs.

ZeRO-1 over all ranks (-1), or over 4 or 8 of a server: the latter with whole gradients all-reduced, as ZeRO-1 has no
groups here. bf16 gradients, flash attention and fused norms; tensor parallelism inside a server.
"""

from common import LeftOut, a100, llama, precision, record, tokens_seconds

FILE = "internevo.json"
SOFTWARE = "internevo"
SOURCE = "InternLM/InternEvo, doc/en/train_performance.md"
NIC = {"bandwidth": "100Gbps", "latency": "1.5us", "rail": "none", "efficiency": 0.9}


def convert(row):
    said, batch, gpus = row["parallelism"], row["batch"], row["hardware"]["num_gpus"]
    if "mem" in row["id"] or not row["model"].get("seq"):
        raise LeftOut("does not state seq")
    shard, dp = said["zero1_size"], said["dp"]
    data = {"kind": "zero1"}
    if shard not in (-1, dp) and dp > shard:
        data["all_reduce_gradients"] = True
    scenario = {
        "model": llama(row["model"]), "cluster": a100(gpus, nics=4, nic=NIC),
        "training": {"global_batch": batch["gbs"], "micro_batch": batch["mbs"], "sequence_length": row["model"]["seq"],
                     "precision": precision("bf16", "bf16"), "optimizer": {"type": "adamw"}},
        "parallelism": {"tp": said["tp"], "pp": 1, "dp": dp, "data_parallel": data}}
    if row["recompute"] != "none":  # without, InternEvo runs norms again
        scenario["training"]["recompute"] = row["recompute"]
    return record(row["id"], scenario, tokens_seconds(row))
