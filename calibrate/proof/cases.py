"""The cases that measure.py measures, as plain values."""

# name: layers, hidden, heads
GPTS = {
    "gpt-125m": (12, 768, 12),
    "gpt-350m": (24, 1024, 16),
    "gpt-760m": (24, 1536, 16),
    "gpt-1.3b": (24, 2048, 16),
    "gpt-2.7b": (32, 2560, 32),
}
VOCABULARY = 50304
# The widths of Llama 3 8B (Grattafiori et al. 2024, table 3), of which one GPU holds some layers.
LLAMA3_8B = {"hidden": 4096, "heads": 32, "kv_heads": 8, "ffn": 14336, "vocabulary": 128256}
TINY_LLAMA = {"hidden": 32, "heads": 4, "kv_heads": 2, "ffn": 48, "vocabulary": 64}
TINY = (2, 32, 2)  # of a dry run


def gpt(name, sequence, batch, technique, precision="bf16", recompute="none", accumulate=1):
    layers, hidden, heads = GPTS[name]
    return {
        "kind": "gpt", "name": name, "layers": layers, "hidden": hidden, "heads": heads, "vocabulary": VOCABULARY,
        "sequence": sequence, "batch": batch, "accumulate": accumulate, "technique": technique,
        "precision": precision, "recompute": recompute,
    }


def llama(layers, sequence, batch, technique, precision="bf16", recompute="none", accumulate=1):
    return {"kind": "llama", "name": f"llama3-8b-{layers}l", "layers": layers, **LLAMA3_8B, "sequence": sequence,
            "batch": batch, "accumulate": accumulate, "technique": technique, "precision": precision,
            "recompute": recompute}


def resnet(batch, precision):
    return {"kind": "resnet50", "name": "resnet50", "image": 224, "classes": 1000, "batch": batch, "accumulate": 1,
            "technique": "eager", "precision": precision, "recompute": "none"}


def identity(case):
    parts = [case["name"]]
    if case["kind"] != "resnet50":
        parts.append(f"s{case['sequence']}")
    parts.append(f"b{case['batch']}")
    if case["accumulate"] > 1:
        parts.append(f"x{case['accumulate']}")
    parts += [case["precision"], case["technique"]]
    if case["recompute"] != "none":
        parts.append(f"recompute-{case['recompute']}")
    return "-".join(parts)


def all_cases(quick):
    """The cases in order of worth: a budget that ends early still covers every kind."""
    three = ("eager", "fused", "compiled")
    first = [gpt("gpt-125m", 1024, 8, technique) for technique in three]
    first += [gpt("gpt-350m", 1024, 8, technique) for technique in three]
    first += [resnet(64, "bf16"), resnet(64, "tf32")]
    if quick:
        return first
    rest = [llama(4, 8192, 1, technique, recompute=recompute) for recompute in ("none", "full")
            for technique in ("fused", "compiled")]
    rest += [llama(4, 2048, 4, "fused")]
    rest += [gpt("gpt-1.3b", 2048, 2, technique) for technique in three]
    rest += [gpt("gpt-1.3b", 2048, 8, "fused", recompute="full"), gpt("gpt-2.7b", 2048, 1, "fused")]
    rest += [gpt("gpt-760m", 2048, 2, technique) for technique in three]
    rest += [gpt("gpt-350m", 1024, 8, "fused", precision) for precision in ("tf32", "fp32")]
    rest += [gpt("gpt-350m", 1024, 4, "fused", accumulate=4)]
    rest += [resnet(32, "bf16"), resnet(128, "bf16"), resnet(256, "bf16"), resnet(128, "tf32"), resnet(64, "fp32")]
    # Expected not to fit on 80 GB; one that fits is as good a record.
    rest += [gpt("gpt-1.3b", 2048, 16, "eager"), gpt("gpt-2.7b", 2048, 32, "fused")]
    rest += [gpt("gpt-125m", 1024, batch, technique) for batch in (1, 32) for technique in three]
    rest += [gpt("gpt-350m", 2048, 4, technique) for technique in three]
    rest += [gpt("gpt-125m", 4096, 2, technique) for technique in three]
    rest += [gpt("gpt-760m", 2048, 4, technique) for technique in three]
    rest += [gpt("gpt-1.3b", 2048, 4, technique) for technique in three]
    rest += [gpt("gpt-2.7b", 2048, batch, technique) for batch in (1, 2, 4) for technique in three
             if (batch, technique) != (1, "fused")]
    rest += [gpt("gpt-125m", 1024, 8, technique, "fp32") for technique in three]
    return first + rest


def cpu_cases(quick):
    """What a few cores take seconds for at most; PyTorch before 2.0 has no scaled_dot_product_attention."""
    gpts = [("gpt-4x256", 4, 256, 4, 128, 8), ("gpt-6x384", 6, 384, 6, 256, 4), ("gpt-4x512", 4, 512, 8, 128, 8),
            ("gpt-4x256", 4, 256, 4, 256, 16), ("gpt-2x768", 2, 768, 12, 128, 4), ("gpt-4x256", 4, 256, 4, 64, 2)]
    cases = []
    for name, layers, hidden, heads, sequence, batch in gpts:
        case = gpt("gpt-125m", sequence, batch, "eager", "fp32")
        case.update(name=name, layers=layers, hidden=hidden, heads=heads, vocabulary=8192)
        cases.append(case)
    images = [(64, 16), (224, 4), (64, 64), (128, 16), (64, 4)]
    cases += [dict(resnet(batch, "fp32"), image=image, name=f"resnet50-{image}") for image, batch in images]
    return cases[:2] + cases[6:8] if quick else cases


def dry_cases():
    cases = []
    for technique in ("eager", "fused"):
        for recompute, accumulate in (("none", 1), ("full", 2)):
            case = gpt("gpt-125m", 16, 2, technique, "fp32", recompute, accumulate)
            layers, hidden, heads = TINY
            case.update(name="gpt-tiny", layers=layers, hidden=hidden, heads=heads, vocabulary=64)
            cases.append(case)
    cases.append(dict(cases[1], precision="bf16", recompute="none", accumulate=1))
    for technique, recompute, accumulate in (("eager", "none", 1), ("eager", "full", 2), ("fused", "full", 1)):
        case = llama(2, 16, 2, technique, "fp32", recompute, accumulate)
        cases.append(dict(case, name="llama-tiny", **TINY_LLAMA))
    small = resnet(2, "fp32")
    small.update(image=64)
    return cases + [small, dict(small, precision="bf16")]


def llama_products(case):
    """Weights of a layer's products."""
    hidden = case["hidden"]
    keys = case["kv_heads"] * (hidden // case["heads"])
    return 2 * hidden * hidden + 2 * hidden * keys + 3 * hidden * case["ffn"]


def parameters(case):
    if case["kind"] == "resnet50":
        return 25557032
    hidden = case["hidden"]
    if case["kind"] == "llama":
        return case["layers"] * (llama_products(case) + 2 * hidden) + hidden + 2 * case["vocabulary"] * hidden
    return (case["layers"] * (12 * hidden * hidden + 13 * hidden) + 2 * hidden
            + (case["vocabulary"] + case["sequence"]) * hidden)


def model_flops(case):
    """Of one step of a GPT: 72 B s l h^2 (1 + s / 6h + V / 12lh), Narayanan et al. 2021 without recomputation; of a
    Llama the same with its own products: 6 for each of their weights, 12 s h of attention, a token and layer."""
    if case["kind"] == "resnet50":
        return None
    tokens = case["batch"] * case["accumulate"] * case["sequence"]
    hidden, layers = case["hidden"], case["layers"]
    products = llama_products(case) if case["kind"] == "llama" else 12 * hidden * hidden
    return (6.0 * tokens * layers * products + 12.0 * tokens * case["sequence"] * layers * hidden
            + 6.0 * tokens * hidden * case["vocabulary"])
