"""NeMo's long sequences, 16 Ki to 1 Mi tokens in fp8 on H100 and B200, with context parallelism.

The row states TFLOP/s of the model, which NeMo counts as
    B s l h^2 (12 + 12 kv/heads + 18 ffn/h + 6 s/h + 6 V/(l h))
a step; rows without context parallelism print no layout.
"""

from common import LeftOut, blackwell, h100, metric, nemo, nemo_model, record

FILE = "nemo_long_sequence.json"
SOFTWARE = "nemo"
SOURCE = "NVIDIA/NeMo, docs/source/performance/performance_long_sequence.md"


def convert(row):
    model, gpus, rate = row["model"], row["hardware"]["num_gpus"], metric(row, "model_tflops_per_gpu")
    if "tp" not in row["parallelism"]:
        raise LeftOut("the layout is not published")
    if not rate or rate < 0:
        raise LeftOut("no time")
    layers, hidden, length = model["layers"], model["hidden"], model["seq"]
    work = row["batch"]["gbs"] * length * layers * hidden**2 * (
        12 + 12 * model["kv_heads"] / model["heads"] + 18 * model["ffn"] / hidden + 6 * length / hidden
        + 6 * model["vocab"] / (layers * hidden))
    cluster = h100(gpus) if row["hardware"]["profile"] == "DGX-H100" else blackwell(gpus)
    return record(row["id"], nemo(row, nemo_model(model), cluster, True, micro_batch=1), work / (rate * 1e12 * gpus))
