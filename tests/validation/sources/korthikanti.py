"""Korthikanti et al., table 5, and MT-NLG 530B: Megatron-LM, DeepSpeed on A100.

Products add to gradients in the former (LinearWithGradAccumulationAndAsyncCommunication, which came with sequence
parallelism: NVIDIA/Megatron-LM, 2022), autograd does in MT-NLG, which is DeepSpeed's 1F1B with blocking sends, full
recomputation, ZeRO-1 and nothing overlapped (2021). Shares of memory read off figures are left out.
"""

from common import LeftOut, a100, gpt, metric, precision, record

FILE = "korthikanti_mtnlg_llama.json"
SOFTWARE = "megatron-lm-2021"
SOURCE = "Korthikanti et al. 2022, arXiv:2205.05198, table 5; Smith et al. 2022, arXiv:2201.11990"


def convert(row):
    model, said, batch = row["model"], row["parallelism"], row["batch"]
    seconds = metric(row, "iteration_time")
    if "tp" not in said:
        raise LeftOut("the layout is not published")
    if not seconds:
        raise LeftOut("read off a figure")
    deepspeed, chunks = row["id"].startswith("mtnlg"), said.get("vp", 1)
    degrees = {"tp": said["tp"], "pp": said["pp"], "dp": said["dp"], "sequence_parallel": bool(said["sp"]),
               "pipeline": {"schedule": "interleaved_1f1b" if chunks > 1 else "1f1b", "chunks_per_stage": chunks,
                            "overlap_p2p": False}}
    if deepspeed:
        degrees.update(tensor_parallel={"overlap": "none"}, data_parallel={"kind": "zero1", "overlap_backward": False})
    scenario = {
        "model": gpt(model), "cluster": a100(row["hardware"]["num_gpus"]),
        "training": {"global_batch": batch["gbs"], "micro_batch": batch["mbs"], "sequence_length": model["seq"],
                     "precision": precision(row["precision"], row["precision"] if deepspeed else "fp32"),
                     "optimizer": {"type": "adam"}, "recompute": row["recompute"].split(" ")[0],
                     "gradient_accumulation": "autograd" if deepspeed else "product"},
        "parallelism": degrees}
    return record(row["id"], scenario, seconds)
