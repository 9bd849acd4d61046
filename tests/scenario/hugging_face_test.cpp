#include <doctest/doctest.h>

#include "tests/scenario/temporary.h"

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

TEST_CASE("a Hugging Face config becomes the network it describes") {
  test::Folder folder("hf");
  const Scenario s = load_scenario(with_config(folder, kLlama)).base;
  const auto& network = std::get<Transformer>(s.network);
  CHECK(network.kv_heads == 8);
  CHECK(network.feed_forward == FeedForward::swiglu);
  CHECK(network.norm == Norm::rms_norm);
  CHECK(network.positional == Positional::rope);
  CHECK_FALSE(network.biases);
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
        "mistral, qwen2");
  std::string mixture = kLlama;
  mixture.replace(mixture.find("\"architectures\""), 15,
                  "\"num_local_experts\": 8, \"architectures\"");
  CHECK(test::problems(with_config(folder, mixture)) ==
        "configs/net.json:2:24: error: /num_local_experts: a mixture of experts is not supported "
        "yet");
  CHECK(test::problems(with_config(folder, R"({"model_type": "llama", "hidden_act": "silu",
    "num_hidden_layers": 2, "num_attention_heads": 2, "vocab_size": 100})")) ==
        "configs/net.json:1:1: error: /hidden_size: is required and missing");
}
