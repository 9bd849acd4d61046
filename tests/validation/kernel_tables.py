"""Tables of measured kernels as rows that `trainyard kernel` can be asked.

Each converter takes a line of its table and returns rows: gpu (a preset), group (what is averaged together), source (as
profiles name it), time_us (measured) and spec (keys of docs/kernel.md); or it raises LeftOut.
"""

import re


class LeftOut(Exception):
    """Why the program is not asked."""


# Words of a GPU's name, without case and spaces, to a preset; the first that fits.
GPUS = [
    (r"a100.*pcie.*40|a100.*40.*pcie", "a100-pcie-40gb"), (r"a100.*pcie", "a100-pcie-80gb"),
    (r"a100.*40", "a100-sxm4-40gb"), (r"^(nvidia)?a100", "a100-sxm4-80gb"), (r"^a40$", "a40"), (r"^a10(24gb)?$", "a10"),
    (r"^a10g(24gb)?$", "a10g"),
    (r"h100.*500w|h100.*96gb|notstated|unspecified|x8|2\.4", None), (r"h100.*nvl", "h100-nvl-94gb"),
    (r"h100.*pcie", "h100-pcie-80gb"), (r"^(nvidia)?h100", "h100-sxm5-80gb"), (r"h200.*nvl", None),
    (r"^(nvidia)?h200", "h200-sxm5-141gb"), (r"h800.*pcie", None), (r"^h800", "h800-sxm5-80gb"),
    (r"^(nvidia)?h20(96gb)?$", "h20-96gb"), (r"^gh200(96gb|sxm)?$", "gh200-96gb"),
    (r"unnamed", None), (r"^(nvidia)?b200", "b200-180gb"), (r"^b300", "b300-288gb"), (r"^gb200", "gb200-186gb"),
    (r"^gb300", "gb300-288gb"), (r"^(nvidia)?l40s$", "l40s"), (r"^(nvidia)?l4$", "l4"), (r"3090ti", None),
    (r"4090d|48gb", None), (r"3090", "rtx-3090"), (r"4090", "rtx-4090"), (r"5090d", None), (r"5090", "rtx-5090"),
    (r"2080ti", "rtx-2080-ti"), (r"2070s", "rtx-2070-super"), (r"a6000", "rtx-a6000"), (r"v100s", None),
    (r"v100.*32", "v100-sxm2-32gb"), (r"v100", "v100-sxm2-16gb"), (r"^nv_p100$", "p100-sxm2-16gb"),
    (r"^(nv_|nvidiatesla)?t4(16gb)?$", "t4"), (r"^mi300x$", "mi300x-192gb"),
]
SOURCES = ("vidur", "aiconfigurator", "simumax", "cudnn-frontend", "flash-attention", "efficient-attention-benchmark",
           "liger", "deepgemm")
ATTENTION_KERNELS = ("fa1", "fa2", "fa3", "triton", "cudnn", "sdpa_math")
MEMORY_OPS = {"layer_norm": "layer_norm", "rms_norm": "rms_norm", "softmax": "softmax", "rope": "rope",
              "gelu": "activation", "silu_and_mul": "gated_activation", "swiglu": "gated_activation",
              "geglu": "gated_activation",
              "megatron_swiglu": "varying_gated_activation", "residual_add": "elementwise", "copy": "elementwise",
              "embedding": "embedding", "cross_entropy": "cross_entropy", "dropout": "dropout",
              "fp8 amax+scale (dynamic minus static)": "amax"}
CASTS = ("fp8 cast tensorwise", "blockwise fp8 ", "mxfp8 cast")
SCALINGS = {"rowwise": "row", "blockwise": "block", "mxfp8": "micro"}  # by the first word of a recipe


def gpu_of(name):
    word = name.lower().replace(" ", "").replace("nvidiageforce", "").replace("tesla", "")
    for pattern, preset in GPUS:
        if re.search(pattern, word):
            if preset is None:
                break
            return preset
    raise LeftOut("GPU without a preset, or not named well enough")


def source_of(text):
    for name in SOURCES:
        if name in text.lower():
            return name
    return text.split("@")[0] or "not named"


def row(gpu, group, source, time_us, **spec):
    if not 0 < time_us < float("inf"):
        raise LeftOut("no time")
    return [{"gpu": gpu, "group": group, "source": source, "time_us": time_us, "spec": spec}]


def gemm_fp16(line):
    m = int(line["m"])
    size = "m <= 128" if m <= 128 else "m <= 1024" if m <= 1024 else "m > 1024"
    return row(gpu_of(line["gpu"]), "fp16 " + size, "vidur", float(line["time_us"]), kind="gemm", m=m, n=int(line["n"]),
               k=int(line["k"]), dtype="fp16", run="short")


def gemm2(line):
    dtype = line["dtype"].split(" ")[0]
    if dtype not in ("fp32", "tf32", "bf16", "fp16", "fp8"):
        raise LeftOut("type that no law knows")
    if dtype == "bf16" and re.search("V100", line["gpu"]):
        raise LeftOut("type that the GPU has no unit for")
    recipe = line["recipe"]
    if "included" in recipe and "not included" not in recipe:
        raise LeftOut("casts are in the time")
    if line["kind"] not in ("gemm", "grouped") or "+" in line["direction"]:
        raise LeftOut("several products in one time, or batches")
    m, n, k = (int(float(line[key] or 0)) for key in "mnk")
    if not (m and n and k):
        raise LeftOut("no sizes")
    if line.get("library") == "cublasLt":  # stored by columns: what begins somewhere is a column of C, of m numbers
        m, n = n, m
    groups = int(float(line["groups"] or 1)) if line["kind"] == "grouped" else 1
    work = 2 * m * n * k
    printed = 1e6 * float(line["time_us"] or 0) * float(line["tflops"] or 0)
    if printed and abs(printed / work - 1) > 0.1:
        raise LeftOut("rate and time are not of this one product")
    time_us = float(line["time_us"] or 0) or work / (float(line["tflops"] or 0) * 1e6 or work * 1e9)
    how = "settled" if line["sustained"] == "1" else "short"
    spec = {"kind": "gemm", "m": m, "run": how}
    sums = {"adds_to": "fp32"} if "fp32 accumulate" in line["direction"] else {}
    scaling = SCALINGS.get(recipe.replace(",", " ").split(" ")[0]) if dtype == "fp8" else None
    if scaling:
        spec["scaling"] = scaling
    if groups > 1:
        spec |= {"kind": "grouped_gemm", "groups": groups, "m": max(1, m // groups)}
        if line["direction"].startswith("wgrad"):
            # By the sizes of the forward pass or of the product itself: the most are the rows of all experts.
            sizes, rows = [m, n, k], max(m, n, k)
            sizes.remove(rows)
            n, k = sizes
            spec |= {"m": max(1, rows // groups), "pass": "weight_gradient"}
    how += {"row": " by rows", "block": " by blocks", "micro": " by 32"}.get(scaling, "")
    return row(gpu_of(line["gpu"]), f"{dtype} {line['kind']} {how}", source_of(line["source"]), time_us, n=n, k=k,
               dtype=dtype, **spec, **sums)


def half_or_full(precision):
    return "fp16" if "fp16" in precision else "fp32"


def deepbench_gemm(line):
    dtype = half_or_full(line["precision"])
    return row(gpu_of(line["device"]), line["precision"][:30], "deepbench", 1e3 * float(line["time_ms"]), kind="gemm",
               m=int(line["M"]), n=int(line["N"]), k=int(line["K"]), dtype=dtype, run="short")


def deepbench_conv(line):
    asked = ("R_filter_h", "S_filter_w", "pad_w", "pad_h", "stride_w", "stride_h")
    if not all(line[key] for key in asked):
        raise LeftOut("filter, padding or stride not given")
    gpu, rows = gpu_of(line["device"]), []
    spec = {mine: int(line[theirs]) for mine, theirs in
            zip(("n", "c", "h", "w", "k", "r", "s", "pad_w", "pad_h", "stride_w", "stride_h"),
                ("N", "C", "H", "W", "K") + asked)}
    for column, name in (("fwd_ms", "forward"), ("bwd_inputs_ms", "data_gradient"),
                         ("bwd_params_ms", "weight_gradient")):
        if line[column] and float(line[column]) > 0:
            rows += row(gpu, f"{half_or_full(line['precision'])} {name}", "deepbench", 1e3 * float(line[column]),
                        kind="conv", layout="nchw",
                        dtype=half_or_full(line["precision"]), **spec, **{"pass": name})
    return rows


def conv2(line):
    passes = {"fwd": "forward", "dgrad": "data_gradient", "wgrad": "weight_gradient"}
    if line["direction"] not in passes or line["dtype"] not in ("fp32", "tf32", "bf16", "fp16"):
        raise LeftOut("several passes in one time, or no type")
    sizes = {mine: line[theirs] for mine, theirs in
             zip("nchwkrs", ("n", "c", "h", "w", "kout", "r", "s"))}
    if not all(value.isdigit() for value in sizes.values()) or not line["time_us"]:
        raise LeftOut("no sizes, or no time")
    spec = {key: int(value) for key, value in sizes.items()}
    for axis in "hw":
        spec["stride_" + axis], spec["pad_" + axis] = int(line["stride"] or 1), int(line["pad"] or 0)
    direction, layout = passes[line["direction"]], "nhwc" if line["layout"] == "NHWC" else "nchw"
    return row(gpu_of(line["gpu"]), f"{line['dtype']} {direction}", source_of(line["source"]), float(line["time_us"]),
               kind="conv", layout=layout, dtype=line["dtype"], **spec, **{"pass": direction})


def attention(line):
    if line["kernel"] not in ATTENTION_KERNELS:
        raise LeftOut("kernel that has no name here")
    if line["direction"] not in ("fwd", "bwd") or line["dtype"] not in ("bf16", "fp16"):
        raise LeftOut("both passes in one time, or a type without a law")
    if not all(line[key] for key in ("batch", "heads", "head_size", "seq_q", "seq_kv")):
        raise LeftOut("no sizes")
    if line["v_head_size"] not in ("", line["head_size"]):
        raise LeftOut("values of another head size")
    batch, heads, head, queries, keys = (int(float(line[key])) for key in
                                         ("batch", "heads", "head_size", "seq_q", "seq_kv"))
    causal, backward = line["causal"] == "1", line["direction"] == "bwd"
    time_us = float(line["time_us"] or 0)
    if not time_us:
        share = 0.5 if line["flops_convention"].startswith("causal = full/2") and causal else 1
        if not line["flops_convention"].startswith(("causal = full/2", "full square")):
            raise LeftOut("no time")
        work = 4 * batch * heads * queries * keys * head * share * (2.5 if backward else 1)
        time_us = work / (float(line["tflops"] or 0) * 1e6 or work * 1e9)
    spec = {"batch": batch, "heads": heads, "kv_heads": int(float(line["kv_heads"] or heads)), "head_size": head,
            "queries": queries, "keys": keys, "causal": str(causal).lower(), "kernel": line["kernel"],
            "pass": "backward" if backward else "forward", "dtype": line["dtype"],
            "window": int(float(line["window"] or 0)) if causal else 0}
    return row(gpu_of(line["gpu"]), f"{line['kernel']} {spec['pass']}", source_of(line["source"]), time_us,
               kind="attention", **spec)


def one_by_one(line):
    """PyTorch's softmax of 16-bit rows that no warp holds handles its numbers one by one"""
    if (line["op"], line["implementation"]) != ("softmax", "eager") or not line["dtype"].endswith("16"):
        return {}
    shape = re.match(r"(\d+)x(\d+)( |$)", line["shape"])
    rows, columns = (int(shape[1]), int(shape[2])) if shape else (0, 0)
    return {"elements": rows * columns} if columns > 1024 else {}


def membound(line):
    op = "cast" if line["op"].startswith(CASTS) else MEMORY_OPS.get(line["op"])
    if line["direction"] != "fwd" or op is None:
        raise LeftOut("backward, whose bytes are the implementation's, or an operator without a law")
    time_us = float(line["time_us"] or 0)
    moved = float(line["bytes_if_given"] or 0) or 1e3 * float(line["gbps"] or 0) * time_us
    if moved < 1 or not time_us:
        raise LeftOut("no time, or no bytes")
    return row(gpu_of(line["gpu"]), f"{line['op']} {line['implementation']}", source_of(line["source"]), time_us,
               kind="memory", op=op, bytes=int(moved), **one_by_one(line))


TABLES = {"gemm_fp16": gemm_fp16, "kernels_gemm2": gemm2, "deepbench_gemm": deepbench_gemm,
          "deepbench_conv": deepbench_conv, "kernels_conv2": conv2, "kernels_attention": attention,
          "kernels_membound": membound}
