"""What runs of NVIDIA's scripts for recommenders are: NCF and DLRM on PyTorch.

Facts are those of NVIDIA/DeepLearningExamples.

- NCF (PyTorch/Recommendation/NCF, ncf.py): a rate counts samples of an epoch over its time, in which negatives are
  drawn and shuffled, too, which is not described. Mixed precision is torch.cuda.amp, Adam Apex's of one kernel.
- DLRM (PyTorch/Recommendation/DLRM, dlrm/scripts/main.py): the small one, on one GPU under CUDA graphs, tables by plain
  SGD. The large one gives the bottom MLP of all samples to one GPU (get_device_mapping), which no key says.
"""

from common import LeftOut

from data_parallel.replicas import ADAM, scenario


def per_gpu(row):
    return int(row["batch"]["Batch size / GPU"].replace(",", "").replace("k", "000"))


def ncf_row(row, kind, machine, _):
    return scenario({"preset": "ncf-ml-20m"}, machine, "pytorch-ddp-2020", per_gpu(row), kind, ADAM)


def dlrm_row(row, kind, machine, _):
    if row["batch"]["Model size"] != "small":
        raise LeftOut("the bottom MLP of all GPUs on one of them")
    described = scenario({"preset": "dlrm-criteo-f15"}, machine, "pytorch-ddp-2020", 65536, kind, {"type": "sgd"},
                         embedding_optimizer="sgd", launch_time="0us")  # --cuda_graphs; --batch_size 65536
    described["parallelism"]["embedding_parallel"] = {"sharding": "table_wise"}
    return described


def wide_deep_row(_row, _kind, _machine, _title):
    raise LeftOut("Wide & Deep: an optimizer for each half")


ROWS = {"PyTorch/Recommendation/NCF": ncf_row, "PyTorch/Recommendation/DLRM": dlrm_row,
        "TensorFlow2/Recommendation/WideAndDeep": wide_deep_row}
