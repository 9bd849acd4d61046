#!/usr/bin/env python3
"""Measures real training steps of Hugging Face's networks and of torchvision's on one GPU, for `trainyard validate`.

usage: frameworks.py --gpu PRESET [--other-gpu] [-o RECORDS.json] [--minutes 20] [--only TEXT] [--list]

Needs PyTorch 2.4 or later with transformers and accelerate, or with torchvision; cases of what is missing fail, and the
others are measured. PRESET is this GPU's name in configs/gpus; one that does not say what the driver calls the card is
taken with --other-gpu only. All cases run in this process, as loading the libraries takes longer than a case; one that
runs out of memory or fails is a record, and its memory is given back. A record is in the file as soon as it is
measured, with the scenario that says the same (framework_cases.py).

What is measured, exactly:
- Hugging Face: networks of random weights as `Trainer` trains them: `prepare` and `backward` of accelerate, a look at
  the loss of each micro-batch (is it finite? the host waits for it; "no sync" does not look), `clip_grad_norm_` to 1.0,
  torch.optim.AdamW (fused, or foreach), gradients freed after it. "autocast": fp32 weights, `mixed_precision="bf16"`;
  "bf16": weights, gradients and moments in bf16. Attention is "sdpa"; no cache; dropout as the configs have it;
  recomputation is the network's gradient checkpointing without reentrance.
- torchvision: torch.optim.SGD with momentum and weight decay, cudnn.benchmark; "fp16" is torch.autocast with a
  GradScaler, "tf32" lets convolutions alone be tf32, as PyTorch does; nchw, or nhwc, channels_last.
- Inputs lie on the GPU. Times are CUDA events between steps that follow each other without a pause, after 4 steps.
- allocated_memory is the peak of the allocator's tensors in these steps; kernels (all that the GPU ran but copies of
  inputs: memsets and other copies too) and busy_time, the time that they take, are of one further step, by the
  profiler; so is a record's "launches", its kernels without memsets.
- The host's time per launch is the step of "hf llama-1b s512 b1 bf16", which waits for the host, over its launches.
  It is the launch_time of all records of Hugging Face in the file, those before it too. Without this case, or where the
  GPU is too slow to wait for the host in it, launch_time is the software's habit.
"""

import argparse
import math
import os
import statistics
import sys
import time

sys.path.insert(1, os.path.dirname(os.path.abspath(__file__)))

from framework_cases import WAITS_FOR_HOST, all_cases, common_scenario, scenario_of_case
from measure import check_device
from measuring import measure_all
from scenario_of import CONFIGS, is_same_gpu
from training import hardware, profiled, quartile_spread, release_memory, software, timed_steps

NOTES = ("Training steps on one GPU, measured by calibrate/proof/frameworks.py; its first lines say what is measured. "
         "step_time: median; step_time_spread: (third - first quartile) / median. kernels and busy_time: of one step "
         "under torch.profiler.")
STEPS = (1.5, 8, 60)  # seconds for the steps of a case, at least and at most so many
# A step waits for the host where the GPU is busy for less of it; of a slow GPU it would be the GPU's own time. An H100
# and an H200 are busy for .3 and .4 of the step that is meant.
BUSY_SHARE = 0.8
CLASSES = {  # kind: config and network of transformers
    "llama": ("LlamaConfig", "LlamaForCausalLM"),
    "qwen2": ("Qwen2Config", "Qwen2ForCausalLM"),
    "qwen3moe": ("Qwen3MoeConfig", "Qwen3MoeForCausalLM"),
    "gpt2": ("GPT2Config", "GPT2LMHeadModel"),
    "bert": ("BertConfig", "BertForMaskedLM"),
    "vit": ("ViTConfig", "ViTForImageClassification"),
    "t5": ("T5Config", "T5ForConditionalGeneration"),
}


# ---------------------------------------------------------------------------------------------------------------
# Cases become functions that train a step.


def hugging_face_network(case, dtype):
    import torch
    import transformers

    config_class, network_class = (getattr(transformers, name) for name in CLASSES[case["kind"]])
    config = config_class(**case["config"])
    config.use_cache = False
    config._attn_implementation = "sdpa"
    with torch.device("cuda"):
        torch.set_default_dtype(dtype)
        try:
            model = network_class(config)
        finally:
            torch.set_default_dtype(torch.float32)
    model = model.to("cuda").train()
    if case["recompute"] == "full":
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    return model, config


def hugging_face_inputs(case, config, dtype):
    import torch

    batch, sequence = case["batch"], case["sequence"]
    if case["kind"] == "vit":
        return {"pixel_values": torch.randn(batch, 3, 224, 224, device="cuda").to(dtype),
                "labels": torch.randint(config.num_labels, (batch,), device="cuda")}
    inputs = {name: torch.randint(config.vocab_size, (batch, sequence), device="cuda")
              for name in ("input_ids", "labels")}
    if case["kind"] != "t5":
        inputs["attention_mask"] = torch.ones(batch, sequence, dtype=torch.long, device="cuda")
    return inputs


def hugging_face_step(case):
    import torch
    from accelerate import Accelerator
    from accelerate.state import AcceleratorState

    # PyTorch's defaults, which a case before may have changed.
    torch.backends.cudnn.benchmark, torch.backends.cudnn.allow_tf32 = False, True
    torch.backends.cuda.matmul.allow_tf32 = False
    autocast = case["mode"] == "autocast"
    dtype = torch.float32 if autocast else torch.bfloat16
    model, config = hugging_face_network(case, dtype)
    inputs = hugging_face_inputs(case, config, dtype)
    AcceleratorState._reset_state(True)  # the process has one, which has the first case's precision
    accelerator = Accelerator(mixed_precision="bf16" if autocast else "no")
    how = {"fused": True} if case["optimizer"] == "fused" else {"foreach": True}
    model, optimizer = accelerator.prepare(model, torch.optim.AdamW(model.parameters(), lr=1e-5, **how))
    micro_batches, looks = case["accumulate"], case["looks"]

    def step():
        for _ in range(micro_batches):
            loss = model(**inputs).loss
            if micro_batches > 1:
                loss = loss / micro_batches
            accelerator.backward(loss)
            seen = loss.detach()
            if looks and (torch.isnan(seen) or torch.isinf(seen)):
                raise RuntimeError("the loss is not finite")
        accelerator.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        return seen

    return step


def vision_step(case):
    import torch
    import torchvision
    from torch.nn import functional

    torch.backends.cudnn.benchmark = True
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.allow_tf32 = case["precision"] != "fp32"
    model = getattr(torchvision.models, case["network"])().to("cuda").train()
    images = torch.randn(case["batch"], 3, 224, 224, device="cuda")
    if case["layout"] == "nhwc":
        model = model.to(memory_format=torch.channels_last)
        images = images.contiguous(memory_format=torch.channels_last)
    labels = torch.randint(1000, (case["batch"],), device="cuda")
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9, weight_decay=1e-4)
    mixed = case["precision"] in ("fp16", "bf16")
    dtype = torch.float16 if case["precision"] == "fp16" else torch.bfloat16
    scaler = torch.amp.GradScaler("cuda", enabled=case["precision"] == "fp16")

    def step():
        with torch.autocast("cuda", dtype=dtype, enabled=mixed):
            loss = functional.cross_entropy(model(images), labels)
        optimizer.zero_grad(set_to_none=True)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        return loss.detach()

    return step


# ---------------------------------------------------------------------------------------------------------------
# Steps become records.


def metrics_of(times, allocated, reserved, profile):
    """`profile`: what `profiled` says of a step, or None."""
    found = [{"name": "step_time", "value": statistics.median(times), "unit": "ms"},
             {"name": "allocated_memory", "value": allocated / 2**30, "unit": "GiB"},
             {"name": "reserved_memory", "value": reserved / 2**30, "unit": "GiB"},
             {"name": "step_time_spread", "value": quartile_spread(times), "unit": ""},
             {"name": "step_time_least", "value": min(times), "unit": "ms"},
             {"name": "steps", "value": len(times), "unit": ""}]
    if profile and profile[0] > 0:
        found += [{"name": "kernels", "value": profile[0], "unit": ""},
                  {"name": "busy_time", "value": profile[1] / 1000.0, "unit": "ms"}]
    return found


def measure(step):
    import torch

    class Training:  # what timed_steps takes
        pass

    training = Training()
    training.step = step
    for _ in range(4):
        step()
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    times = timed_steps(training, *STEPS)
    allocated, reserved = torch.cuda.max_memory_allocated(), torch.cuda.max_memory_reserved()
    if not math.isfinite(step().item()):
        raise RuntimeError("the loss is not finite")
    try:
        profile = profiled(step)
    except Exception as error:  # no profiler on this machine: the step is measured all the same
        print(f"    kernels: {error}", file=sys.stderr)
        profile = None
    result = {"outcome": "ok", "metrics": metrics_of(times, allocated, reserved, profile)}
    if profile and profile[0] > 0:
        result["launches"] = profile[2]
    return result


def measured(case):
    """Outcome, metrics and launches. Whoever calls it gives memory back: an error that is handled still holds the
    tensors."""
    build = hugging_face_step if case["framework"] == "hugging_face" else vision_step
    try:
        return measure(build(case))
    except Exception as error:  # of any library: the next case may run
        said = str(error).strip().splitlines() or [""]
        if "out of memory" in str(error) or type(error).__name__ == "OutOfMemoryError":
            return {"outcome": "out of memory", "metrics": []}
        return {"outcome": f"failed: {type(error).__name__}: {said[0]}", "metrics": []}


def record_of(case, result):
    return {"id": case["id"], "scenario": scenario_of_case(case), **result}


def values_of(record):
    return {metric["name"]: metric["value"] for metric in record["metrics"]}


def host_of(records):
    """(the host's time per launch, launches it is of), or None where no record tells it."""
    for record in records:
        launches, values = record.get("launches"), values_of(record)
        if record["id"] == WAITS_FOR_HOST and launches and values["busy_time"] < BUSY_SHARE * values["step_time"]:
            return f"{1000.0 * values['step_time'] / launches:.3g}us", launches
    return None


def with_launch_time(record, launch_time):
    scenario = record["scenario"]
    if scenario["software"] != "hf-trainer":
        return record  # another script, whose host takes another time
    return {**record, "scenario": {**scenario, "training": {**scenario["training"], "launch_time": launch_time}}}


def document_of(gpu, records, about):
    """What `trainyard validate --records` reads. `about`: for people."""
    notes, host = NOTES, host_of(records)
    if host:
        launch_time, launches = host
        records = [with_launch_time(record, launch_time) for record in records]
        notes += (f" launch_time of Hugging Face's scripts, {launch_time.replace('us', ' us')}, is the step of "
                  f"\"{WAITS_FOR_HOST}\", which waits for the host, over its {launches} launches.")
    else:
        notes += (f" launch_time is the software's habit: no step of \"{WAITS_FOR_HOST}\" that waits for the host "
                  "was measured.")
    if not is_same_gpu(about["hardware"]["gpu"], gpu):
        notes += f" {about['hardware']['gpu']} is taken to be {gpu}."
    return {"source": "calibrate/proof/frameworks.py", "license": "as this project", "notes": notes, **about,
            "scenario": common_scenario(gpu), "records": records}


def versions():
    """Of the libraries that are there."""
    from importlib import metadata

    found = software()
    for name in ("transformers", "accelerate", "torchvision"):
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            pass
    return found


def summary_line(record):
    values = values_of(record)
    if "step_time" not in values:
        return record["outcome"]
    line = (f"{values['step_time']:9.2f} ms +- {100 * values['step_time_spread']:.1f} %"
            f"  {values['allocated_memory']:6.2f} GiB")
    if "kernels" in values:
        line += f"  {values['kernels']} kernels of {values['busy_time']:.2f} ms"
    return line


def presets():
    return sorted(os.path.splitext(name)[0] for name in os.listdir(os.path.join(CONFIGS, "gpus")))


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0],
                                     epilog="What exactly is measured stands at the top of this file.")
    parser.add_argument("--gpu", metavar="PRESET", help="this GPU's name in configs/gpus, such as h100-sxm5-80gb")
    parser.add_argument("--other-gpu", action="store_true",
                        help="measure though the driver gives the card another name than --gpu says")
    parser.add_argument("-o", "--output", default="framework-records.json", help="where records go (%(default)s)")
    parser.add_argument("--minutes", type=float, default=20, help="no case is begun after this time (%(default)s)")
    parser.add_argument("--only", default="", help="cases whose id contains this text")
    parser.add_argument("--list", action="store_true", help="print the cases and end")
    options = parser.parse_args()
    if not options.list and options.gpu not in presets():
        parser.error(f"--gpu {options.gpu}: expected one of {', '.join(presets())}" if options.gpu else
                     "--gpu is required: the scenarios name this GPU")
    return options


def main():
    options = arguments()
    cases = [case for case in all_cases() if options.only in case["id"]]
    if not cases:
        sys.exit(f"frameworks.py: no case is named like '{options.only}'; --list prints them")
    if options.list:
        print("\n".join(case["id"] for case in cases))
        return 0
    problem = check_device(on_cpu=False)
    if problem:
        sys.exit(f"frameworks.py: {problem}")

    about = {"date": time.strftime("%Y-%m-%d"), "hardware": hardware(), "software": versions()}
    card = about["hardware"]["gpu"]
    if not options.other_gpu and not is_same_gpu(card, options.gpu):
        sys.exit(f"frameworks.py: this GPU is {card}, which is not {options.gpu}: give --gpu its own preset, or "
                 f"--other-gpu too if it is to be taken for {options.gpu}")

    def measure_one(case):
        record = record_of(case, measured(case))
        release_memory()
        return record

    return measure_all("frameworks.py", cases, options, measure_one, summary_line=summary_line,
                       document_of=lambda records: document_of(options.gpu, records, about))


if __name__ == "__main__":
    sys.exit(main())
