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
  const std::string unknown = test::problems(with_config(folder, R"({"model_type": "mumba"})"));
  CHECK(unknown.find("configs/net.json:1:16: error: /model_type: unknown model_type \"mumba\"; "
                     "known: gpt2, llama, ") == 0);
  std::string mixture = kLlama;
  mixture.replace(mixture.find("\"architectures\""), 15,
                  "\"num_local_experts\": 8, \"architectures\"");
  CHECK(test::problems(with_config(folder, mixture)) ==
        "configs/net.json:1:1: error: /num_experts_per_tok: is required and missing");
  CHECK(test::problems(with_config(folder, R"({"model_type": "llama", "hidden_act": "silu",
    "num_hidden_layers": 2, "num_attention_heads": 2, "vocab_size": 100})")) ==
        "configs/net.json:1:1: error: /hidden_size: is required and missing");
}

namespace {

// The Llama config with more keys in front, and what is wrong with it.
std::string with_keys(const test::Folder& folder, const std::string& keys) {
  return test::problems(with_config(folder, "{" + keys + ", " + std::string(kLlama).substr(1)));
}

std::int64_t count_with_keys(const test::Folder& folder, const std::string& keys) {
  const std::string config = "{" + keys + ", " + std::string(kLlama).substr(1);
  return parameter_count(load_scenario(with_config(folder, config)).base.network, 512);
}

}  // namespace

TEST_CASE("biases of attention and of the feed-forward layer are two keys") {
  test::Folder folder("hf-biases");
  const std::int64_t plain = count_with_keys(folder, R"("attention_bias": false)");
  const std::int64_t attention = 32 * (4096 + 2 * 1024 + 4096), mlp = 32 * (2 * 14336 + 4096);
  CHECK(count_with_keys(folder, R"("attention_bias": true)") - plain == attention);
  CHECK(count_with_keys(folder, R"("mlp_bias": true)") - plain == mlp);
  CHECK(count_with_keys(folder, R"("attention_bias": true, "mlp_bias": true)") - plain ==
        attention + mlp);
}

TEST_CASE("a key that may change the network is understood or an error") {
  test::Folder folder("hf-keys");
  CHECK(with_keys(folder, R"("sliding_window": 4096)") ==
        "configs/net.json:1:2: error: /sliding_window: is not understood for llama, and may change "
        "the network; remove it if it changes nothing; else describe the network with the fields "
        "of /model");
  CHECK(with_keys(folder, R"("num_memory_blocks": 2)")
            .find("/num_memory_blocks: is not understood") != std::string::npos);
  // What is off changes nothing, and these do not either.
  CHECK(with_keys(folder, R"("sliding_window": null, "num_memory_blocks": 0, "use_mixture": false,
    "rope_theta": 1e6, "rms_norm_eps": 1e-5, "transformers_version": "4.50",
    "_attn_implementation": "sdpa", "image_token_id": 7)") == "");
}

TEST_CASE("a key that nobody knows and that names no part of a network is a warning") {
  test::Folder folder("hf-warning");
  const std::string config = R"({"mood": "good", )" + std::string(kLlama).substr(1);
  CHECK(test::warnings(load_scenario(with_config(folder, config)).base) ==
        "/mood: is not known, and taken not to change the network");
}

TEST_CASE("values of another type are refused where they stand") {
  test::Folder folder("hf-types");
  std::string wrong = kLlama;
  wrong.replace(wrong.find("\"silu\""), 6, "true");
  CHECK(test::problems(with_config(folder, wrong)) ==
        "configs/net.json:4:17: error: /hidden_act: expected a name, got true");
  CHECK(with_keys(folder, R"("layer_types": "full_attention")") ==
        "configs/net.json:1:17: error: /layer_types: expected a list, got \"full_attention\"");
  CHECK(with_keys(folder, R"("layer_types": ["full_attention"])") ==
        "configs/net.json:1:17: error: /layer_types: 1 kinds for 32 layers");
  CHECK(with_keys(folder, R"("attention_bias": 1)") ==
        "configs/net.json:1:20: error: /attention_bias: expected true or false, got 1");
  CHECK(with_keys(folder, R"("attention_dropout": "0.1")") ==
        "configs/net.json:1:23: error: /attention_dropout: expected a number, got \"0.1\"");
}

TEST_CASE("a mixture of experts says how many it has, by whatever name") {
  test::Folder folder("hf-experts");
  const auto deepseek = [&](const std::string& experts) {
    return with_config(folder, R"({"model_type": "deepseek_v3", "hidden_size": 512,
      "intermediate_size": 1024, "moe_intermediate_size": 256, "num_attention_heads": 8,
      "num_hidden_layers": 2, "vocab_size": 1000, "num_experts_per_tok": 2)" +
                                   experts + "}");
  };
  CHECK(
      test::problems(deepseek(""))
          .find(
              "configs/net.json:1:1: error: /num_experts: is required and missing; deepseek_v3 is "
              "a "
              "mixture of experts; known names: num_experts, num_local_experts, n_routed_experts, "
              "num_routed_experts") == 0);
  const std::vector<std::string> fused = {"training.fused_attention=true", "parallelism.tp=1"};
  for (const char* name :
       {"num_experts", "num_local_experts", "n_routed_experts", "num_routed_experts"}) {
    CAPTURE(name);
    const Scenario s = load_scenario(deepseek(", \"" + std::string(name) + "\": 16"), fused).base;
    CHECK(s.network.as<Transformer>().moe.experts == 16);
  }
  CHECK(test::problems(deepseek(R"(, "num_experts": 16, "n_routed_experts": 8)"), fused)
            .find("/n_routed_experts: 8 here and 16 as num_experts; both name one thing") !=
        std::string::npos);
  const Scenario none =
      load_scenario(deepseek(R"(, "num_experts": 16, "shared_expert_intermediate_size": 0)"), fused)
          .base;
  CHECK(none.network.as<Transformer>().moe.shared_ffn_hidden == 0);
}

TEST_CASE("layers that predict further tokens are left out, and the user is told") {
  test::Folder folder("hf-prediction");
  const std::string config = R"({"num_nextn_predict_layers": 1, )" + std::string(kLlama).substr(1);
  const Scenario s = load_scenario(with_config(folder, config)).base;
  CHECK(parameter_count(s.network, 8192) == 8030261248);
  CHECK(test::warnings(s).find("/num_nextn_predict_layers: layers that predict further tokens are "
                               "not described") == 0);
}

TEST_CASE("a family whose layers no network has is refused with their name") {
  test::Folder folder("hf-missing");
  CHECK(test::problems(with_config(folder, R"({"model_type": "qwen3_next"})")) ==
        "configs/net.json:1:16: error: /model_type: qwen3_next has layers that are not described: "
        "gated delta networks (linear_attention) and gated attention; kind \"layers\" takes any "
        "operation with its bytes or its time");
}

TEST_CASE("windows come from a flag, a number of layers or a list of them") {
  test::Folder folder("hf-windows");
  const auto window = [&](const std::string& type, const std::string& keys) {
    const std::string config = R"({"model_type": ")" + type + R"(", "hidden_size": 512,
      "intermediate_size": 1024, "num_attention_heads": 8, "num_key_value_heads": 8,
      "num_hidden_layers": 6, "vocab_size": 1000, )" +
                               keys + "}";
    return load_scenario(with_config(folder, config)).base.network.as<Transformer>();
  };
  CHECK(window("mistral", R"("sliding_window": 4096)").is_windowed(0));
  CHECK_FALSE(window("mistral", R"("sliding_window": null)").is_windowed(0));
  const std::string flagged = R"("sliding_window": 64, "max_window_layers": 4)";
  CHECK_FALSE(window("qwen2", flagged + R"(, "use_sliding_window": false)").is_windowed(5));
  const Transformer late = window("qwen2", flagged + R"(, "use_sliding_window": true)");
  CHECK_FALSE(late.is_windowed(3));
  CHECK(late.is_windowed(4));
  const std::string s = R"("sliding_attention")", f = R"("full_attention")";
  const Transformer listed = window("qwen3", R"("sliding_window": 64, "layer_types": [)" + s + "," +
                                                 s + "," + f + "," + s + "," + s + "," + f + "]");
  for (std::int64_t i = 0; i < 6; ++i)
    CHECK(listed.is_windowed(i) == (i % 3 != 2));
  const std::string irregular = R"({"model_type": "qwen3", "hidden_size": 512,
    "intermediate_size": 1024, "num_attention_heads": 8, "num_hidden_layers": 3,
    "vocab_size": 1000, "sliding_window": 64, "layer_types": [)" +
                                s + "," + f + "," + f + "]}";
  CHECK(test::problems(with_config(folder, irregular))
            .find("/layer_types: windows that follow no regular pattern") != std::string::npos);
}

TEST_CASE("numbers that would divide or overflow are refused") {
  test::Folder folder("hf-numbers");
  const auto llama4 = [&](const std::string& keys) {
    return test::problems(with_config(folder, R"({"model_type": "llama4_text", )" + keys + "}"));
  };
  CHECK(llama4(R"("interleave_moe_layer_step": 0)").find("0 is no distance between layers") !=
        std::string::npos);
  CHECK(llama4(R"("no_rope_layer_interval": 0)").find("0 is no distance between layers") !=
        std::string::npos);
  CHECK(llama4(R"("num_hidden_layers": 1000000000000, "moe_layers": [0])")
            .find("expected a whole number up to 1e9") != std::string::npos);
  CHECK(with_keys(folder, R"("num_experts": 8, "num_experts_per_tok": 2, "moe_layer_freq": 2,
    "first_k_dense_replace": 9223372036854775807)")
            .find("expected a whole number up to 1e9") != std::string::npos);
}

namespace {

Transformer of_class(const std::string& type, const std::string& keys) {
  test::Folder folder("hf-hybrid");
  const std::string config =
      R"({"model_type": ")" + type + R"(", "hidden_size": 1024, "vocab_size": 1000, )" + keys + "}";
  return load_scenario(with_config(folder, config),
                       {"training.fused_attention=true", "parallelism.tp=1", "parallelism.pp=1",
                        "parallelism.sequence_parallel=false"})
      .base.network.as<Transformer>();
}

}  // namespace

TEST_CASE("layers of a mixer and a feed-forward half are two of one part each") {
  const std::string heads =
      R"("num_hidden_layers": 4, "num_attention_heads": 16, "num_key_value_heads": 4,
         "intermediate_size": 512, "mamba_n_heads": 16, "mamba_d_head": "auto",
         "mamba_n_groups": 1, "mamba_d_state": 64, "mamba_d_conv": 4, "mamba_expand": 2)";
  const Transformer bamba = of_class("bamba", heads + R"(, "attn_layer_indices": [2])");
  CHECK(bamba.pattern == "M-M-*-M-");
  CHECK(bamba.layers == 8);
  CHECK(bamba.mamba.heads == 16);
  CHECK(bamba.mamba.head_size == 2 * 1024 / 16);
  CHECK(bamba.mamba.state_size == 64);
  CHECK(bamba.mamba.chunk == 256);
  CHECK(bamba.gated());

  const std::string types = R"(, "layer_types": ["mamba", "attention", "mamba", "mamba"],
    "shared_intermediate_size": 768, "position_embedding_type": "nope")";
  const Transformer dense = of_class("granitemoehybrid", heads + types);
  CHECK(dense.pattern == "M-*-M-M-");
  CHECK(dense.ffn_hidden == 768);
  CHECK(dense.positional == models::Positional::none);
  const Transformer mixture = of_class(
      "granitemoehybrid", heads + types + R"(, "num_local_experts": 8, "num_experts_per_tok": 2)");
  CHECK(mixture.pattern == "ME*EMEME");
  CHECK(mixture.moe.ffn_hidden == 512);
  CHECK(mixture.moe.shared_ffn_hidden == 768);
}

TEST_CASE("a network of Mamba alone has no attention, and its heads are the state space's") {
  const Transformer network =
      of_class("mamba2", R"("num_hidden_layers": 3, "num_heads": 32, "head_dim": 64, "n_groups": 1,
        "state_size": 128, "conv_kernel": 4, "expand": 2, "chunk_size": 256,
        "residual_in_fp32": true, "tie_word_embeddings": true)");
  CHECK(network.pattern == "MMM");
  CHECK(network.mamba.heads == 32);
  CHECK(network.tied_embeddings);
  // in_proj, convolution, A, D and a step's bias, both norms, out_proj: as Mamba2ForCausalLM.
  const std::int64_t h = 1024, inner = 2048, all = inner + 2 * 128;
  const std::int64_t layer = h * (inner + all + 32) + 5 * all + 3 * 32 + inner + inner * h + h;
  CHECK(parameter_count(network, 2048) == 1000 * h + 3 * layer + h);
}

TEST_CASE("Nemotron-H's layers by words, as transformers 5 writes them") {
  const Transformer network = of_class("nemotron_h", R"("num_hidden_layers": 4,
    "num_attention_heads": 16, "num_key_value_heads": 4, "head_dim": 64, "intermediate_size": 2048,
    "mamba_num_heads": 32, "mamba_head_dim": 64, "n_groups": 8, "ssm_state_size": 128,
    "conv_kernel": 4, "chunk_size": 128,
    "layers_block_type": ["mamba", "mlp", "attention", "mlp"])");
  CHECK(network.pattern == "M-*-");
  // Names that transformers has had since, and before, and its class's own numbers.
  const Transformer later = of_class("nemotron_h", R"("num_attention_heads": 16,
    "intermediate_size": 2048, "mamba_n_groups": 4, "mamba_d_conv": 3,
    "layer_types": ["linear_attention", "mlp", "full_attention"])");
  CHECK(later.pattern == "M-*");
  CHECK(later.mamba.heads == 128);
  CHECK(later.mamba.head_size == 64);
  CHECK(later.mamba.groups == 4);
  CHECK(later.mamba.convolution == 3);
  CHECK(of_class("nemotron_h", R"("num_hidden_layers": 6, "num_attention_heads": 16,
    "intermediate_size": 2048, "hybrid_override_pattern": "M-*-")")
            .pattern == "M-*-");
  CHECK(network.feed_forward == models::FeedForward::squared_relu);
  CHECK(network.positional == models::Positional::none);
}

TEST_CASE("a hybrid's list of layers is of as many as its number") {
  test::Folder folder("hf-hybrid-numbers");
  const auto problems = [&](const std::string& type, const std::string& keys) {
    return test::problems(
        with_config(folder, R"({"model_type": ")" + type +
                                R"(", "hidden_size": 1024, "vocab_size": 1000, )" + keys + "}"));
  };
  CHECK(problems("granitemoehybrid", R"("num_hidden_layers": 4, "layer_types": ["mamba"])")
            .find("4 layers, and the list of them has 1; mend either") != std::string::npos);
  CHECK(problems("mamba2", R"("num_hidden_layers": 200000)").find("at most 100000, got 100001") !=
        std::string::npos);
  CHECK(problems("bamba", R"("attn_layer_indices": [1], "intermediate_size": 512)")
            .find("18446744073709551615") == std::string::npos);
}
