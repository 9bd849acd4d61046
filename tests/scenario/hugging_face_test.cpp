#include <doctest/doctest.h>

#include "tests/scenario/temporary.h"
#include "tests/support/rooms.h"

using namespace trainyard;

namespace {

const char* const kLlama = R"({
  "architectures": ["LlamaForCausalLM"],
  "model_type": "llama",
  "hidden_act": "silu",
  "hidden_size": 4096,
  "intermediate_size": 14336,
  "num_attention_heads": 32,
  "num_hidden_layers": 32,
  "num_key_value_heads": 8,
  "tie_word_embeddings": false,
  "vocab_size": 128256
})";

std::string with_config(const test::Folder& folder, const std::string& config) {
  folder.write("configs/net.json", config);
  return folder.write(
      "s.json",
      std::string(test::kSmall)
          .replace(std::string(test::kSmall).find(R"("model": {)"),
                   std::string(
                       R"("model": { "layers": 8, "hidden": 1024, "heads": 16, "vocab": 51200 })")
                       .size(),
                   R"("model": { "hf_config": "configs/net.json" })"));
}

}  // namespace

// The shape of DeepSeek-V3's file, smaller.
TEST_CASE("a config of experts and latent attention becomes both") {
  test::Folder folder("hf");
  const Scenario s =
      load_scenario(with_config(folder, R"({
    "model_type": "deepseek_v3", "hidden_act": "silu", "hidden_size": 2048,
    "intermediate_size": 8192, "moe_intermediate_size": 1024, "num_attention_heads": 16,
    "num_key_value_heads": 16, "num_hidden_layers": 8, "vocab_size": 32000,
    "n_routed_experts": 64, "num_experts_per_tok": 6, "n_shared_experts": 2,
    "n_group": 8, "topk_group": 3,
    "first_k_dense_replace": 1, "moe_layer_freq": 1, "q_lora_rank": null, "kv_lora_rank": 512,
    "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128})"),
                    {"training.fused_attention=true", "parallelism.sequence_parallel=true"})
          .base;
  const auto& network = s.network.as<Transformer>();
  CHECK(network.moe.experts == 64);
  CHECK(network.moe.top_k == 6);
  CHECK(network.moe.ffn_hidden == 1024);
  CHECK(network.moe.shared_ffn_hidden == 2048);
  CHECK(network.moe.groups == 8);
  CHECK(network.moe.top_groups == 3);
  CHECK(!network.is_mixture(0));
  CHECK(network.is_mixture(1));
  CHECK(network.latent.key_value_rank == 512);
  CHECK(network.latent.query_rank == 0);
  CHECK(network.latent.query_key_size() == 192);
  CHECK(network.latent.value_size == 128);
}

TEST_CASE("a Hugging Face config becomes the network it describes") {
  test::Folder folder("hf");
  const Scenario s = load_scenario(with_config(folder, kLlama)).base;
  const auto& network = s.network.as<Transformer>();
  CHECK(network.kv_heads == 8);
  CHECK(network.feed_forward == FeedForward::swiglu);
  CHECK(network.norm == Norm::rms_norm);
  CHECK(network.positional == Positional::rope);
  CHECK_FALSE(network.biases.any());
  CHECK_FALSE(network.dropout);
  CHECK(parameter_count(s.network, 8192) == 8030261248);  // the count of Meta-Llama-3-8B
}

TEST_CASE("GPT-2's config is read with its own names") {
  test::Folder folder("hf");
  const Scenario s = load_scenario(with_config(folder, R"({"model_type": "gpt2",
    "activation_function": "gelu_new", "n_embd": 768, "n_head": 12, "n_layer": 12,
    "n_positions": 1024, "n_inner": null, "resid_pdrop": 0.1, "vocab_size": 50257})"))
                         .base;
  CHECK(parameter_count(s.network, 1024) == 124439808);  // the count of GPT-2 small
  CHECK(test::warnings(s) == "/model/vocab: 50257 is padded to 50258 to divide it by tp 2");
}

TEST_CASE("a config that is not understood is refused in its own words") {
  test::Folder folder("hf");
  CHECK(test::problems(with_config(folder, R"({"model_type": "mamba"})")) ==
        "configs/net.json:1:16: error: /model_type: unknown model_type \"mamba\"; known: gpt2, "
        "llama, "
        "mistral, qwen2, qwen3, mixtral, qwen2_moe, qwen3_moe, deepseek_v2, deepseek_v3, "
        "bert, "
        "t5, mt5, vit");
  std::string mixture = kLlama;
  mixture.replace(mixture.find("\"architectures\""), 15,
                  "\"num_local_experts\": 8, \"architectures\"");
  CHECK(test::problems(with_config(folder, mixture)) ==
        "configs/net.json:1:1: error: /num_experts_per_tok: is required and missing");
  CHECK(test::problems(with_config(folder, R"({"model_type": "llama", "hidden_act": "silu",
    "num_hidden_layers": 2, "num_attention_heads": 2, "vocab_size": 100})")) ==
        "configs/net.json:1:1: error: /hidden_size: is required and missing");
}
