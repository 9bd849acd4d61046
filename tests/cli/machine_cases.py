#!/usr/bin/python3
"""What the scenarios of docs/guide/machines.md and tpu.md say of themselves. As cases.py."""

import json
import os

from process import Cases, require, require_equal

HERE = os.path.dirname(os.path.abspath(__file__))
GUIDE = os.path.join(os.path.dirname(os.path.dirname(HERE)), "configs", "scenarios", "guide")
case = Cases()
expect = case.expect


def variants(name):
    out, _ = expect(0, "compare", os.path.join(GUIDE, f"{name}.json"), "--json", "-q")
    return {variant["name"]: variant for variant in json.loads(out)["variants"]}


@case
def which_gpu(folder):
    """Of the GPUs that guides name each generation is faster, and tensor cores are the largest step"""
    found = variants("which-gpu")
    times = {name: variant["step_time_s"] for name, variant in found.items()}
    generations = ["k80", "p100-sxm2-16gb", "v100-sxm2-16gb", "a100-sxm4-40gb"]
    steps = [times[old] / times[new] for old, new in zip(generations, generations[1:])]
    require(min(steps) > 1.5 and max(steps) == steps[1], steps)
    require(times["k80"] / times["a100-sxm4-40gb"] > 20, times)


@case
def cpu_or_gpu(folder):
    """A convolution of many images is what a GPU is for: a core gains nothing by them, and a GPU a factor of eight"""
    found = variants("cpu-or-gpu")
    rate = {name: variant["samples_per_s"] for name, variant in found.items()}
    require(7 < rate["a100-b512"] / rate["a100-b1"] < 9, rate)
    require(rate["core-b512"] <= 1.01 * rate["core-b1"], rate)
    require(rate["a100-b1"] < 20 * rate["core-b1"] and rate["a100-b512"] > 100 * rate["core-b512"], rate)
    require(found["a100-b1"]["breakdown_s"]["host"] > 0.6 * found["a100-b1"]["step_time_s"], "the host")
    require(found["core-b1"]["breakdown_s"]["host"] == 0, "a CPU launches nothing")


@case
def cpu_training(folder):
    """A socket trains ResNet-50 slower than the oldest GPU, and a core a hundred times slower than a V100"""
    found = variants("cpu-training")
    times = {name: variant["step_time_s"] for name, variant in found.items()}
    require(times["v100"] < times["t4"] < times["k80"] < times["epyc-9654"] < times["xeon-8280"] < times["core"], times)
    require(times["core"] > 100 * times["v100"], times)
    told = {name for name, variant in found.items() if variant["interval"] is not None}
    require_equal(told, {"k80", "t4", "v100"}, "variants that published steps, all of GPUs, say an interval of")


@case
def kernel_of_a_cpu(folder):
    """A kernel of a CPU has a time of its own profile, and no interval, as those of classes ran on GPUs"""
    asked = ("kernel", "gemm:1024x1024x1024,dtype=fp32", "--json", "--gpu")
    found = {gpu: json.loads(expect(0, *asked, gpu)[0])["kernels"][0] for gpu in ("epyc-9004-core", "t4")}
    require("interval" in found["t4"] and "interval" not in found["epyc-9004-core"], found)


@case
def which_server(folder):
    """Gradients hide behind the backward pass on NVLink, and not through the host's memory"""
    found = variants("which-server")
    for name, variant in found.items():
        idle = variant["breakdown_s"]["exposed_dp"] / variant["step_time_s"]
        require(idle > 0.25 if name == "pcie-4x3090-10gbe" else idle < 0.05, (name, idle))


@case
def tpu_tori(folder):
    """Sums on a torus of two and three dimensions take a half and a third of those on a ring of the same links"""
    found = variants("tpu-tori")
    times = {name: variant["breakdown_s"]["exposed_dp"] for name, variant in found.items()}
    require(1.9 < times["ring"] / times["2-d"] < 2.4, times)
    require(2.9 < times["ring"] / times["3-d"] < 4, times)
    require(times["3-d-open"] > 2.5 * times["3-d"], times)


@case
def palm_on_tpus(folder):
    """PaLM 540B on 6,144 TPU v4 is within five points of its published utilisation, with recomputation and without"""
    path = os.path.join(GUIDE, "palm-540b-6144xtpu-v4.json")
    out, _ = expect(0, "run", path, "--json", "-q")
    result = json.loads(out)
    mfu, hfu = result["mfu"], result["hfu"]
    require(abs(mfu - 0.462) < 0.05 and abs(hfu - 0.578) < 0.05, (mfu, hfu))
    require_equal(result["parameters"] // 10**8, 5403, "540 billion parameters")


case.main()
