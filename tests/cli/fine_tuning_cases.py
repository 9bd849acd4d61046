#!/usr/bin/python3
"""What the scenarios of docs/guide/fine-tuning.md say of themselves. As cases.py."""

import json
import os

from process import Cases, require, require_equal

HERE = os.path.dirname(os.path.abspath(__file__))
GUIDE = os.path.join(os.path.dirname(os.path.dirname(HERE)), "configs", "scenarios", "guide")
GIB = 2**30
case = Cases()
expect = case.expect


def variants(name):
    out, _ = expect(0, "compare", os.path.join(GUIDE, f"{name}.json"), "--json", "-q")
    return {variant["name"]: variant for variant in json.loads(out)["variants"]}


def peak(variant):
    return variant["memory"]["peak_bytes"]


@case
def lora_on_one_gpu(folder):
    """Llama 2 7B on 24 GB: all weights do not fit, LoRA does, QLoRA takes less than half of it and is slower"""
    found = variants("lora-llama2-7b")
    full, lora, qlora = (found[name] for name in ("full", "lora", "qlora"))
    require(3 * 24 * GIB < peak(full) < 4 * 24 * GIB and full["step_time_s"] is None, peak(full) / GIB)
    require(2 * peak(qlora) < peak(lora) < 24 * GIB, (peak(qlora), peak(lora)))
    require(1.005 < qlora["step_time_s"] / lora["step_time_s"] < 1.2, "QLoRA takes a little longer")
    require_equal(qlora["trained_parameters"], 39976960, "adapters")
    require("trained_parameters" not in full, full.get("trained_parameters"))


@case
def llama_on_two_gpus(folder):
    """Llama 2 70B QLoRA fits two RTX 3090s with FSDP and recomputation, and not without either or in 16 bits"""
    found = variants("qlora-llama2-70b-2x3090")
    require(found["qlora-fsdp"]["memory"]["fits"], peak(found["qlora-fsdp"]) / GIB)
    for name in ("lora-fsdp", "qlora-ddp", "no-recomputation"):
        require(not found[name]["memory"]["fits"], name)


@case
def optimizers_hold_moments(folder):
    """Optimizers hold 4 bytes a parameter and moment, and one of master weights; without one nothing is held"""
    found = variants("optimizers")
    states = {name: variant["memory"]["by_category"]["optimizer_state"] for name, variant in found.items()}
    parameters = found["adam"]["parameters"]
    for name, each in (("none", 0), ("sgd", 4), ("lion", 8), ("adam", 12), ("lamb", 12)):
        require(abs(states[name] - each * parameters) <= 0.001 * each * parameters, (name, states[name] / parameters))
    times = [found[name]["step_time_s"] for name in ("none", "sgd", "lion", "adam", "lamb")]
    require_equal(times, sorted(times), "steps in the order of what they move")


@case
def forward_alone(folder):
    """A forward pass alone takes about a third of a step, and its activations do not grow with depth"""
    found = variants("forward-only")
    forward, both = found["forward"], found["both"]
    require(0.28 < forward["step_time_s"] / both["step_time_s"] < 0.36, forward["step_time_s"])
    path = os.path.join(GUIDE, "forward-only.json")
    held = []
    for layers in (8, 32):
        out, _ = expect(0, "run", path, "--variant", "forward", "--json", "-q", "--set", f"/model/layers={layers}")
        held.append(json.loads(out)["memory"]["by_category"]["activations"])
    require_equal(held[0], held[1], "activations of 8 and of 32 layers")


@case
def wrong_fine_tuning(folder):
    """What cannot be fine-tuned so is told at its key, with a cure"""
    path = os.path.join(GUIDE, "qlora-llama2-70b-2x3090.json")
    plain = ("--set", "/training/finetune/targets=[\"q_proj\"]")
    for words, at, cure in (
            (("/training/finetune/targets=[\"qkv_proj\"]",), "targets/0",
             "did you mean \"q_proj\", \"k_proj\" or \"v_proj\"?"),
            (("/training/finetune/targets=[\"gate_proj\"]", "/model/ffn=gelu"), "targets", "there are q_proj"),
            (("/training/finetune/targets=[\"q_proj\", \"linear_qkv\"]",), "targets", "name either"),
            (("/training/finetune/rank=0",), "rank", "at least 1"),
            (("/training/finetune/rank=2048",), "rank", "more than the 1024 x 8192 matrix of k_proj"),
            (("/training/finetune/kind=full", "/training/finetune/base=nf4"), "base", "make the kind \"qlora\""),
            (("/training/finetune/kind=frozen",), "finetune", "name parts under \"trains\""),
            (("/training/finetune/trains=[\"mlp\"]",), "trains", "too coarse"),
            (("/training/precision/compute=fp32",), "base", "compute"),
            (("/training/forward_only=true",), "recompute", "remove it"),
            (("/training/optimizer/type=none", "/training/gradient_clipping=true"), "gradient_clipping", "remove it")):
        sets = [word for each in words for word in ("--set", each)]
        _, err = expect(3, "check", path, *sets)
        require(f"{at}: " in err and cure in err, err)
    expect(0, "check", path, *plain)


case.main()
