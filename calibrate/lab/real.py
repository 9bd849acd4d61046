"""Real training on two cores, one for each rank, predicted from the calibration of the machine at hand alone."""

import os
import statistics
import subprocess
import sys
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import messages
import namespaces
import predicted
import ranks
import real_networks
import scenarios

LINE_BITS_PER_S = 400_000_000
STEPS, WARM_UP = 24, 4
BATCH = {"mlp": 1024, "resnet18": 32, "gpt": 16}  # samples of a step, over both ranks
MICRO_BATCHES = 4
PROBE_MINUTES = 3
ON_A_CORE_EACH = {"core": (0, 1), "real_time": False}  # in real time a rank that computes would starve the kernel
CASES = [(name, strategy) for name in BATCH for strategy in ("data", "model", "pipeline", "tensor")
         if strategy != "tensor" or name == "gpt"]


def _optimizer(parameters):
    return torch.optim.SGD(list(parameters), lr=1e-4)


def _whole(rank, net, model, called, samples):
    """Trains a network that is whole on each rank, or shared within each layer; called: the model, or what wraps it."""
    optimizer = _optimizer(model.parameters())
    inputs, targets = net.batch(samples)
    for _ in rank.steps(STEPS):
        optimizer.zero_grad(set_to_none=True)
        begin = time.monotonic()
        loss = net.loss(called(inputs), targets)
        rank.span("forward", "compute", begin)
        begin = time.monotonic()
        loss.backward()
        rank.span("backward", "compute", begin)
        begin = time.monotonic()
        optimizer.step()
        rank.span("optimizer", "compute", begin)


def data(rank):
    """PyTorch's DistributedDataParallel on half of the batch."""
    net = real_networks.NETWORKS[rank.options["network"]]()
    model = torch.nn.Sequential(*net.layers())
    wrapped = DistributedDataParallel(model, gradient_as_bucket_view=True)
    _whole(rank, net, model, wrapped, BATCH[rank.options["network"]] // rank.world)


def stages(rank):
    """Half of the layers on each rank: the whole batch at once, or micro-batches, all forward and then all backward."""
    options = rank.options
    net = real_networks.NETWORKS[options["network"]]()
    layers = net.layers()
    middle = len(layers) // 2
    is_first = rank.number == 0
    model = torch.nn.Sequential(*(layers[:middle] if is_first else layers[middle:]))
    optimizer = _optimizer(model.parameters())
    count = options["micro_batches"]
    inputs, targets = net.batch(BATCH[options["network"]] // count)
    with torch.no_grad():
        shape = torch.nn.Sequential(*layers[:middle])(inputs).shape
    for _ in rank.steps(STEPS):
        optimizer.zero_grad(set_to_none=True)
        arriving, sent, kept = [], [], []
        for m in range(count):
            buffer = torch.empty(shape)
            arriving.append((buffer, dist.irecv(buffer, 1 - rank.number, tag=m)))
        for m in range(count):
            value = inputs
            if not is_first:
                arriving[m][1].wait()
                value = arriving[m][0].requires_grad_()
            begin = time.monotonic()
            output = model(value)
            if not is_first:
                output = net.loss(output, targets) / count
            rank.span(f"forward {m}", "compute", begin)
            kept.append((value, output))
            if is_first:
                sent.append(dist.isend(output.detach(), 1, tag=m))
        for m in range(count):
            gradient = None
            if is_first:
                arriving[m][1].wait()
                gradient = arriving[m][0]
            value, output = kept[m]
            begin = time.monotonic()
            output.backward(gradient)
            rank.span(f"backward {m}", "compute", begin)
            if not is_first:
                sent.append(dist.isend(value.grad, 0, tag=m))
        for work in sent:
            work.wait()
        begin = time.monotonic()
        optimizer.step()
        rank.span("optimizer", "compute", begin)


def tensor(rank):
    """Heads, inner columns and vocabulary shared by both ranks, as Megatron-LM does."""
    net = real_networks.Gpt(rank.number, rank.world)
    model = torch.nn.Sequential(*net.layers())
    torch.manual_seed(1)  # all see the same tokens
    _whole(rank, net, model, model, BATCH["gpt"])


PROGRAMS = {"data": data, "model": stages, "pipeline": stages, "tensor": tensor}
WORDS = {"data": "DistributedDataParallel", "model": "half of the layers each, the whole batch",
         "pipeline": f"half of the layers each, {MICRO_BATCHES} micro-batches",
         "tensor": "Megatron-LM's split of every layer"}


def _scenario(constants, name, strategy, preset, calibration):
    net = real_networks.NETWORKS[name]()
    batch, middle, layers = BATCH[name], len(net.layers()) // 2, len(net.layers())
    micro_batches = MICRO_BATCHES if strategy == "pipeline" else 1
    parallelism, micro_batch = {
        "data": ({"dp": 2, "data_parallel": {"kind": "allreduce"}}, batch // 2),
        "tensor": ({"tp": 2, "dp": 1, "tensor_parallel": {"overlap": "none"}}, batch),
    }.get(strategy, ({"pp": 2, "dp": 1, "pipeline": {"schedule": "gpipe",
                                                      "layer_split": [middle - 1, layers - middle - 1]}},
                     batch // micro_batches))
    cluster = scenarios.star(constants, 2, bits_per_s=LINE_BITS_PER_S)
    cluster["node"]["gpu"], cluster["calibration"] = preset, calibration
    cluster["node"]["nic"].pop("tree_steps")
    cluster["node"]["host"] = {"memory": "64GiB"}
    training = {"micro_batch": micro_batch}
    training.update({"gpt": {"sequence_length": real_networks.Gpt.length}, "resnet18": {"image_layout": "nchw"}}
                    .get(name, {}))
    whole = scenarios.scenario(f"real-{name}-{strategy}", net.table(), cluster, batch, parallelism, training=training,
                               collectives={"allreduce": {"algorithm": "ring"}})
    whole["training"].pop("launch_time")  # the profile's
    return whole


def all_of(constants, preset, calibration="none"):
    """The real experiments; calibration: the profile that predicts them, by its name beside the scenarios."""
    return [scenarios.Experiment(
        f"real-{name}-{strategy}", f"real {name}", "two hosts", 2,
        _scenario(constants, name, strategy, preset, calibration), PROGRAMS[strategy],
        {"network": name, "micro_batches": MICRO_BATCHES if strategy == "pipeline" else 1, **ON_A_CORE_EACH},
        kind="real", warm_up=WARM_UP, what=WORDS[strategy]) for name, strategy in CASES]


def messages_of(trainyard, folder, preset):
    """What messages take where each rank has a core, which their packets take time of."""
    return messages.calibrated(trainyard, folder, preset, name="messages-on-cores", bits_per_s=LINE_BITS_PER_S,
                               more=ON_A_CORE_EACH)


def calibrated(trainyard, folder, profile, preset):
    """Measures PyTorch's operators on one core while another core does the same, and fits the profile.

    Both cores compute in what is predicted, and share caches, memory and heat.
    """
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) < 2:
        raise namespaces.NamespaceError("real ranks need a core each, and this process has one")
    samples = [folder / f"core-{number}.samples.jsonl" for number in (0, 1)]
    running = [subprocess.Popen(
        ["taskset", "-c", str(core), sys.executable, "-B", ranks.probe_cpu.__file__, "--output", str(path), "--threads",
         "1", "--keep-memory", "--minutes", str(PROBE_MINUTES)], stderr=subprocess.PIPE, text=True)
        for core, path in zip(cores, samples)]
    for process in running:
        errors = process.communicate()[1]
        if process.returncode:
            raise ranks.RankError(errors.strip())
    predicted.fitted(trainyard, samples[0], profile, preset)


def ranking(rows):
    """(pairs of strategies of a network whose order was predicted as measured, pairs in all)."""
    right = total = 0
    by_network = {}
    for row in rows:
        by_network.setdefault(row.experiment.group, []).append(row)
    for found in by_network.values():
        for i, a in enumerate(found):
            for b in found[i + 1:]:
                total += 1
                right += (a.median < b.median) == (a.predicted < b.predicted)
    return right, total


def noise(rows):
    """The median of the spreads of the measured steps: (third - first quartile) / median."""
    spreads = []
    for row in rows:
        times = sorted(row.measured)
        quarter = len(times) // 4
        spreads.append((times[-1 - quarter] - times[quarter]) / row.median)
    return statistics.median(spreads) if spreads else 0.0
