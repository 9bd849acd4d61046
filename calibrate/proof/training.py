"""Steps of one case on one device, their times, and what they ran on. Imports PyTorch where it is needed: for processes
that run cases."""

import gc
import statistics
import subprocess
import sys
import time

DTYPES = {"bf16": "bfloat16", "fp32": "float32", "tf32": "float32"}
HOST_BOUND = (12, 32, 2)  # layers, hidden, heads so small that the host is what takes time


def release_memory():
    """What the allocator keeps of tensors that are gone goes back to the device."""
    import torch

    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


class Training:
    """Network, optimizer and inputs of one case on one device."""

    def __init__(self, case, device):
        import torch
        from torch import nn

        from networks import RMS_NORM, MasterOptimizer, build_gpt, build_llama, build_resnet50, built_on

        torch.manual_seed(1)
        tf32 = case["precision"] == "tf32"
        torch.backends.cuda.matmul.allow_tf32 = tf32
        torch.backends.cudnn.allow_tf32 = tf32
        torch.backends.cudnn.benchmark = True  # the fastest convolution for these sizes
        dtype = getattr(torch, DTYPES[case["precision"]])
        self.accumulate = case["accumulate"]
        is_text, compiled = case["kind"] != "resnet50", case["technique"] == "compiled"
        if case["kind"] == "llama" and RMS_NORM is None and device == "cuda":
            raise RuntimeError("a Llama needs rms_norm of PyTorch 2.4; by plain operators it is another network")
        build = {"gpt": build_gpt, "llama": build_llama, "resnet50": build_resnet50}[case["kind"]]
        with built_on(device):
            model = build(case)
        model = model.to(device=device, dtype=dtype).train()
        release_memory()  # of weights before they were cast, which no step has
        if is_text:
            shape = (case["batch"], case["sequence"])
            self.inputs = torch.randint(case["vocabulary"], shape, device=device)
            self.targets = torch.randint(case["vocabulary"], shape, device=device)
        else:
            for module in model.modules():
                if isinstance(module, nn.BatchNorm2d):
                    module.float()
            model = model.to(memory_format=torch.channels_last)
            images = torch.randn(case["batch"], 3, case["image"], case["image"], device=device, dtype=dtype)
            self.inputs = images.contiguous(memory_format=torch.channels_last)
            self.targets = torch.randint(case["classes"], (case["batch"],), device=device)
        self.count = sum(parameter.numel() for parameter in model.parameters())
        self.optimizer = MasterOptimizer(model.parameters(), adam=is_text)
        if compiled and case["kind"] == "llama":
            model.compile_parts()
        self.model = torch.compile(model) if compiled and case["kind"] == "gpt" else model

    def step(self):
        for _ in range(self.accumulate):
            loss = self.model(self.inputs, self.targets)
            if self.accumulate > 1:
                loss = loss / self.accumulate
            loss.backward()
        self.optimizer.step()
        return loss.detach()


def timed_steps(training, budget_s, least, most):
    """Milliseconds of each step, by CUDA events that are read when all steps have been enqueued."""
    import torch

    began = time.monotonic()
    training.step()
    torch.cuda.synchronize()
    once = max(time.monotonic() - began, 1e-4)
    steps = int(min(most, max(least, budget_s / once)))
    events = [torch.cuda.Event(enable_timing=True) for _ in range(steps + 1)]
    events[0].record()
    for event in events[1:]:
        training.step()
        event.record()
    torch.cuda.synchronize()
    return [before.elapsed_time(after) for before, after in zip(events, events[1:])]


def timed_on_cpu(training, budget_s):
    """The same by the clock of the process that computes."""
    times = []
    began = time.perf_counter()
    while len(times) < 5 or (time.perf_counter() - began < budget_s and len(times) < 50):
        before = time.perf_counter()
        training.step()
        times.append(1000.0 * (time.perf_counter() - before))
    return times


def counted(kernels):
    """(kernels, their microseconds, launches) of pairs of name and microseconds. Copies of inputs are no kernels, and
    memsets, which libraries enqueue beside a kernel, no launches."""
    kernels = [(name.lower(), time) for name, time in kernels if not name.lower().startswith("memcpy htod")]
    launches = sum(1 for name, _ in kernels if not name.startswith("memset"))
    return len(kernels), sum(time for _, time in kernels), launches


def profiled(step):
    """What `counted` says of one step, by the profiler."""
    import torch
    from torch.autograd import DeviceType
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CUDA]) as profiler:
        step()
        torch.cuda.synchronize()
    return counted([(event.name, event.time_range.elapsed_us()) for event in profiler.events()
                    if event.device_type == DeviceType.CUDA])


def host_time(case):
    """Host microseconds per kernel of this script, and the kernels counted; None where the profiler counts none."""
    layers, hidden, heads = HOST_BOUND
    small = dict(case, layers=layers, hidden=hidden, heads=heads, vocabulary=64, sequence=16, batch=1, accumulate=1,
                 recompute="none")
    if case["kind"] == "llama":
        small.update(kv_heads=1, ffn=2 * hidden)
    training = Training(small, "cuda")
    for _ in range(5):
        training.step()
    step_ms = statistics.median(timed_steps(training, 1.0, 20, 100))
    kernels, _, _ = profiled(training.step)
    if kernels == 0:
        return None
    return {"us_per_kernel": 1000.0 * step_ms / kernels, "step_ms": step_ms, "kernels": kernels}


def quartile_spread(values):
    first, middle, third = statistics.quantiles(values, n=4, method="inclusive")
    return (third - first) / middle


def processors():
    """All cores of the process, as one device."""
    import torch

    with open("/proc/cpuinfo", encoding="utf-8") as lines:
        names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return {"gpu": names[0] if names else "unknown", "num_gpus": 1, "cores": torch.get_num_threads()}


def hardware():
    import torch

    properties = torch.cuda.get_device_properties(0)
    free, total = torch.cuda.mem_get_info()
    found = {"gpu": properties.name, "num_gpus": 1, "capability": f"{properties.major}.{properties.minor}",
             "multiprocessors": properties.multi_processor_count, "memory_bytes": total, "usable_memory_bytes": free}
    query = "driver_version,power.limit,clocks.max.sm,clocks.max.mem"
    try:
        done = subprocess.run(["nvidia-smi", "-i", "0", f"--query-gpu={query}", "--format=csv,noheader"],
                              capture_output=True, text=True, timeout=30, check=False)
        values = [value.strip() for value in done.stdout.strip().split(",")]
        if done.returncode == 0 and len(values) == 4:
            found.update(zip(("driver", "power_limit", "clock_sm_max", "clock_memory_max"), values))
    except (OSError, subprocess.TimeoutExpired):
        pass
    return found


def software():
    import torch

    return {"torch": torch.__version__, "cuda": torch.version.cuda, "cudnn": torch.backends.cudnn.version(),
            "python": sys.version.split()[0]}
