#!/usr/bin/env python3
"""Measures what the operators of PyTorch cost on this machine's processors, as samples for trainyard fit.

usage: probe_cpu.py [--output SAMPLES.jsonl] [--threads N] [--minutes 4] [--keep-memory] [--quick] [--dry-run]

Needs Python 3.9 and PyTorch 1.13 or later. The file is appended to, as the probes of GPUs do it (docs/samples.md).

What is measured, exactly:
- Operators as a script calls them, one after another in one thread, each on all cores of the process: their
  times include their calls, as nothing runs beside them. What autograd and the script take between them is not there.
- Operands are random, and take turns among copies of three times the last cache in all, so that none finds its own
  there. Results are new tensors, as they are in training: taking the memory, and the system's handing out of pages,
  is part of the time. With --keep-memory the process keeps what it frees, up to 32 MiB at a time, as under jemalloc or
  tcmalloc, which PyTorch's guide for processors advises.
- "activation" is GELU, which computes more than it moves; ReLU is as "elementwise" multiplies are.
- A time is the median of batches of calls, at least 3 ms long each, after one batch that is not timed; the spread is
  that of the batches.
"""

import argparse
import ctypes
import datetime
import itertools
import json
import os
import platform
import statistics
import sys
import time

import torch
from torch.nn import functional

BATCH_S, BATCHES, MOST_COPIES = 3e-3, 7, 64
FP32 = 4  # bytes


def cpu_facts():
    """Name, sockets and caches of the processors, as Linux tells them."""
    facts = {"name": platform.processor() or platform.machine(), "sockets": 1, "last_cache": 32 << 20}
    names, sockets = [], set()
    with open("/proc/cpuinfo", encoding="utf-8") as lines:
        for line in lines:
            key, _, value = line.partition(":")
            if key.strip() == "model name":
                names.append(value.strip())
            if key.strip() == "physical id":
                sockets.add(value.strip())
    if names:
        facts["name"] = names[0]
    facts["sockets"] = max(1, len(sockets))
    for level in (3, 2):
        path = f"/sys/devices/system/cpu/cpu0/cache/index{level}/size"
        if os.path.exists(path):
            with open(path, encoding="utf-8") as text:
                facts["last_cache"] = int(text.read().strip().rstrip("K")) << 10
            break
    return facts


def product_library():
    """The library of matrix products that this process has loaded: they differ by factors."""
    with open("/proc/self/maps", encoding="utf-8") as lines:
        paths = {line.split()[-1] for line in lines if ".so" in line}
    for word in ("mkl_rt", "openblas-openmp", "openblas-pthread", "openblas", "blis", "blas"):
        if any(word in path for path in paths):
            return word
    return "built in"


def memory_bytes():
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def random_tensor(*shape):
    return torch.rand(*shape) - 0.5


class Turns:
    """Copies of operands that take turns, of `cache` bytes three times in all."""

    def __init__(self, make, size, cache):
        count = 1 if cache == 0 else min(MOST_COPIES, max(1, -(-3 * cache // max(size, 1))))
        self.copies = itertools.cycle([make() for _ in range(count)])

    def __call__(self):
        return next(self.copies)


def timed(call):
    """Median seconds of one call, spread of the batches."""
    began = time.perf_counter()
    call()
    once = max(time.perf_counter() - began, 1e-7)
    calls = max(1, int(BATCH_S / once))
    times = []
    for batch in range(BATCHES + 1):
        began = time.perf_counter()
        for _ in range(calls):
            call()
        if batch > 0:
            times.append((time.perf_counter() - began) / calls)
        if sum(times) > 2 and batch >= 3:
            break
    times.sort()
    low, high = times[len(times) // 4], times[(3 * len(times)) // 4]
    middle = statistics.median(times)
    return middle, (high - low) / middle, len(times)


class Samples:
    def __init__(self, path, seconds):
        self.file = open(path, "a", encoding="utf-8")  # for the whole run
        self.ends = time.monotonic() + seconds
        self.count = 0

    def late(self):
        return time.monotonic() > self.ends

    def write(self, **values):
        self.file.write(json.dumps(values) + "\n")
        self.file.flush()

    def measure(self, call, **values):
        seconds, spread, repeats = timed(call)
        self.count += 1
        self.write(**values, time_us=round(seconds * 1e6, 4), spread=round(spread, 4), repeats=repeats)


def keep_memory():
    """Lets this process keep what it frees, up to 32 MiB at a time; without, glibc gives large tensors back, and each
    is new memory, which the system hands out page by page and clears."""
    m_trim_threshold, m_mmap_threshold = -1, -3
    libc = ctypes.CDLL(None)
    libc.mallopt(m_mmap_threshold, 32 << 20)
    libc.mallopt(m_trim_threshold, 1 << 30)


def write_machine(samples, threads, facts):
    library = product_library()
    samples.write(kind="machine", probe="probe_cpu.py 1", date=datetime.date.today().isoformat(), gpus=[{
        "name": facts["name"], "multiprocessors": threads, "memory_bytes": memory_bytes(),
        "l2_bytes": facts["last_cache"]}], cpu=facts["name"], sockets=facts["sockets"],
        host_memory_bytes=memory_bytes(), driver=f"PyTorch {torch.__version__}, products by {library}")
    if library == "blas":
        print("probe_cpu: products by the reference BLAS, some fifty times slower than others: install OpenBLAS "
              "(libopenblas0-openmp on Debian)", file=sys.stderr)


# ---------------------------------------------------------------------------------------------------------------
# Suites: each yields calls with the keys of their samples, the most telling first.


def gemm_shapes(quick):
    sizes = [(64, 64, 64), (128, 128, 128), (256, 256, 256), (512, 512, 512), (1024, 1024, 1024), (2048, 1024, 1024),
             (32, 1024, 1024), (256, 2048, 512), (2048, 256, 256), (512, 512, 2048), (1, 1024, 1024), (16, 4096, 1024),
             (1024, 10, 256), (4096, 64, 64), (1024, 64, 576), (256, 512, 4608), (128, 1000, 512), (2048, 768, 256),
             (384, 384, 1536), (96, 2304, 768), (700, 300, 900), (1500, 130, 70), (8, 512, 512), (64, 2048, 2048),
             (3136, 64, 147), (784, 128, 1152), (2048, 2048, 1024), (300, 4096, 512)]
    return sizes[:10] if quick else sizes


def gemms(quick):
    for m, n, k in gemm_shapes(quick):
        for layout in ("TN", "NN", "NT"):
            yield gemm_case(m, n, k, 1, layout)
    for batch, m, n, k in [(16, 128, 128, 64), (16, 128, 64, 128), (48, 64, 64, 32), (8, 512, 512, 64),
                           (8, 512, 64, 512), (64, 64, 32, 64), (4, 1024, 1024, 64), (32, 256, 64, 256)]:
        yield gemm_case(m, n, k, batch, "NN")


def gemm_case(m, n, k, batch, layout):
    left = (k, m) if layout == "NT" else (m, k)
    right = (n, k) if layout == "TN" else (k, n)
    lead = () if batch == 1 else (batch,)

    def make():
        return random_tensor(*lead, *left), random_tensor(*lead, *right)

    def run(operands):
        a, b = operands
        a = a.transpose(-1, -2) if layout == "NT" else a
        b = b.transpose(-1, -2) if layout == "TN" else b
        torch.matmul(a, b)

    size = FP32 * batch * (m * k + k * n + m * n)
    return make, run, size, dict(kind="gemm", dtype="fp32", m=m, n=n, k=k, batch=batch, layout=layout)


CONVOLUTIONS = [  # network, input channels and side, output channels, kernel, stride, groups
    ("resnet", 3, 224, 64, 7, 2, 1), ("resnet", 64, 56, 64, 3, 1, 1), ("resnet", 64, 56, 256, 1, 1, 1),
    ("resnet", 128, 28, 128, 3, 1, 1), ("resnet", 256, 56, 128, 1, 1, 1), ("resnet", 256, 14, 256, 3, 1, 1),
    ("resnet", 512, 7, 512, 3, 1, 1), ("resnet", 128, 56, 128, 3, 2, 1), ("resnet", 1024, 14, 256, 1, 1, 1),
    ("resnet", 512, 7, 2048, 1, 1, 1), ("vgg", 64, 112, 128, 3, 1, 1), ("vgg", 256, 28, 512, 3, 1, 1),
    ("small", 3, 64, 64, 7, 2, 1), ("small", 3, 32, 64, 3, 1, 1), ("small", 64, 16, 64, 3, 1, 1),
    ("small", 256, 16, 64, 1, 1, 1), ("small", 128, 8, 512, 1, 1, 1), ("small", 1024, 4, 256, 1, 1, 1),
    ("small", 512, 2, 512, 3, 1, 1), ("small", 1024, 4, 2048, 1, 2, 1), ("small", 128, 8, 128, 3, 1, 1),
    ("small", 64, 16, 128, 3, 2, 1), ("small", 256, 4, 256, 3, 1, 1), ("mobilenet", 96, 56, 96, 3, 1, 96),
    ("mobilenet", 384, 14, 384, 3, 1, 384), ("filters", 3, 100, 32, 7, 1, 1)]


def convolutions(quick):
    for batch in (4,) if quick else (8, 1, 32):
        for row in CONVOLUTIONS:
            for phase in ("forward", "data_gradient", "weight_gradient"):
                if not (phase == "data_gradient" and row[1] == 3):
                    yield convolution_case(batch, row, phase)


def convolution_case(batch, row, phase):
    network, inputs, side, outputs, kernel, stride, groups = row
    out_side = (side + 2 * (kernel // 2) - kernel) // stride + 1
    padding = (kernel // 2, kernel // 2)
    strides = (stride, stride)

    def make():
        return (random_tensor(batch, inputs, side, side), random_tensor(outputs, inputs // groups, kernel, kernel),
                random_tensor(batch, outputs, out_side, out_side))

    def run(operands):
        image, weight, gradient = operands
        if phase == "forward":
            functional.conv2d(image, weight, None, strides, padding, 1, groups)
        else:
            wanted = [phase == "data_gradient", phase == "weight_gradient", False]
            torch.ops.aten.convolution_backward(gradient, image, weight, None, strides, padding, (1, 1), False, (0, 0),
                                                groups, wanted)

    size = FP32 * batch * (inputs * side * side + outputs * out_side * out_side)
    return make, run, size, {
        "kind": "convolution", "pass": phase, "dtype": "fp32", "batch": batch, "in_channels": inputs,
        "out_channels": outputs, "in_height": side, "in_width": side, "out_height": out_side, "out_width": out_side,
        "kernel_height": kernel, "kernel_width": kernel, "groups": groups, "stride": stride, "network": network}


def memory_case(op, variant, make, run, read, written, rows, columns):
    return make, run, read + written, dict(kind="memory", op=op, variant=variant, dtype="fp32", rows=rows,
                                           columns=columns, read_bytes=read, written_bytes=written)


def flat_cases(count):
    """On tensors of `count` numbers."""
    size, columns = FP32 * count, 256
    rows = count // columns

    def make(tensors):
        return lambda: [random_tensor(rows, columns) for _ in range(tensors)]

    def case(op, variant, tensors, read, written, run):
        return memory_case(op, variant, make(tensors), run, read * size, written * size, rows, columns)

    yield case("elementwise", "add", 2, 2, 1, lambda t: torch.add(t[0], t[1]))
    yield case("elementwise", "copy", 1, 1, 1, lambda t: t[0].clone())
    yield case("elementwise", "multiply", 1, 1, 1, lambda t: torch.mul(t[0], 0.5))
    yield case("activation", "forward", 1, 1, 1, lambda t: functional.gelu(t[0]))
    yield case("activation", "backward", 2, 2, 1, lambda t: torch.ops.aten.gelu_backward(t[0], t[1]))
    yield case("dropout", "forward", 1, 1, 1, lambda t: functional.dropout(t[0], 0.1, True))
    yield case("softmax", "forward", 1, 1, 1, lambda t: torch.softmax(t[0], -1))
    yield case("softmax", "backward", 2, 2, 1,
               lambda t: torch.ops.aten._softmax_backward_data(t[0], t[1], -1, torch.float32))
    yield from norm_cases(count)

    def adam(t):
        weight, gradient, first, second = t[0], t[1], t[2], t[3]
        first.mul_(0.9).add_(gradient, alpha=0.1)
        second.mul_(0.999).addcmul_(gradient, gradient, value=0.001)
        weight.addcdiv_(first, second.abs().sqrt_().add_(1e-8), value=-1e-3)

    yield case("optimizer", "adam", 4, 4, 3, adam)
    yield case("optimizer", "sgd", 2, 2, 1, lambda t: t[0].add_(t[1], alpha=-1e-3))


def norm_cases(count):
    size, columns = FP32 * count, 512
    rows = count // columns

    def layer():
        return [random_tensor(rows, columns), random_tensor(rows, columns), random_tensor(columns),
                random_tensor(rows, 1), torch.rand(rows, 1) + 0.5]

    yield memory_case("layer-norm", "forward", layer, lambda t: functional.layer_norm(t[0], (columns,), t[2], t[2]),
                      size, size, rows, columns)
    yield memory_case("layer-norm", "backward", layer, lambda t: torch.ops.aten.native_layer_norm_backward(
        t[0], t[1], (columns,), t[3], t[4], t[2], t[2], [True, True, True]), 2 * size, size, rows, columns)
    channels, side = 64, 16
    batch = max(1, count // (channels * side * side))
    size = FP32 * batch * channels * side * side

    def images():
        return [random_tensor(batch, channels, side, side), random_tensor(batch, channels, side, side),
                torch.rand(channels) + 0.5, torch.zeros(channels)]

    # The forward pass reads its operand for the statistics and again.
    yield memory_case("batch-norm", "forward", images, lambda t: torch.ops.aten.native_batch_norm(
        t[0], t[2], t[3], None, None, True, 0.1, 1e-5), 2 * size, size, batch, channels * side * side)
    yield memory_case("batch-norm", "backward", images, lambda t: torch.ops.aten.native_batch_norm_backward(
        t[0], t[1], t[2], None, None, t[3], t[2], True, 1e-5, [True, True, True]), 4 * size, size, batch,
        channels * side * side)
    yield memory_case("pooling", "forward", images, lambda t: functional.max_pool2d(t[0], 2), size, size // 4, batch,
                      channels * side * side)


def token_cases(tokens, vocabulary, hidden):
    size = FP32 * tokens * hidden

    def make():
        return [random_tensor(vocabulary, hidden), torch.randint(vocabulary, (tokens,)), random_tensor(tokens, hidden)]

    yield memory_case("embedding", "forward", make, lambda t: functional.embedding(t[1], t[0]), size, size, tokens,
                      hidden)
    yield memory_case("embedding", "scatter-add", make, lambda t: torch.ops.aten.embedding_dense_backward(
        t[2], t[1], vocabulary, -1, False), size, FP32 * vocabulary * hidden, tokens, hidden)

    def logits():
        return [random_tensor(tokens, vocabulary), torch.randint(vocabulary, (tokens,))]

    yield memory_case("cross-entropy", "forward", logits, lambda t: functional.cross_entropy(t[0], t[1]),
                      FP32 * tokens * vocabulary, FP32 * tokens * vocabulary, tokens, vocabulary)


def memory_cases(quick):
    counts = [1 << 20, 1 << 16, 1 << 23, 1 << 18, 1 << 21] if quick else [
        1 << 20, 1 << 16, 1 << 23, 1 << 18, 1 << 21, 1 << 14, 1 << 24, 1 << 22, 1 << 19]
    for count in counts:
        yield from flat_cases(count)
    for tokens, vocabulary, hidden in [(512, 1000, 256), (2048, 8000, 256), (256, 256, 128), (1024, 16000, 512),
                                       (4096, 2000, 128)]:
        yield from token_cases(tokens, vocabulary, hidden)


def measure_launch(samples):
    """What Python and autograd take between two operators of a script, on average of both passes: a chain of products
    of one number, with the backward pass, over the same without autograd."""
    length = 64

    def chain(value):
        for _ in range(length):
            value = value * 1.5
        return value

    def trained():
        with torch.enable_grad():
            chain(torch.ones(1, requires_grad=True)).backward()

    bare = timed(lambda: chain(torch.ones(1)))[0]
    seconds, spread, repeats = timed(trained)
    beside_us = round((seconds - 2 * bare) / (2 * length) * 1e6, 4)
    if beside_us <= 0:
        return  # the machine was too busy to tell
    samples.count += 1
    samples.write(kind="launch", what="kernel", time_us=beside_us, spread=round(spread, 4), repeats=repeats)


def copies(quick):
    """From memory to memory of the host."""
    for count in (1 << 16, 1 << 20) if quick else (1 << 12, 1 << 16, 1 << 18, 1 << 20, 1 << 22, 1 << 24):
        def make(count=count):
            return [random_tensor(count), random_tensor(count)]
        yield make, lambda t: t[0].copy_(t[1]), 2 * FP32 * count, dict(kind="copy", direction="h2h", pinned=False,
                                                                       bytes=FP32 * count)


def run_all(samples, quick, cache, largest):
    """A case of each suite in turn, so that what is cut off is the end of all; none with more bytes than `largest`."""
    suites = [gemms(quick), convolutions(quick), memory_cases(quick), copies(quick)]
    cases = itertools.chain.from_iterable(itertools.zip_longest(*suites))
    for case in cases:
        if samples.late():
            print("probe_cpu: out of time; what is measured is kept", file=sys.stderr)
            return
        if case is None or case[2] > largest:
            continue
        make, run, size, keys = case
        cold = Turns(make, size, cache)
        samples.measure(lambda: run(cold()), **keys)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--output", default="samples.jsonl", help="file to append to")
    parser.add_argument("--threads", type=int, default=0, help="cores to use; default: all of the process")
    parser.add_argument("--minutes", type=float, default=4, help="stop then; what is measured is kept")
    parser.add_argument("--keep-memory", action="store_true", help="results take memory that was freed before")
    parser.add_argument("--quick", action="store_true", help="fewer shapes")
    parser.add_argument("--dry-run", action="store_true", help="one call of each case that is small: a test")
    options = parser.parse_args()
    # Some libraries of products leave PyTorch one thread when they are loaded.
    torch.set_num_threads(options.threads or len(os.sched_getaffinity(0)))
    torch.manual_seed(1)
    if options.keep_memory:
        keep_memory()
    facts = cpu_facts()
    samples = Samples(options.output, 60 * options.minutes)
    write_machine(samples, torch.get_num_threads(), facts)
    if options.dry_run:
        global BATCH_S, BATCHES  # pylint: disable=global-statement
        BATCH_S, BATCHES = 0.0, 1
    with torch.no_grad():
        measure_launch(samples)
        if options.dry_run:
            run_all(samples, True, 0, 1 << 20)
        else:
            run_all(samples, options.quick, facts["last_cache"], sys.maxsize)
    print(f"probe_cpu: {samples.count} samples in {options.output}", file=sys.stderr)


if __name__ == "__main__":
    main()
