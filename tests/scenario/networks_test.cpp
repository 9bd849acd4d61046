// /model of encoders, encoder-decoders and vision transformers: presets, fields, Hugging Face.
#include <doctest/doctest.h>

#include "tests/scenario/temporary.h"
#include "tests/support/rooms.h"

using namespace trainyard;

namespace {

// A scenario of 8 GPUs with this model and these fields of /training.
std::string scenario_of(const test::Folder& folder, const std::string& model,
                        const std::string& lengths) {
  return folder.write("s.json", R"({ "version": 1, "name": "small", "model": )" + model +
                                    R"(, "cluster": { "nodes": 1, "node": "dgx-a100-80gb" },
    "training": { )" + lengths +
                                    R"( "global_batch": 64, "micro_batch": 1,
      "precision": { "compute": "bf16" }, "optimizer": { "type": "adam" } },
    "parallelism": { "dp": 8 } })");
}

constexpr const char* kText = R"("sequence_length": 512,)";
constexpr const char* kTwo = R"("sequence_length": 512, "decoder_sequence_length": 128,)";

std::int64_t parameters(const std::string& model, const std::string& lengths) {
  test::Folder folder("networks");
  const Scenario s = load_scenario(scenario_of(folder, model, lengths)).base;
  return parameter_count(s.network, s.recipe.micro_batch.sequence_length);
}

std::int64_t preset(const std::string& name, const std::string& lengths) {
  return parameters(R"({ "preset": ")" + name + "\" }", lengths);
}

std::string with_config(const test::Folder& folder, const std::string& config,
                        const std::string& lengths) {
  folder.write("configs/net.json", config);
  return scenario_of(folder, R"({ "hf_config": "configs/net.json" })", lengths);
}

}  // namespace

TEST_CASE("presets have the parameters of their checkpoints") {
  CHECK(preset("bert-base", kText) == 110'106'428);
  CHECK(preset("bert-large", kText) == 336'226'108);
  CHECK(preset("t5-small", kTwo) == 60'506'624);
  CHECK(preset("t5-base", kTwo) == 222'903'552);
  CHECK(preset("t5-large", kTwo) == 737'668'096);
  CHECK(preset("t5-3b", kTwo) == 2'851'598'336);
  CHECK(preset("t5-11b", kTwo) == 11'307'321'344);
  CHECK(preset("t5-v1.1-small", kTwo) == 76'961'152);
  CHECK(preset("t5-v1.1-base", kTwo) == 247'577'856);
  CHECK(preset("t5-v1.1-large", kTwo) == 783'150'080);
  CHECK(preset("t5-v1.1-xl", kTwo) == 2'849'757'184);
  CHECK(preset("t5-v1.1-xxl", kTwo) == 11'135'332'352);
  CHECK(preset("vit-b-16", "") == 86'567'656);
  CHECK(preset("vit-l-16", "") == 304'326'632);
  CHECK(preset("vit-h-14", "") == 632'045'800);
  CHECK(preset("vit-g-14", "") / 100'000 == 10'126);  // timm, vit_giant_patch14_224: 1012.6 M
}

TEST_CASE("fields of the sections reach the network") {
  test::Folder folder("networks");
  const Scenario bert =
      load_scenario(scenario_of(folder,
                                R"({ "kind": "encoder", "layers": 4, "hidden": 512, "heads": 8,
        "vocab": 30522, "encoder": { "norm_position": "pre", "token_types": 0,
        "next_sentence": false } })",
                                R"("sequence_length": 128, "predictions_per_sequence": 20,)"))
          .base;
  const auto& encoder = bert.network.as<Encoder>();
  CHECK(!encoder.stack.post_norm);
  CHECK(!encoder.stack.causal);
  CHECK(encoder.token_types == 0);
  CHECK(encoder.masked_lm);
  CHECK(!encoder.next_sentence);
  CHECK(bert.recipe.micro_batch.predictions == 20);

  const Scenario t5 = load_scenario(scenario_of(folder, R"({ "preset": "t5-base",
        "decoder": { "layers": 3 }, "position_buckets": 64 })",
                                                kTwo))
                          .base;
  const auto& two = t5.network.as<EncoderDecoder>();
  CHECK(two.stack.layers == 12);
  CHECK(two.decoder_layers == 3);
  CHECK(two.stack.buckets == 64);
  CHECK(t5.recipe.micro_batch.decoder_sequence_length == 128);

  const Scenario vit = load_scenario(scenario_of(folder, R"({ "preset": "vit-b-16",
        "input": { "image_size": [1, 32, 64] },
        "vision": { "patch_size": 8, "classes": 10, "class_token": false } })",
                                                 ""))
                           .base;
  const auto& vision = vit.network.as<VisionTransformer>();
  CHECK(vision.channels == 1);
  CHECK(vision.sequence_length() == 32);
  CHECK(vision.classes == 10);
}

TEST_CASE("Hugging Face's BERT, T5 and ViT become the networks they describe") {
  test::Folder folder("networks");
  const auto count = [&](const std::string& config, const std::string& lengths) {
    const Scenario s = load_scenario(with_config(folder, config, lengths)).base;
    return parameter_count(s.network, s.recipe.micro_batch.sequence_length);
  };
  const std::string bert = R"("model_type": "bert", "hidden_act": "gelu", "hidden_size": 768,
    "hidden_dropout_prob": 0.1, "intermediate_size": 3072, "max_position_embeddings": 512,
    "num_attention_heads": 12, "num_hidden_layers": 12, "type_vocab_size": 2,
    "vocab_size": 30522 })";
  CHECK(count("{" + bert, kText) == 110'106'428);
  CHECK(count(R"({ "architectures": ["BertForMaskedLM"], )" + bert, kText) == 109'514'298);
  const std::string t5 = R"("d_ff": 2048, "d_kv": 64, "d_model": 768, "dropout_rate": 0.1,
    "feed_forward_proj": "gated-gelu", "num_decoder_layers": 12, "num_heads": 12, "num_layers": 12,
    "relative_attention_num_buckets": 32, "tie_word_embeddings": false, "vocab_size": 32128 })";
  CHECK(count(R"({ "model_type": "t5", )" + t5, kTwo) == 247'577'856);
  CHECK(count(R"({ "model_type": "mt5", )" + t5, kTwo) == 247'577'856);
  CHECK(count(R"({ "model_type": "t5", "d_ff": 2048, "d_kv": 64, "d_model": 512,
    "dropout_rate": 0.1, "num_heads": 8, "num_layers": 6, "vocab_size": 32128 })",
              kTwo) == 60'506'624);
  CHECK(count(R"({ "model_type": "vit", "hidden_act": "gelu", "hidden_size": 768,
    "hidden_dropout_prob": 0.0, "image_size": 224, "intermediate_size": 3072, "num_channels": 3,
    "num_attention_heads": 12, "num_hidden_layers": 12, "patch_size": 16,
    "id2label": { "0": "cat", "1": "dog" } })",
              "") == 86'567'656 - 998 * 769);
  CHECK(test::problems(with_config(folder, R"({ "model_type": "t5", "d_ff": 2048, "d_kv": 64,
    "d_model": 512, "feed_forward_proj": "gated-silu", "num_heads": 8, "num_layers": 6,
    "vocab_size": 32128 })",
                                   kTwo)) ==
        "configs/net.json:2:42: error: /feed_forward_proj: unknown feed-forward layer "
        "\"gated-silu\"; known: relu, gated-gelu");
}
