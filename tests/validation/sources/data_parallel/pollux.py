"""Steps of Pollux and Sia (PyTorch, AdaptDL) on T4 of AWS, RTX 2080 Ti, Quadro RTX 6000 and DGX-A100.

ResNet-50 on ImageNet in mixed precision: its fp32 products would run at 5.3 TFLOP/s on T4, which reach 4.4. All else
in fp32, on A100 TF32 (the default of PyTorch 1.7 to 1.11; BERT's 2 ms per further sequence are 100 TFLOP/s); BERT
fine-tunes on SQuAD with 384 tokens.
The jobs on AWS ran in pods of Calico 3.11 (petuum/adaptdl benchmark/main.tf), whose manifest wraps all packets IP in
IP: what one server sends another is one flow to EC2 whatever sockets NCCL opens, and a flow has 5 Gb/s (EC2's
documentation; 10 in a placement group of kind cluster, and that of theirs is not stated), a tenth of the NIC.
"""

from common import LeftOut, record

from data_parallel.replicas import ADAMW, QUADRO, SGD, bert, boxes, network, scenario, switched

FILE = "pollux_sia_dp.csv"
SOURCE = "petuum/adaptdl and siasosp23/artifacts, traces of Pollux (OSDI 2021) and Sia (SOSP 2023)"
GPUS = {"aws": "t4", "rtx": "rtx-2080-ti", "quad": QUADRO}


def convert(row):
    gpus, nodes, cluster = int(row["num_gpus"]), int(row["num_nodes"]), row["cluster"]
    each = [int(digit) for digit in row["placement"]] if len(row["placement"]) == nodes else []
    if gpus % nodes and not each:
        raise LeftOut("different numbers of GPUs on servers, which are not stated")
    name, batch = row["model"], int(row["local_batch"])
    squad = name.startswith("BERT")
    model = bert("base", None) if squad else network(name)
    of_node = max(each, default=gpus // nodes)
    dgx = cluster == "dgx"
    machine = switched("dgx-a100-40gb", of_node, nodes) if dgx else boxes(GPUS[cluster], of_node, nodes)
    if cluster == "aws" and nodes > 1:
        machine["node"] = {"preset": "g4dn.12xlarge", "gpus": of_node, "nic": {"efficiency": 0.1}}
    if len(set(each)) > 1:
        machine["gpus_used"] = each
    kind = "amp" if name.startswith("ResNet-50") else "tf32" if dgx else "fp32"
    described = scenario(model, machine, "adaptdl", batch, kind, ADAMW if squad else SGD,
                         **({"sequence_length": 384} if squad else {}))
    return record(row["id"], described, float(row["step_time_s"]))
