"""Records of measured training, turned into scenarios. Nothing is guessed silently: what a record leaves open and is
assumed stands in `notes`, and what the simulator cannot describe is a reason, not a number."""

import json
import os
import re

CONFIGS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "configs")

PRECISIONS = ("bf16", "fp16", "fp32", "tf32", "fp8")
ACTIVATIONS = ("gelu", "relu", "swiglu", "geglu")
# Our technique -> execution and whether attention is fused.
TECHNIQUES = {"eager": ("eager", False), "fused": ("eager", True), "compiled": ("compiled", True)}
# What a record may say of operators, and a scenario calls the same.
OPERATORS = {"projections": ("joint", "separate"), "gate_projection": ("joint", "separate"),
             "key_value_heads": ("grouped", "repeated"), "loss": ("eager", "compiled")}
RECOMPUTES = {"none": "none", "selective": "selective", "full": "full", "every_layer": "full"}


class Undescribable(Exception):
    """Why no scenario says what was measured."""


class BadRecord(Exception):
    """A record that is not in the format."""


def section(record, key):
    value = record.get(key, {})
    if not isinstance(value, dict):
        raise BadRecord(f"\"{key}\" is {json.dumps(value)[:60]}, expected an object")
    return value


def count(owner, key, default=None):
    value = owner.get(key)
    if value is None:
        value = default
    if value is None:
        raise Undescribable(f"does not state {key}")
    if isinstance(value, bool) or not isinstance(value, (int, float)) or value != int(value) or value < 1:
        raise BadRecord(f"\"{key}\" is {json.dumps(value)[:60]}, expected a positive whole number")
    return int(value)


# -------------------------------------------------------------------------------------------------------------
# GPUs and profiles.


def words(name):
    return [word for word in re.split(r"[^a-z0-9]+", name.lower()) if word]


def is_memory(word):
    return re.fullmatch(r"[0-9]+gb", word) is not None


def is_board(word):
    return word.startswith("sxm") or word in ("pcie", "nvl")


def is_same_gpu(said, preset):
    """Whether a device's name, as the driver or a paper spells it, is that of the preset: every word of the preset is
    said, but for the memory and the SXM board where nothing else is said of these."""
    device = words(said)
    for word in words(preset):
        if word in device:
            continue
        if is_memory(word) and not any(map(is_memory, device)):
            continue
        if word.startswith("sxm") and not any(map(is_board, device)):
            continue
        return False
    return True


def load_profile(name):
    """(path, GPU) of a profile given as a path or as a name of configs/profiles."""
    path = name
    if not os.path.exists(path) and os.sep not in name:
        path = os.path.join(CONFIGS, "profiles", name + ".json")
    with open(path, encoding="utf-8") as stream:
        document = json.load(stream)
    if not isinstance(document, dict) or not isinstance(document.get("gpu"), str):
        raise BadRecord(f"{path}: not a profile: it names no \"gpu\"")
    return os.path.abspath(path), document["gpu"]


def choose_profile(gpu, profiles, aliases):
    """(path, preset) of the profile of a record's GPU. `aliases`: device -> the preset that it counts as."""
    alias = aliases.get(gpu)
    for path, preset in profiles:
        if (alias == preset) if alias else is_same_gpu(gpu, preset):
            return path, preset
    raise Undescribable(f"no profile of {alias or gpu}; given: {', '.join(preset for _, preset in profiles)}")


# -------------------------------------------------------------------------------------------------------------
# What is trained.


def from_hugging_face(config):
    """Fields of a config.json in the record's words."""
    kind = config.get("model_type")
    usual = {"norm": "layer_norm", "positional": "learned", "biases": True,
             "tied_embeddings": config.get("tie_word_embeddings", True)}
    # Dropout of the scores costs most, so it decides.
    if kind == "gpt2":
        return {"ffn": config.get("n_inner") or 4 * config["n_embd"], "act": "gelu", **usual,
                "dropout": config.get("attn_pdrop", 0.1) > 0}
    if kind == "opt":
        return {"ffn": config["ffn_dim"], "act": config.get("activation_function", "relu"), **usual,
                "dropout": config.get("attention_dropout", 0) > 0}
    if kind in ("bert", "roberta"):
        raise Undescribable("an encoder; decoders are described")
    raise Undescribable(f"model_type {kind} is not described")


def transformer(record, notes):
    model = dict(section(record, "model"))
    if isinstance(model.get("hf_config"), dict):
        model.update(from_hugging_face(model["hf_config"]))
    parallelism = section(record, "parallelism")
    if (parallelism.get("ep") or 1) > 1 or model.get("experts"):
        raise Undescribable("a mixture of experts")
    activation = model.get("act")
    if activation is None and "gpt" in str(model.get("name", "")).lower():
        activation = "gelu"
        notes.append("GPT is taken to have GELU")
    if activation is None:
        raise Undescribable("does not state the activation (act)")
    if activation not in ACTIVATIONS:
        raise Undescribable(f"activation {activation}")
    gated = activation in ("swiglu", "geglu")
    about = str(model.get("note", ""))
    heads = count(model, "heads")
    result = {
        "layers": count(model, "layers"), "hidden": count(model, "hidden"), "heads": heads,
        "kv_heads": count(model, "kv_heads", heads), "ffn_hidden": count(model, "ffn", 4 * count(model, "hidden")),
        "ffn": activation, "vocab": count(model, "vocab"),
    }
    if model.get("head_dim"):
        result["head_dim"] = count(model, "head_dim")
    # A gated layer is of the Llama kind, another of the GPT kind, unless said otherwise.
    usual = {"positional": "rope" if gated else "learned", "norm": "rms_norm" if gated else "layer_norm",
             "biases": not gated, "dropout": False, "tied_embeddings": not gated and "untied" not in about}
    assumed = [key for key in usual if key not in model]
    if assumed:
        notes.append(f"assumed: {', '.join(f'{key} {json.dumps(usual[key])}' for key in assumed)}")
    result.update({key: model.get(key, usual[key]) for key in usual})
    return result


def model_of(record, notes):
    name = str(section(record, "model").get("name", "")).lower()
    if name in ("resnet50", "resnet-50"):
        size = count(section(record, "model"), "image", 224)
        return {"preset": "resnet50", "input": {"image_size": [3, size, size]}}
    return transformer(record, notes)


# -------------------------------------------------------------------------------------------------------------
# How.


def attention_of(record, is_fused):
    """What PyTorch's SDPA ran on an H100 for queries, keys and values that are views of one product, as measure.py's
    GPTs have them, is FlashAttention-2; its Llamas ask for cuDNN's kernel first."""
    capability = str(section(record, "hardware").get("capability") or "0")
    are_views = record.get("projections") in (None, "joint")
    return "fa2" if is_fused and are_views and float(capability) >= 8 else is_fused


def execution_of(record, notes):
    """(execution, fused attention)."""
    technique = record.get("technique")
    if technique in TECHNIQUES:
        execution, is_fused = TECHNIQUES[technique]
        return execution, attention_of(record, is_fused)
    framework, kernel = str(record.get("framework", "")).lower(), str(record.get("kernel", "")).lower()
    if "pytorch" in framework and "eager" in framework:
        return "eager", False
    if "compile" in str(technique):
        return "compiled", True
    notes.append("element-wise kernels are taken to be fused")
    if kernel:
        return "fused", "flash" in kernel
    # Networks of the Llama kind are as young as flash attention.
    young = section(record, "model").get("act") in ("swiglu", "geglu")
    notes.append(f"attention is taken to be {'fused' if young else 'unfused'}")
    return "fused", young


def first_word(text):
    return (str(text).split() or [""])[0]


def recompute_of(record):
    """By the first word; what follows explains it. "see ... (none by default)" is none."""
    said = record.get("recompute") or "none"
    if re.search(r"\bnone\b", str(said)):
        return "none"
    if first_word(said) not in RECOMPUTES:
        raise Undescribable(f"recompute \"{said}\"")
    return RECOMPUTES[first_word(said)]


def describe_gelu_new(record, training, notes):
    """Hugging Face's NewGELUActivation takes a cube and a tanh by operators, each of them a kernel in eager PyTorch."""
    config = section(record, "model").get("hf_config")
    if not isinstance(config, dict) or config.get("activation_function") != "gelu_new":
        return
    if training.get("execution") == "eager":
        training["activation"] = "operators"
    else:
        notes.append("gelu_new, several kernels in eager PyTorch, is taken to be one")


def operators_of(record):
    result = {}
    for key, known in OPERATORS.items():
        if record.get(key) is None:
            continue
        if record[key] not in known:
            raise BadRecord(f"\"{key}\" is {json.dumps(record[key])[:60]}, expected one of {', '.join(known)}")
        result[key] = record[key]
    if record.get("recompute_stops_early") is True:
        result["recompute_stops_early"] = True
    return result


def precision_of(record):
    precision = first_word(record.get("precision"))  # "fp16 mixed"
    if precision not in PRECISIONS:
        raise Undescribable(f"precision {json.dumps(record.get('precision'))}")
    result = {"compute": precision}
    for ours, theirs in (("gradients", "gradients"), ("master_weights", "master_weights")):
        if record.get(theirs):
            result[ours] = record[theirs]
    return result


def optimizer_of(record, notes):
    said = record.get("optimizer")
    if "no optimizer" in str(record.get("mode", "")):
        return {"type": "sgd"}  # keeps no state; compare.py takes its time off
    if said is None:
        notes.append("Adam is assumed")
        said = "adam"
    known = {"adam": {"type": "adam"}, "adamw": {"type": "adamw"}, "sgd": {"type": "sgd"},
             "sgd momentum": {"type": "sgd", "momentum": True}}
    for name in sorted(known, key=len, reverse=True):
        if str(said).lower().startswith(name):
            return known[name]
    raise Undescribable(f"optimizer {said}")


def degrees_of(record, gpus):
    said = section(record, "parallelism")
    if (said.get("fsdp") or 1) != 1:
        raise Undescribable("FSDP")
    tensor, pipeline, context = (count(said, key, 1) for key in ("tp", "pp", "cp"))
    replica = tensor * pipeline * context
    if gpus % replica != 0:
        raise BadRecord(f"tp {tensor} x pp {pipeline} x cp {context} do not divide {gpus} GPUs")
    result = {"tp": tensor, "pp": pipeline, "dp": count(said, "dp", gpus // replica)}
    if context > 1:
        result["cp"] = context
    if said.get("sp") and tensor > 1:
        result["sequence_parallel"] = True
    chunks = count(said, "vp", 1)
    if chunks > 1:
        result["pipeline"] = {"schedule": "interleaved_1f1b", "chunks_per_stage": chunks}
    if said.get("zero_stage") and result["dp"] > 1:
        result["data_parallel"] = {"kind": f"zero{count(said, 'zero_stage')}"}
    return result


def training_of(record, degrees, notes):
    batch = section(record, "batch")
    replicas = degrees["dp"]
    accumulated = batch.get("micro_batches") or batch.get("grad_accum") or batch.get("ga")
    if batch.get("mbs") is None and batch.get("gbs") is not None and degrees["pp"] == 1 and not accumulated:
        batch = dict(batch, mbs=count(batch, "gbs") // replicas)
    micro = count(batch, "mbs")
    whole = count(batch, "gbs", micro * replicas * (accumulated or 1))
    execution, fused_attention = execution_of(record, notes)
    result = {"global_batch": whole, "micro_batch": micro, "precision": precision_of(record),
              "optimizer": optimizer_of(record, notes), "recompute": recompute_of(record)}
    if execution != "fused":
        result["execution"] = execution
    result.update(operators_of(record))
    host = record.get("host")
    if isinstance(host, dict) and host.get("us_per_kernel"):
        result["launch_time"] = f"{host['us_per_kernel']:.6g}us"
    return result, fused_attention


def cluster_of(record, profile, preset, gpus):
    hardware = section(record, "hardware")
    gpu = {"preset": preset}
    if hardware.get("usable_memory_bytes"):
        gpu["memory"] = f"{count(hardware, 'usable_memory_bytes')}B"
    if gpus == 1:
        node = {"name": "one GPU", "gpu": gpu, "gpus": 1, "intra": {"kind": "none"}}
        return {"nodes": 1, "node": node, "calibration": profile}
    server = server_of(preset)
    per_server = count(hardware, "gpus_per_node", min(gpus, server["gpus"]))
    if gpus < per_server:
        per_server = gpus
    if gpus % per_server != 0:
        raise Undescribable(f"{gpus} GPUs on servers of {per_server}")
    node = {"preset": server["name"], "gpu": gpu, "gpus": per_server}
    return {"nodes": gpus // per_server, "node": node, "calibration": profile}


def server_of(preset):
    folder = os.path.join(CONFIGS, "servers")
    for file in sorted(os.listdir(folder)):
        with open(os.path.join(folder, file), encoding="utf-8") as stream:
            server = json.load(stream)
        if server.get("gpu") == preset:
            return {"name": os.path.splitext(file)[0], "gpus": server["gpus"]}
    raise Undescribable(f"no server preset holds {preset}")


def scenario_of(record, profiles, aliases=None):
    """(scenario, notes) of a record. `profiles`: what load_profile returned. Throws Undescribable or BadRecord."""
    notes = []
    if record.get("dry_run"):
        raise Undescribable("a dry run measures nothing")
    mode = str(record.get("mode", ""))
    if mode.startswith("inference"):
        raise Undescribable("inference")
    hardware = section(record, "hardware")
    if not isinstance(hardware.get("gpu"), str):
        raise BadRecord("\"hardware\" names no \"gpu\"")
    model = model_of(record, notes)
    profile, preset = choose_profile(hardware["gpu"], profiles, aliases or {})
    if not is_same_gpu(hardware["gpu"], preset):
        notes.append(f"{hardware['gpu']} is taken to be {preset}")
    gpus = count(hardware, "num_gpus", 1)
    degrees = degrees_of(record, gpus)
    training, fused_attention = training_of(record, degrees, notes)
    if "preset" not in model:
        training.update(sequence_length=count(section(record, "model"), "seq"), fused_attention=fused_attention)
        describe_gelu_new(record, training, notes)
        if model["positional"] == "learned":
            model["max_positions"] = training["sequence_length"]
    elif training.get("execution") == "compiled":
        raise Undescribable("a compiled network of images")
    scenario = {"version": 1, "name": str(record.get("id") or "record"), "model": model,
                "cluster": cluster_of(record, profile, preset, gpus), "training": training, "parallelism": degrees}
    return scenario, notes
