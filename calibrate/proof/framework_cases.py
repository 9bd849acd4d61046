"""The cases that frameworks.py measures, as plain values, and the scenarios that say the same."""

# Parts of Hugging Face's configs; what they leave out is the default of the class.
LLAMA_1B = {"vocab_size": 128256, "hidden_size": 2048, "num_hidden_layers": 16, "num_attention_heads": 32,
            "num_key_value_heads": 8, "intermediate_size": 8192, "tie_word_embeddings": True,
            "max_position_embeddings": 8192}
LLAMA_3B = {**LLAMA_1B, "hidden_size": 3072, "num_hidden_layers": 28, "num_attention_heads": 24}
LLAMA2_7B = {"vocab_size": 32000, "hidden_size": 4096, "num_hidden_layers": 32, "num_attention_heads": 32,
             "num_key_value_heads": 32, "intermediate_size": 11008, "tie_word_embeddings": False,
             "max_position_embeddings": 4096}
QWEN2 = {"vocab_size": 151936, "hidden_size": 896, "num_hidden_layers": 24, "num_attention_heads": 14,
         "num_key_value_heads": 2, "intermediate_size": 4864, "tie_word_embeddings": True}
QWEN3_MOE = {"vocab_size": 32000, "hidden_size": 2048, "num_hidden_layers": 8, "num_attention_heads": 32,
             "num_key_value_heads": 4, "head_dim": 64, "moe_intermediate_size": 1024, "intermediate_size": 1024,
             "num_experts": 32, "num_experts_per_tok": 4, "tie_word_embeddings": False}
GPT2_MEDIUM = {"n_embd": 1024, "n_layer": 24, "n_head": 16, "n_positions": 1024}
BERT_LARGE = {"hidden_size": 1024, "num_hidden_layers": 24, "num_attention_heads": 16, "intermediate_size": 4096}
VIT_LARGE = {**BERT_LARGE, "num_labels": 1000}
T5_BASE = {"d_model": 768, "d_ff": 3072, "num_layers": 12, "num_heads": 12, "d_kv": 64, "vocab_size": 32128,
           "decoder_start_token_id": 0}

# Its kernels are so small that the host is what takes time.
WAITS_FOR_HOST = "hf llama-1b s512 b1 bf16"


def hugging_face(name, kind, config, mode, batch, sequence=None, **other):
    """`mode`: "bf16" holds everything in bf16; "autocast" holds fp32 weights. `other`: "recompute"; "accumulate"
    micro-batches; "optimizer" foreach in place of fused; "looks" False: nobody looks at the loss."""
    parts = ["hf", name] + ([f"s{sequence}"] if sequence else []) + [f"b{batch}"]
    if "accumulate" in other:
        parts.append(f"x{other['accumulate']}")
    parts.append(mode)
    if other.get("recompute") == "full":
        parts.append("recompute")
    if "optimizer" in other:
        parts.append(other["optimizer"])
    if not other.get("looks", True):
        parts.append("no sync")
    return {"id": " ".join(parts), "framework": "hugging_face", "kind": kind, "config": config, "mode": mode,
            "batch": batch, "sequence": sequence, "accumulate": 1, "recompute": "none", "optimizer": "fused",
            "looks": True, **other}


def vision(network, batch, layout, precision):
    words = {"fp16": "amp fp16", "bf16": "amp bf16"}.get(precision, precision)
    return {"id": f"tv-{network} b{batch} {layout} {words}", "framework": "torchvision", "network": network,
            "batch": batch, "layout": layout, "precision": precision}


def all_cases():
    """In order of worth: a budget that ends early still covers both libraries and both modes."""
    return [
        hugging_face("llama-1b", "llama", LLAMA_1B, "bf16", 4, 2048),
        hugging_face("llama-1b", "llama", LLAMA_1B, "autocast", 4, 2048),
        vision("resnet50", 128, "nchw", "tf32"),
        hugging_face("llama2-7b", "llama", LLAMA2_7B, "bf16", 2, 2048, recompute="full"),
        hugging_face("qwen3moe", "qwen3moe", QWEN3_MOE, "bf16", 2, 2048),
        hugging_face("bert-large", "bert", BERT_LARGE, "autocast", 16, 512),
        hugging_face("gpt2-medium", "gpt2", GPT2_MEDIUM, "autocast", 8, 1024),
        hugging_face("llama-3b", "llama", LLAMA_3B, "autocast", 2, 4096, recompute="full"),
        vision("resnet50", 256, "nhwc", "fp16"),
        hugging_face("llama-1b", "llama", LLAMA_1B, "autocast", 1, 512),
        hugging_face("llama-1b", "llama", LLAMA_1B, "bf16", 1, 512),
        hugging_face("llama-1b", "llama", LLAMA_1B, "bf16", 1, 512, looks=False),
        hugging_face("bert-large", "bert", BERT_LARGE, "autocast", 64, 128),
        hugging_face("vit-l", "vit", VIT_LARGE, "autocast", 64),
        hugging_face("qwen2-0.5b", "qwen2", QWEN2, "autocast", 4, 2048),
        vision("resnet50", 128, "nchw", "fp32"),
        vision("vgg16", 64, "nchw", "fp32"),
        hugging_face("llama-1b", "llama", LLAMA_1B, "bf16", 4, 2048, optimizer="foreach"),
        hugging_face("llama-1b", "llama", LLAMA_1B, "autocast", 2, 1024, accumulate=4),
        hugging_face("bert-large", "bert", BERT_LARGE, "bf16", 16, 512),
        hugging_face("t5-base", "t5", T5_BASE, "bf16", 16, 512),
    ]


# ---------------------------------------------------------------------------------------------------------------
# What a scenario calls them.


def llama_model(config):
    return {"layers": config["num_hidden_layers"], "hidden": config["hidden_size"],
            "heads": config["num_attention_heads"], "kv_heads": config["num_key_value_heads"],
            "ffn_hidden": config["intermediate_size"], "ffn": "swiglu", "vocab": config["vocab_size"],
            "positional": "rope", "norm": "rms_norm", "biases": False, "dropout": False,
            "tied_embeddings": config["tie_word_embeddings"]}


def experts_model(config):
    return {**llama_model(config), "head_dim": config["head_dim"], "head_norm": "per_head",
            "moe": {"experts": config["num_experts"], "top_k": config["num_experts_per_tok"],
                    "expert_ffn_hidden": config["moe_intermediate_size"]}}


def gpt2_model(config):
    return {"layers": config["n_layer"], "hidden": config["n_embd"], "heads": config["n_head"],
            "ffn_hidden": 4 * config["n_embd"], "ffn": "gelu", "vocab": 50257, "positional": "learned",
            "max_positions": config["n_positions"], "norm": "layer_norm", "biases": True, "dropout": True,
            "tied_embeddings": True}


# kind: the network, and what its operators are beside what the software's habits say of them
HUGGING_FACE = {
    "llama": (llama_model, {"norm": "operators"}),
    "qwen2": (lambda config: {**llama_model(config), "attention_biases": "qkv"}, {"norm": "operators"}),
    "qwen3moe": (experts_model, {"norm": "operators"}),
    "gpt2": (gpt2_model, {"activation": "operators"}),  # gelu_new
    "bert": (lambda config: {"preset": "bert-large", "encoder": {"next_sentence": False}}, {}),
    "vit": (lambda config: {"preset": "vit-l-16"}, {"projections": "separate"}),
    "t5": (lambda config: {"preset": "t5-base"}, {"norm": "operators", "projections": "separate"}),
}
# Numbers of an array that each launch reads and writes; a launch is for dozens of arrays, fewer where they are large.
# torch/optim/adam.py, _multi_tensor_adam, of 2 bytes, half a number of fp32: weights are scaled (2), first moments
# interpolated (3), second ones scaled (2) and added to (4), their roots taken (2), divided (2), added to (2), and
# weights updated (4).
FOREACH_ADAMW = {"accesses": 10.5, "launches": 3}
# torch/optim/sgd.py, _multi_tensor_sgd: decay (3), momentum scaled (2), added to (3), and weights updated (3).
FOREACH_SGD = {"accesses": 11, "launches": 0.1}


def hugging_face_scenario(case):
    network, operators = HUGGING_FACE[case["kind"]]
    training = {"global_batch": case["batch"] * case["accumulate"], "micro_batch": case["batch"],
                "recompute": case["recompute"], **operators}
    if case["mode"] == "autocast":
        training["precision"] = {"compute": "bf16", "parameters": "fp32"}
    else:
        training["precision"] = {"compute": "bf16", "gradients": "bf16", "master_weights": "none",
                                 "optimizer_states": "bf16"}
    if case["recompute"] == "full":
        training["recompute_stops_early"] = True
    # A look at the loss waits for all that was launched before, the backward pass.
    training["optimizer"] = {"type": "adamw", "waits": case["looks"]}
    if case["optimizer"] == "foreach":
        training["optimizer"].update(FOREACH_ADAMW)
    if case["sequence"]:
        training["sequence_length"] = case["sequence"]
    if case["kind"] == "t5":
        training["decoder_sequence_length"] = case["sequence"]
    return {"software": "hf-trainer", "model": network(case["config"]), "training": training}


def vision_scenario(case):
    precision = {"compute": case["precision"]}
    mixed = case["precision"] in ("fp16", "bf16")
    if mixed:
        precision.update(gradients="fp32", master_weights="fp32")
    # The scaler of gradients reads whether they are finite.
    optimizer = {"type": "sgd", "momentum": True, "waits": case["precision"] == "fp16", **FOREACH_SGD}
    return {"software": "pytorch-ddp", "model": {"preset": case["network"]},
            "training": {"global_batch": case["batch"], "micro_batch": case["batch"], "image_layout": case["layout"],
                         "precision": precision, "optimizer": optimizer}}


def scenario_of_case(case):
    """What was measured; `common_scenario` is the rest."""
    return hugging_face_scenario(case) if case["framework"] == "hugging_face" else vision_scenario(case)


def common_scenario(gpu):
    node = {"name": "one GPU", "gpu": {"preset": gpu}, "gpus": 1, "intra": {"kind": "none"}}
    return {"cluster": {"nodes": 1, "node": node}, "parallelism": {"dp": 1}}
