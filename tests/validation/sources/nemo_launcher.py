"""NeMo-Megatron-Launcher's README of 2022: GPT 5B and 175B, T5 and mT5 3B on 8 to 1,024 A100.

Scores are stored, with dropout; they are recomputed where the row says so, or where nothing else fits. Nothing is
overlapped without a distributed optimizer. Chunks of the 175B are not printed: none. T5 3B is t5-v1.1-xl with 512 and
128 tokens, mT5 with a vocabulary of 250,112.
"""

from common import LeftOut, a100, gpt, metric, precision, record

FILE = "nemo_launcher_a100.json"
SOFTWARE = "megatron-lm-2021"
SOURCE = "NVIDIA/NeMo-Megatron-Launcher, README, training performance"


def convert(row):
    model, said, batch = row["model"], row["parallelism"], row["batch"]
    is_t5 = "t5" in model["name"]
    for key in ("gbs", "mbs"):
        if not batch.get(key):
            raise LeftOut(f"does not state {key}")
    if not model.get("layers") and not is_t5:
        raise LeftOut("the network is not described")
    network = {"preset": "t5-v1.1-xl"} if is_t5 else gpt(model)
    if model["name"].startswith("mt5"):
        network["vocab"] = 250112
    training = {"global_batch": batch["gbs"], "micro_batch": batch["mbs"], "sequence_length": model["seq"],
                "precision": precision("bf16", "fp32"), "optimizer": {"type": "adamw"}}
    if is_t5:
        training["decoder_sequence_length"] = 128
    data = {"kind": "allreduce", "overlap_backward": False}
    if said.get("distributed_optimizer"):
        data = {"kind": "distributed_optimizer", "bucket_size": "160MB"}
    degrees = {"tp": said["tp"], "pp": said["pp"], "dp": said["dp"], "data_parallel": data,
               "sequence_parallel": bool(said.get("sp")) and said["tp"] > 1,
               "pipeline": {"schedule": "1f1b", "overlap_p2p": False}}
    scenarios = [{"model": network, "cluster": a100(row["hardware"]["num_gpus"]),
                  "training": {**training, "recompute": recompute}, "parallelism": degrees}
                 for recompute in (["selective"] if row.get("recompute") == "selective" else ["none", "selective"])]
    return record(row["id"], scenarios, metric(row, "iteration_time_derived", "iteration_time"))
