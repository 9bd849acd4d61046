"""Real training on two cores, one for each rank, predicted from the calibration of the machine at hand alone."""

import json
import os
import pathlib
import statistics
import subprocess
import sys
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import messages
import namespaces
import network
import predicted
import real_networks
import scenarios

LINE_BITS_PER_S = 400_000_000
STEPS, WARM_UP = 12, 4
BATCH = {"mlp": 1024, "resnet18": 32, "gpt": 16}  # samples of a step, over both ranks
MICRO_BATCHES = 4
PROBE_MINUTES = 3
ON_A_CORE_EACH = {"core": (0, 1), "real_time": False}  # in real time a rank that computes would starve the kernel
PROBE = pathlib.Path(__file__).resolve().parent.parent / "probe" / "cpu" / "probe_cpu.py"
CASES = [(name, strategy) for name in BATCH for strategy in ("data", "model", "pipeline", "tensor")
         if strategy != "tensor" or name == "gpt"]


def _optimizer(parameters):
    return torch.optim.SGD(list(parameters), lr=1e-4)


def data(rank):
    """PyTorch's DistributedDataParallel on half of the batch."""
    net = real_networks.NETWORKS[rank.options["network"]]()
    model = torch.nn.Sequential(*net.layers())
    wrapped = DistributedDataParallel(model, gradient_as_bucket_view=True)
    optimizer = _optimizer(model.parameters())
    inputs, targets = net.batch(BATCH[rank.options["network"]] // rank.world)
    for _ in rank.steps(STEPS):
        optimizer.zero_grad(set_to_none=True)
        begin = time.monotonic()
        loss = net.loss(wrapped(inputs), targets)
        rank.span("forward", "compute", begin)
        begin = time.monotonic()
        loss.backward()
        rank.span("backward", "compute", begin)
        begin = time.monotonic()
        optimizer.step()
        rank.span("optimizer", "compute", begin)


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
    optimizer = _optimizer(model.parameters())
    torch.manual_seed(1)
    inputs, targets = net.batch(BATCH["gpt"])
    for _ in rank.steps(STEPS):
        optimizer.zero_grad(set_to_none=True)
        begin = time.monotonic()
        loss = net.loss(model(inputs), targets)
        rank.span("forward", "compute", begin)
        begin = time.monotonic()
        loss.backward()
        rank.span("backward", "compute", begin)
        optimizer.step()


PROGRAMS = {"data": data, "model": stages, "pipeline": stages, "tensor": tensor}
WORDS = {"data": "DistributedDataParallel", "model": "half of the layers each, the whole batch",
         "pipeline": f"half of the layers each, {MICRO_BATCHES} micro-batches",
         "tensor": "Megatron-LM's split of every layer"}


def _scenario(constants, name, strategy, preset, profile):
    net = real_networks.NETWORKS[name]()
    batch = BATCH[name]
    cluster = scenarios.star(constants, 2, bits_per_s=LINE_BITS_PER_S)
    cluster["node"]["gpu"] = preset
    cluster["node"]["nic"].pop("tree_steps")
    cluster["node"]["host"] = {"memory": "64GiB"}
    cluster["calibration"] = profile.name if isinstance(profile, pathlib.Path) else profile
    parallelism = {"dp": 2, "data_parallel": {"kind": "allreduce"}}
    training = {"micro_batch": batch // 2}
    if strategy in ("model", "pipeline"):
        layers = len(net.layers())
        count = MICRO_BATCHES if strategy == "pipeline" else 1
        middle = layers // 2
        parallelism = {"pp": 2, "dp": 1, "pipeline": {
            "schedule": "gpipe", "layer_split": [middle - 1, layers - middle - 1]}}
        training = {"micro_batch": batch // count}
    if strategy == "tensor":
        parallelism = {"tp": 2, "dp": 1, "tensor_parallel": {"overlap": "none"}}
        training = {"micro_batch": batch}
    if name == "gpt":
        training["sequence_length"] = net.length
    if name == "resnet18":
        training["image_layout"] = "nchw"
    whole = scenarios.scenario(f"real-{name}-{strategy}", net.table(), cluster, batch, parallelism,
                               collectives={"allreduce": {"algorithm": "ring"}})
    whole["training"].pop("launch_time")
    whole["training"].update(training)
    return whole


def all_of(constants, preset, profile):
    """The real experiments; profile: the calibration that predicts them."""
    return [scenarios.Experiment(
        f"real-{name}-{strategy}", f"real {name}", "two hosts", 2,
        _scenario(constants, name, strategy, preset, profile), PROGRAMS[strategy],
        {"network": name, "micro_batches": MICRO_BATCHES if strategy == "pipeline" else 1, **ON_A_CORE_EACH},
        kind="real", warm_up=WARM_UP, what=WORDS[strategy]) for name, strategy in CASES]


def names():
    """Of all real experiments."""
    return [f"real-{name}-{strategy}" for name, strategy in CASES]


def named(name):
    """The experiment of that name without its calibration, to be listed or chosen."""
    return all_of(messages.PERFECT, "epyc-9004-core", "none")[names().index(name)]


def line_cluster():
    """The cable that is built for all of them."""
    whole = scenarios.scenario("real", scenarios.model_of(scenarios.layers_of(1, 1, 1, 1000)),
                               scenarios.star(messages.PERFECT, 2, bits_per_s=LINE_BITS_PER_S), 2, {"dp": 2})
    return whole


def messages_of(trainyard, folder, preset):
    """What messages take where each rank has a core, which their packets take time of."""
    return messages.calibrated(trainyard, folder, preset, name="messages-on-cores", bits_per_s=LINE_BITS_PER_S,
                               more=ON_A_CORE_EACH)


def calibrated(trainyard, folder, preset):
    """Measures PyTorch's operators on one core while another core does the same, and fits a profile; returns its path.

    Both cores compute in what is predicted, and share caches, memory and heat.
    """
    samples = [folder / f"core-{core}.samples.jsonl" for core in (0, 1)]
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) < 2:
        raise namespaces.NamespaceError("real ranks need a core each, and this process has one")
    running = []
    for core, path in zip(cores, samples):
        running.append(subprocess.Popen(
            ["taskset", "-c", str(core), sys.executable, "-B", str(PROBE), "--output", str(path), "--threads", "1",
             "--keep-memory", "--minutes", str(PROBE_MINUTES)], stderr=subprocess.PIPE, text=True))
    for process in running:
        errors = process.communicate()[1]
        if process.returncode:
            raise messages.CalibrationError(errors.strip())
    profile = folder / "scenarios" / "profile.json"  # beside those that name it
    profile.parent.mkdir(exist_ok=True)
    done = subprocess.run([trainyard, "--quiet", "fit", str(samples[0]), "-o", str(profile), "--gpu", preset,
                           "--base", "none", "--force"], capture_output=True, text=True, check=False)
    if done.returncode:
        raise messages.CalibrationError(done.stderr.strip())
    return profile


def run(lab, experiment, row):
    """Yields the row of an experiment; `row` makes it of what lab.Row takes."""
    path = lab.folder / "scenarios" / f"{experiment.name}.json"
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(experiment.scenario, indent=1), encoding="utf-8")
    report, slices = predicted.predict(lab.options.trainyard, path, lab.folder / "predicted" / experiment.name)
    line = lab.folder / "line.json"
    line.write_text(json.dumps(line_cluster()), encoding="utf-8")
    with namespaces.Cluster(network.of_scenario(lab.options.trainyard, str(line))) as cluster:
        records = lab.ranks.run(cluster, experiment.program, 2, experiment.options)
    times = lab.ranks.step_times(records, experiment.warm_up)
    spans = [(record["rank"], label, kind, begin - record["starts"][-1], end - record["starts"][-1])
             for record in records for label, kind, begin, end in record["spans"]]
    yield row(experiment, report["step_time_s"], times, spans, slices)


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
