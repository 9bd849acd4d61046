"""IBM's fms-fsdp: Llama 2 compiled, FSDP or HSDP, on A100 with 400 and H100 with 800 Gb/s a server.

Gradients are reduced in bf16; selective recomputation is fms-fsdp's of whole layers: every second, or all where
that does not fit. HSDP shards in a server. Keys and values are copied for every query head (keys_e, values_e in
fms/modules/attention.py). Rows of Megatron-LLaMA state no batch.
"""

from common import LeftOut, a100, h100, llama, precision, record, tokens_seconds

FILE = "fms_fsdp_megatron_llama.json"
SOFTWARE = "torchtitan-compiled"
SOURCE = "foundation-model-stack/fms-fsdp, README"


def convert(row):
    gpus, batch = row["hardware"]["num_gpus"], row["batch"]
    if row["id"].startswith("mll"):
        raise LeftOut("does not state gbs")
    nic = {"bandwidth": "100Gbps", "latency": "1.5us", "rail": "gpu", "efficiency": 0.9}
    cluster = a100(gpus, nics=4, nic={**nic, "rail": "none"}) if "A100" in row["hardware"]["gpu"] else h100(
        gpus, nic=nic)
    hybrid = row["parallelism"]["fsdp"] == "HSDP"
    selective = [{"method": "every", "layers": 2}, "full"]
    training = {"global_batch": batch["gbs"], "micro_batch": batch["mbs"], "sequence_length": row["model"]["seq"],
                "precision": precision("bf16", "bf16"), "optimizer": {"type": "adamw"}, "execution": "compiled",
                "fused_attention": True, "key_value_heads": "repeated", "gradient_clipping": True}
    data = {"kind": "hsdp", "shard_size": 8} if hybrid else {"kind": "fsdp"}
    scenarios = [{"model": llama(row["model"]), "cluster": cluster, "training": {**training, "recompute": recompute},
                  "parallelism": {"dp": gpus, "data_parallel": data}}
                 for recompute in (["none"] if row["recompute"] == "none" else selective)]
    return record(row["id"], scenarios, tokens_seconds(row))
