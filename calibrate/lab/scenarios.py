"""Clusters, networks and whole scenarios of the lab's experiments, as trainyard reads them."""

import copy
import dataclasses

LINE_BITS_PER_S = 200_000_000   # of every cable, unless an experiment says another
STEPS, WARM_UP = 7, 2           # steps that are run, of which the first are not counted
FP32 = 4                        # bytes

# Parts of the table, whose errors are summed apart.
SETS = ("paced, no shared cable", "contention, fair queues", "contention, one queue", "asynchronous: updates a second",
        "asynchronous: staleness", "real")


@dataclasses.dataclass(frozen=True)
class Messages:
    """What a message takes on two hosts of the lab, fitted (messages.py); nothing else is known of the network."""

    efficiency: float   # bytes of a tensor over those on the line
    start_s: float      # of a send and its receive
    steps: tuple        # (bytes, seconds): what a step of a collective takes beside a send
    tree_steps: tuple   # (bytes of the buffer, seconds): the same of a level of a tree, in pieces


@dataclasses.dataclass
class Experiment:
    """One row of the table."""

    name: str
    group: str
    topology: str
    ranks: int
    scenario: dict
    program: object
    options: dict
    kind: str = "paced"       # passes sleep; or real: they compute
    quantity: str = "s"       # of what is compared; "updates/s" and "staleness" of ranks that do not wait
    warm_up: int = WARM_UP    # steps that are not counted
    contention: bool = False  # reported apart
    fair: bool = True         # a queue for each pair of hosts; False: one, first in, first out
    script: object = None     # options["script"] of what predicted.py reads: the slices, and whose they are
    servers: int = 0          # ranks before the first worker, which trainyard does not count as ranks
    what: str = ""

    @property
    def set(self):
        """Of SETS."""
        if self.kind == "real" or self.quantity != "s":
            return SETS[-1 if self.kind == "real" else 3 if self.quantity == "updates/s" else 4]
        return SETS[0 if not self.contention else 1 if self.fair else 2]

    def of(self, quantity, name, what):
        """The same run by another quantity."""
        other = copy.copy(self)
        other.quantity, other.name, other.what = quantity, name, what
        return other

    def queued(self):
        """The same with one queue at each end of a cable, first in, first out."""
        other = copy.copy(self)
        other.name, other.fair, other.what = self.name + "-fifo", False, self.what + ", one queue"
        return other


def layers_of(count, forward_ms, backward_ms, parameters, outputs=25_000):
    """Equal paced layers: milliseconds of a pass, fp32 numbers of parameters and of what a layer hands on."""
    return [{"name": f"layer {i}", "forward": forward_ms / 1e3, "backward": backward_ms / 1e3,
             "parameters": parameters, "outputs": outputs} for i in range(count)]


def model_of(layers):
    """The table of layers that says the same to trainyard."""
    rows = [{"name": layer["name"], "ops": [{
        "op": "time", "forward": f"{layer['forward'] * 1e3:.9g}ms", "backward": f"{layer['backward'] * 1e3:.9g}ms",
        "micro_batch": 1, "parameters": layer["parameters"], "shape": [layer["outputs"]]}]} for layer in layers]
    rows[-1]["ops"].append({"op": "loss"})
    return {"kind": "layers", "input": {"shape": [1]}, "layers": rows}


def slowed(rank, factor, of_lab=None):
    """(options of the lab's ranks, part of the scenario) that make a rank compute so many times as long; of_lab: its
    number among the lab's ranks, where servers stand before it."""
    return ({"slowdown": {str(rank if of_lab is None else of_lab): factor}},
            {"perturbations": {"stragglers": [{"select": {"rank": rank}, "compute_slowdown": factor}]}})


def device(tflops=1e6):
    """A processor whose own kernels take no time; paced passes say theirs."""
    return {"name": "paced", "kind": "cpu", "memory": "1TiB", "memory_bandwidth": "1000TB/s",
            "peak": {"fp32": f"{tflops}TFLOP/s"}}


def server(messages, bits_per_s=LINE_BITS_PER_S, gpus=1, inside_bits_per_s=None, tflops=1e6):
    """A host, or a server of several hosts behind one cable."""
    hop = f"{messages.start_s * 1e6 / 2:.3f}us"
    node = {"gpu": device(tflops), "gpus": gpus, "nics": 1,
            "nic": {"bandwidth": f"{bits_per_s / 1e6:.9g}Mbps", "efficiency": round(messages.efficiency, 6),
                    "latency": hop, "rail": "none",
                    "steps": [{"bytes": f"{size}B", "time": f"{seconds * 1e6:.3f}us"}
                              for size, seconds in messages.steps],
                    "tree_steps": [{"bytes": f"{size}B", "time": f"{seconds * 1e6:.3f}us"}
                                   for size, seconds in messages.tree_steps]},
            "host": {"memory": "1TiB", "memory_bandwidth": "1000TB/s", "pcie_bandwidth": "1000GB/s"},
            "intra": {"kind": "none"}}
    if inside_bits_per_s:
        reached = inside_bits_per_s / 8 * messages.efficiency
        node["intra"] = {"kind": "pcie", "bandwidth_per_gpu": f"{reached / 1e6:.6f}MB/s", "latency": hop}
        del node["host"]["pcie_bandwidth"]
    return node


def ring_of_hosts(messages, hosts):
    """Hosts joined to their two neighbours only."""
    node = server(messages, gpus=hosts)
    reached = LINE_BITS_PER_S / 8 * messages.efficiency
    node["intra"] = {"kind": "torus", "dimensions": [hosts], "bandwidth_per_gpu": f"{reached / 1e6:.6f}MB/s",
                     "latency": f"{(messages.start_s + messages.steps[-1][1]) * 1e6:.3f}us"}
    return {"nodes": 1, "node": node, "calibration": "none"}


def star(messages, hosts, **node):
    return {"nodes": hosts, "node": server(messages, **node), "calibration": "none"}


def two_switches(messages, hosts, oversubscription):
    """Half of the hosts behind each switch, and an uplink that is so many times narrower than they are together."""
    return {**star(messages, hosts), "fabric": {"kind": "clos", "levels": [
        {"name": "leaf", "gpus": hosts // 2}, {"name": "spine", "gpus": hosts, "oversubscription": oversubscription}]}}


def scenario(name, model, cluster, batch, parallelism, **more):
    """A whole scenario; batch: samples of a step, each a micro-batch of its own."""
    result = {"version": 1, "name": name, "description": "An experiment of the lab (docs/lab.md)", "model": model,
              "cluster": cluster,
              "training": {"global_batch": batch, "micro_batch": 1, "execution": "eager", "launch_time": "0us",
                           "precision": {"compute": "fp32"}, "optimizer": {"type": "sgd", "momentum": False}},
              "parallelism": parallelism, "simulation": {"fidelity": "flow"}}
    result["training"].update(more.pop("training", {}))
    result.update(more)
    return result


def transformer(layers, hidden, **more):
    return {"kind": "transformer", "layers": layers, "hidden": hidden, "heads": 8, "dropout": False, "vocab": 256,
            **more}
