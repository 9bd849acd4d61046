"""Gavel's throughputs of one GPU (PyTorch 2019, fp32): those of several contradict each other.

One GPU is printed twice, as placed together and apart, with one number. The printed batch is a GPU's. P100 and V100 are
taken for those of PCIe and of NVLink.
"""

from common import LeftOut

from data_parallel.replicas import PASCAL_PCIE, SGD, network, one_gpu, rate, scenario

FILE = "gavel_throughputs.csv"
SOURCE = "stanford-futuredata/gavel, throughputs of simulated and physical clusters (MIT)"
GPUS = {"K80": "k80", "P100": PASCAL_PCIE, "V100": "v100-sxm2-16gb"}


def convert(row):
    name = "ResNet-18 CIFAR-10" if row["model"] == "ResNet-18" else row["model"]
    model = network(name)
    if row["num_gpus"] != "1":
        raise LeftOut("several GPUs")
    if row["placement"] == "unconsolidated":
        raise LeftOut("one GPU, printed twice")
    batch = int(row["batch_size_arg"])
    described = scenario(model, one_gpu(GPUS[row["gpu"]]), "pytorch-ddp", batch, "fp32", SGD)
    return rate(f"{row['gpu']} {name} {batch}", described, batch * float(row["steps_per_s"]))
