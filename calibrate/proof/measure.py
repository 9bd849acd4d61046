#!/usr/bin/env python3
"""Measures real training steps with PyTorch on one GPU, or on processors, for compare.py.

usage: measure.py [-o RECORDS.json] [--minutes 20] [--quick] [--only TEXT] [--list] [--cpu [--threads N]] [--dry-run]

Needs Python 3.10 and PyTorch 2.1 or later, nothing else. Each case runs in a process of its own, so that one that
runs out of memory or fails leaves the next ones a clean GPU; its record is in the file as soon as it is
measured. --cpu measures on the processors, in fp32, all cores of the process as one
device, and needs PyTorch 1.13. --dry-run runs a tiny case of each kind on the CPU: it tests this program and measures
nothing.

What is measured, exactly, so that a scenario can say the same:
- No autocast. In bf16 the weights, activations and gradients are bf16; the optimizer keeps fp32 master weights.
  A step copies the gradients to fp32, runs torch.optim.AdamW(fused=True) (networks of images: SGD with momentum)
  on the master weights, and copies these back: 2 + 2 + 12 bytes a parameter, 4 more during the step. Batch norms
  stay in fp32. In fp32 and tf32 the optimizer works on the weights themselves.
- Gradients are freed after each step (zero_grad's set_to_none).
- GPT: pre-norm, learned positions, biases, GELU, no dropout, output weights tied; loss in fp32.
- Llama: RMSNorm in one operator, rotary positions as products of complex numbers in fp32, queries, keys and values of
  a product each, keys and values repeated for their group of queries, SwiGLU, no biases, output weights of their own;
  loss in fp32. Needs PyTorch 2.4.
- Techniques: "eager" has unfused attention (matmul, scale, mask, softmax, matmul), "fused" has
  scaled_dot_product_attention (of a Llama cuDNN's before others), "compiled" is torch.compile with
  scaled_dot_product_attention: of all of a GPT, of each block and of the loss of a Llama.
- Full recomputation is torch.utils.checkpoint without reentrance around each block. It ends with the last tensor that
  the backward pass needs, so the last product is not made again; a compiled block is made again whole.
- Inputs lie on the GPU. Times are CUDA events between steps that follow each other without a pause.
- Host time per kernel: a step of the same script on a network so small that the GPU waits for the host, divided by
  the kernels that the profiler counts in it.
"""

import argparse
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time

sys.path.insert(1, os.path.dirname(os.path.abspath(__file__)))

from cases import all_cases, cpu_cases, dry_cases, identity, model_flops, parameters
from measuring import measure_all
from training import (Training, hardware, host_time, processors, quartile_spread, release_memory, software,
                      timed_on_cpu, timed_steps)

FORMAT_NOTES = ("Training steps on one device, measured by calibrate/proof/measure.py; its first lines say what is "
                "measured. step_time: median; step_time_spread: (third - first quartile) / median.")
CASE_TIMEOUT_S = 600


# ---------------------------------------------------------------------------------------------------------------
# One case, in its own process.


def metrics_of(case, times, on_gpu):
    import torch

    step_ms = statistics.median(times)
    found = [{"name": "step_time", "value": step_ms, "unit": "ms"},
             {"name": "step_time_spread", "value": quartile_spread(times), "unit": ""},
             {"name": "step_time_least", "value": min(times), "unit": "ms"},
             {"name": "steps", "value": len(times), "unit": ""}]
    if on_gpu:
        found += [{"name": "peak_allocated_memory", "value": torch.cuda.max_memory_allocated() / 2**30, "unit": "GiB"},
                  {"name": "peak_reserved_memory", "value": torch.cuda.max_memory_reserved() / 2**30, "unit": "GiB"}]
    work = model_flops(case)
    if work:
        found.append({"name": "model_tflops", "value": work / step_ms / 1e9, "unit": "TFLOP/s"})
    return found


def measure(case, device, threads, dry):
    """The part of the record that needs the device."""
    import torch

    if dry:
        training = Training(case, "cpu")
        if training.count != parameters(case):
            raise RuntimeError(f"{training.count} parameters, expected {parameters(case)}")
        times = []
        for _ in range(3):
            began = time.monotonic()
            loss = training.step()
            times.append(1000.0 * (time.monotonic() - began))
        if not math.isfinite(loss.item()):
            raise RuntimeError(f"the loss is {loss.item()}")
        return {"outcome": "ok", "optimizer": training.optimizer.name, "metrics": metrics_of(case, times, False),
                "optimizer_implementation": training.optimizer.implementation}
    if device == "cpu":
        # Some libraries of products leave PyTorch one thread when they are loaded.
        torch.set_num_threads(threads or len(os.sched_getaffinity(0)))
        training = Training(case, device)
        training.step()
        return {"outcome": "ok", "optimizer": training.optimizer.name, "hardware": processors(),
                "optimizer_implementation": training.optimizer.implementation,
                "metrics": metrics_of(case, timed_on_cpu(training, 5.0), False)}

    result = {"outcome": "ok", "hardware": hardware()}
    out_of_memory = False
    try:
        training = Training(case, "cuda")
        result["optimizer"] = training.optimizer.name
        result["optimizer_implementation"] = training.optimizer.implementation
        for _ in range(5 if case["technique"] == "compiled" else 3):
            training.step()
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        result["metrics"] = metrics_of(case, timed_steps(training, 4.0, 10, 50), True)
        if not math.isfinite(training.step().item()):
            result["outcome"] = "failed: the loss is not finite"
    except RuntimeError as error:
        if not isinstance(error, torch.cuda.OutOfMemoryError) and "out of memory" not in str(error):
            raise
        out_of_memory = True
    if out_of_memory:
        return dict(result, outcome="oom", metrics=[])
    if case["kind"] != "resnet50":
        training = None
        release_memory()
        if hasattr(torch, "_dynamo"):
            torch._dynamo.reset()
        try:
            result["host"] = host_time(case)
        except Exception as error:  # no profiler on this machine: the step is measured all the same
            print(f"    host time per kernel: {error}", file=sys.stderr)
    return result


def run_case(case, device, threads, dry, path):
    """In the case's own process: everything that is known afterwards, to a file."""
    result = dict(measure(case, device, threads, dry), software=software())
    with open(path, "w", encoding="utf-8") as stream:
        json.dump(result, stream)


# ---------------------------------------------------------------------------------------------------------------
# Records.


def described(case):
    """What a scenario needs, in the words of the record format."""
    if case["kind"] == "gpt":
        model = {"name": case["name"], "layers": case["layers"], "hidden": case["hidden"], "heads": case["heads"],
                 "kv_heads": case["heads"], "ffn": 4 * case["hidden"], "vocab": case["vocabulary"],
                 "seq": case["sequence"], "act": "gelu", "norm": "layer_norm", "positional": "learned",
                 "biases": True, "dropout": False, "tied_embeddings": True}
    elif case["kind"] == "llama":
        model = {"name": case["name"], "layers": case["layers"], "hidden": case["hidden"], "heads": case["heads"],
                 "kv_heads": case["kv_heads"], "ffn": case["ffn"], "vocab": case["vocabulary"],
                 "seq": case["sequence"], "act": "swiglu", "norm": "rms_norm", "positional": "rope",
                 "biases": False, "dropout": False, "tied_embeddings": False}
    else:
        model = {"name": "resnet50", "image": case["image"], "classes": case["classes"], "layout": "channels_last"}
    model["parameters"] = parameters(case)
    half = case["precision"] == "bf16"
    how = {}
    if case["kind"] == "llama":
        how["projections"] = how["gate_projection"] = "separate"
        how["key_value_heads"] = "repeated"
        how["loss"] = "compiled" if case["technique"] == "compiled" else "eager"
    if case["recompute"] == "full":
        how["recompute_stops_early"] = case["technique"] != "compiled"
    return {"model": model, "parallelism": {"tp": 1, "pp": 1, "dp": 1},
            "batch": {"mbs": case["batch"], "gbs": case["batch"] * case["accumulate"]},
            "precision": case["precision"], "gradients": "bf16" if half else "fp32",
            "master_weights": "fp32" if half else "none", "recompute": case["recompute"],
            "technique": case["technique"], **how, "framework": "PyTorch"}


def record_of(case, result, date, dry):
    hardware_found = result.pop("hardware", {"gpu": "none (dry run)" if dry else "unknown", "num_gpus": 1})
    source = {"title": "calibrate/proof/measure.py", "date": date, **result.pop("software", {})}
    for key in ("driver",):
        if key in hardware_found:
            source[key] = hardware_found[key]
    record = {"id": identity(case), "source": source, "hardware": hardware_found, **described(case), **result}
    if dry:
        record["dry_run"] = True
    return record


def last_line(text):
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1][:300] if lines else "no message"


def child(case, options, timeout):
    """The result of one case; what went wrong is a result too."""
    handle, path = tempfile.mkstemp(suffix=".json")
    os.close(handle)
    try:
        command = [sys.executable, os.path.abspath(__file__), "--case", json.dumps(case), "--result", path]
        command += ["--threads", str(options.threads)]
        command += [flag for flag, given in (("--dry-run", options.dry_run), ("--cpu", options.cpu)) if given]
        done = subprocess.run(command, stderr=subprocess.PIPE, text=True,
                              timeout=timeout, check=False)
        if done.returncode != 0:
            return {"outcome": f"failed: {last_line(done.stderr)}", "metrics": []}
        with open(path, encoding="utf-8") as stream:
            return json.load(stream)
    except subprocess.TimeoutExpired:
        return {"outcome": f"failed: took more than {timeout:.0f} s", "metrics": []}
    finally:
        os.unlink(path)


def summary_line(record):
    values = {metric["name"]: metric["value"] for metric in record["metrics"]}
    if "step_time" not in values:
        return record["outcome"]
    line = f"{values['step_time']:9.2f} ms +- {100 * values['step_time_spread']:.1f} %"
    if "peak_allocated_memory" in values:
        line += f"  {values['peak_allocated_memory']:6.2f} GiB"
    if "model_tflops" in values and not record.get("dry_run"):
        line += f"  {values['model_tflops']:6.1f} TFLOP/s"
    return line + ("" if record["outcome"] == "ok" else f"  {record['outcome']}")


def check_device(on_cpu):
    """A sentence why nothing can be measured here, or nothing. In a process of its own, as CUDA stays in its parent."""
    code = "import torch\n" + ("" if on_cpu else "assert torch.cuda.is_available(), 'PyTorch finds no CUDA device'\n")
    done = subprocess.run([sys.executable, "-c", code], stderr=subprocess.PIPE, text=True, check=False)
    return "" if done.returncode == 0 else last_line(done.stderr)


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0],
                                     epilog="What exactly is measured stands at the top of this file.")
    parser.add_argument("-o", "--output", default="proof-records.json", help="where records go (%(default)s)")
    parser.add_argument("--minutes", type=float, default=20, help="no case is begun after this time (%(default)s)")
    parser.add_argument("--quick", action="store_true", help="eight cases, about three minutes")
    parser.add_argument("--only", default="", help="cases whose id contains this text")
    parser.add_argument("--list", action="store_true", help="print the cases and end")
    parser.add_argument("--cpu", action="store_true", help="measure small cases on this machine's processors")
    parser.add_argument("--threads", type=int, default=0, help="of --cpu: cores to use; default: all of the process")
    parser.add_argument("--dry-run", action="store_true", help="tiny cases on the CPU; nothing is measured")
    parser.add_argument("--case", help=argparse.SUPPRESS)
    parser.add_argument("--result", help=argparse.SUPPRESS)
    return parser.parse_args()


def main():
    options = arguments()
    if options.case:
        device = "cpu" if options.cpu else "cuda"
        return run_case(json.loads(options.case), device, options.threads, options.dry_run, options.result)
    choose = cpu_cases if options.cpu else all_cases
    cases = dry_cases() if options.dry_run else choose(options.quick)
    cases = [case for case in cases if options.only in identity(case)]
    if not cases:
        sys.exit(f"measure.py: no case is named like '{options.only}'; --list prints them")
    if options.list:
        print("\n".join(identity(case) for case in cases))
        return None
    problem = check_device(options.dry_run or options.cpu)
    if problem:
        sys.exit(f"measure.py: {problem}")

    date = time.strftime("%Y-%m-%d")
    return measure_all(
        "measure.py", cases, options,
        measure_one=lambda case: record_of(case, child(case, options, CASE_TIMEOUT_S), date, options.dry_run),
        document_of=lambda records: {"notes": FORMAT_NOTES, "records": records},
        summary_line=summary_line)


if __name__ == "__main__":
    sys.exit(main())
