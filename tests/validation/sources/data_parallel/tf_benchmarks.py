"""tf_cnn_benchmarks (TensorFlow 1) on P100 and K80, and Horovod's example: images/s in fp32, synthetic and real data.

Variables on the processors of the same server, or dealt to its GPUs (variable_update parameter_server): each is read by
a GPU when it is needed and its gradient sent when it is there, so that layers come and go one by one. What states only
how throughput scales is left out.
"""

from common import LeftOut, metric

from data_parallel.replicas import boxes, dgx1p, network, rate, scenario

FILE = "tf_benchmarks_horovod.json"
SOURCE = "tensorflow/docs, benchmarks.md (CC-BY-4.0) and horovod/horovod, benchmarks.rst (Apache-2.0)"


def convert(row):
    hardware, said = row["hardware"], row["parallelism"]["strategy"]
    update = said["variable_update"] if isinstance(said, dict) else said
    gpus, images = hardware["num_gpus"], metric(row, "images_per_s")
    if images is None:
        raise LeftOut("no images/s")
    device = said.get("local_parameter_device") if isinstance(said, dict) else None
    served = gpus > 1 and update == "parameter_server" and device in ("cpu", "gpu")  # of one server
    if gpus > 1 and not served and ("parameter_server" in update or "distributed" in update):
        raise LeftOut(f"{update} on several GPUs")
    model = network(row["model"]["name"])
    if "horovod" in update.lower():
        each = hardware.get("gpus_per_node") or 4
        machine = boxes("p100-sxm2-16gb", min(gpus, each), -(-gpus // each), "25Gbps")
    else:
        machine = dgx1p(gpus) if "P100" in hardware["gpu"] else boxes("k80", gpus)
    optimizer = {"type": "sgd"}
    software = "tensorflow-1-horovod" if "horovod" in update.lower() else "tensorflow-1"
    described = scenario(model, machine, software, int(row["batch"]["per_gpu"]), "fp32", optimizer)
    if served:
        described["parallelism"]["data_parallel"] = {"kind": "parameter_server", "push_by_layer": True}
        if device == "gpu":
            described["parallelism"]["data_parallel"]["device"] = device
    return rate(row["id"], described, images)
