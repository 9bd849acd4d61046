"""Networks with experts that several sources train, by their published configurations."""

QWEN3_30B = {"preset": "qwen3-30b-a3b"}
QWEN3_235B = {"preset": "qwen3-30b-a3b", "layers": 94, "hidden": 4096, "heads": 64, "kv_heads": 4, "head_dim": 128,
              "ffn_hidden": 12288, "moe": {"experts": 128, "top_k": 8, "expert_ffn_hidden": 1536}}
GPT_OSS = {"preset": "gpt-oss-120b"}
DEEPSEEK_V3 = {"preset": "deepseek-v3"}
KIMI_K2 = {"preset": "deepseek-v3", "heads": 64, "vocab": 163840,
           "moe": {"experts": 384, "top_k": 8, "expert_ffn_hidden": 2048, "shared_experts": 1, "first_dense": 1,
                   "groups": 1, "top_groups": 1}}
NEMOTRON_NANO = {"preset": "nemotron-3-nano-30b-a3b"}
LAYERS = {"llama3-8b": 32, "llama3-70b": 80, "llama3-405b": 126, "deepseek-v3": 61, "qwen3-30b-a3b": 48,
          "gpt-oss-120b": 36, "nemotron-3-nano-30b-a3b": 52}
# What the name of a network holds, the most telling first.
BY_NAME = (("nemotron_3_nano", NEMOTRON_NANO), ("nemotron v3 nano", NEMOTRON_NANO),
           ("qwen3_235", QWEN3_235B), ("qwen3 moe 235", QWEN3_235B), ("qwen3_30", QWEN3_30B),
           ("qwen3 moe 30", QWEN3_30B), ("oss", GPT_OSS), ("kimi", KIMI_K2), ("deepseek", DEEPSEEK_V3),
           ("405b", {"preset": "llama3-405b"}), ("llama3_70b", {"preset": "llama3-70b"}),
           ("llama3 70b", {"preset": "llama3-70b"}), ("llama3_8b", {"preset": "llama3-8b"}),
           ("llama3 8b", {"preset": "llama3-8b"}))


def named(name):
    """The network of that name, or None."""
    return next((network for part, network in BY_NAME if part in name.lower()), None)


def layers_of(network):
    return network.get("layers") or LAYERS[network["preset"]]


def has_experts(network):
    return "moe" in network or network.get("preset") in ("deepseek-v3", "qwen3-30b-a3b", "gpt-oss-120b",
                                                              "nemotron-3-nano-30b-a3b")


def cut(layers, pp, chunks):
    """Layers of each virtual stage where they do not divide: embedding and output take the place of a layer."""
    each, more = divmod(layers, pp * chunks)
    return [each + (0 < part <= more) for part in range(pp * chunks)]
