"""vTrain's runs of Megatron-DeepSpeed on several servers: GPT 3.6B to 175B on 64 to 512 A100, 1F1B, full recomputation.

About a tenth of the rows are irreproducibly slow. Layouts of one network on as many GPUs are alternatives.
"""

from common import a100, gpt, megatron_2021, record

FILE = "vtrain_multi_a100.csv"
SOFTWARE = "megatron-lm-2021"
SOURCE = "VIA-Research/vTrain, data/ground_truth_multi.csv"


def convert(row):
    number = {key: int(row[key]) for key in ("# layers", "hidden size", "attention heads", "# GPUs", "micro batch",
                                             "global batch", "sequence length", "tensor parallelism",
                                             "data parallelism", "pipeline parallelism")}
    model = gpt({"layers": number["# layers"], "hidden": number["hidden size"], "heads": number["attention heads"]})
    training = {"global_batch": number["global batch"], "micro_batch": number["micro batch"],
                "sequence_length": number["sequence length"]}
    scenario = megatron_2021(model, a100(number["# GPUs"]), training, number["tensor parallelism"],
                             number["pipeline parallelism"], number["data parallelism"])
    return record(row["id"], scenario, float(row["iteration time (ms)"]) / 1000,
                  group=f"{row['Parameters (billion)']}B on {row['# GPUs']} GPUs")
