// Configs of published checkpoints, and what they count: to the digit.
#include <doctest/doctest.h>

#include <fstream>
#include <sstream>

#include "models/families/network.h"
#include "models/transformer/networks.h"
#include "tests/scenario/temporary.h"
#include "tests/support/rooms.h"

using namespace trainyard;

namespace {

std::string published(const std::string& name) {
  std::ifstream in(std::string(TRAINYARD_SOURCE_DIR) + "/tests/scenario/hugging_face/" + name +
                   ".json");
  REQUIRE(in);
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

Scenario loaded(const test::Folder& folder, const std::string& config,
                const std::string& model = R"({"hf_config": "configs/net.json"})") {
  folder.write("configs/net.json", config);
  return load_scenario(folder.write("s.json", R"({"version": 1, "name": "s",
    "model": )" + model + R"(,
    "cluster": {"nodes": 1, "node": {"preset": "dgx-h100"}},
    "training": {"global_batch": 8, "micro_batch": 1, "sequence_length": 2048,
      "precision": {"compute": "bf16"}, "optimizer": {"type": "adam"}, "fused_attention": true}})"))
      .base;
}

struct Published {
  const char* name;
  std::int64_t parameters;
};

// What only checkpoints have, and the network that is trained has not: a layer that predicts
// further tokens (its norms, the product that joins two states, copies of embedding and logits),
// and the parts that see images, with the projector to the text's width.
constexpr std::int64_t prediction_layer(std::int64_t h, std::int64_t vocabulary,
                                        std::int64_t layer) {
  return layer + 2 * h * h + 3 * h + 2 * vocabulary * h;
}
constexpr std::int64_t kGemmaVision = 4'299'915'632 - 3'880'099'328;  // KerasHub, with and without
constexpr std::int64_t kLlama4Vision =
    34 * (4 * (1408 * 1408 + 1408) + 2 * 1408 * 5632 + 5632 + 1408 + 4 * 1408) +
    1408 * (3 * 14 * 14 + 1 + 577 + 4) + 5632 * 4096 + 4096 * 4096 + 4096 * 5120;
// Attention, experts and a shared one, router, norms.
constexpr std::int64_t glm_layer(std::int64_t h, std::int64_t experts, std::int64_t width,
                                 std::int64_t head_norms) {
  return (h + 1) * (96 + 16) * 128 + 96 * 128 * h + head_norms + (experts + 1) * 3 * h * width +
         experts * (h + 1) + 2 * h;
}

// Source: the totals of the checkpoints' safetensors on the Hugging Face hub (deepseek-v3, kimi-k2:
// without the scales of fp8 and the layer of further tokens; gpt-oss: KerasHub, out of mxfp4;
// nemotron-3-nano: llama.cpp).
constexpr Published kPublished[] = {
    {"llama-3.2-1b", 1'235'814'400},
    {"mistral-7b-v0.1", 7'241'732'096},
    {"mixtral-8x7b", 46'702'792'704},
    {"qwen2.5-0.5b", 494'032'768},
    {"qwen2.5-7b", 7'615'616'512},
    {"qwen2.5-72b", 72'706'203'648},
    {"qwen1.5-moe-a2.7b", 14'315'784'192},
    {"qwen3-0.6b", 596'049'920},
    {"qwen3-8b", 8'190'735'360},
    {"qwen3-30b-a3b", 30'532'122'624},
    {"deepseek-v2-lite", 15'706'484'224},
    {"deepseek-v3", 671'026'419'200},
    {"gpt-oss-20b", 20'914'757'184},
    {"gpt-oss-120b", 116'829'156'672},
    {"phi-3-mini-4k", 3'821'079'552},
    {"starcoder2-3b", 3'030'371'328},
    {"kimi-k2", 1'026'408'232'448},
    {"glm-4.5-air",
     110'468'824'832 - prediction_layer(4096, 151552, glm_layer(4096, 128, 1408, 0))},
    {"glm-4.5", 358'337'791'296 - prediction_layer(5120, 151552, glm_layer(5120, 160, 1536, 256))},
    {"gemma-2-2b", 2'614'341'888},
    {"gemma-2-9b", 9'241'705'984},
    {"gemma-2-27b", 27'227'128'320},
    {"gemma-3-1b", 999'885'952},
    {"gemma-3-4b", 4'300'079'472 - kGemmaVision},
    {"olmo-2-7b", 7'298'617'344},
    {"olmo-2-13b", 13'716'198'400},
    {"pythia-1b", 1'011'781'632},
    {"pythia-6.9b", 6'857'302'016},
    {"gpt-neox-20b", 20'554'567'680},
    {"opt-125m", 125'239'296},
    {"opt-6.7b", 6'658'473'984},
    {"bloom-560m", 559'214'592},
    {"bloom", 176'247'271'424},
    {"falcon-7b", 6'921'720'704},
    {"falcon-40b", 41'303'293'952},
    {"nemotron-nano-9b-v2", 8'888'227'328},
    {"nemotron-3-nano-30b-a3b", 31'577'940'288},
    {"llama-4-scout", 108'641'793'536 - kLlama4Vision},
    {"llama-4-maverick", 401'583'781'376 - kLlama4Vision},
};

}  // namespace

TEST_CASE("configs of published checkpoints count their parameters to the digit") {
  test::Folder folder("hf-counts");
  for (const Published& row : kPublished) {
    CAPTURE(row.name);
    const Scenario s = loaded(folder, published(row.name));
    CHECK(parameter_count(s.network, 2048) == row.parameters);
    // Every key of a published file is understood, off or harmless.
    for (const Diagnostic& warning : s.warnings) {
      const bool left_out =
          warning.pointer == "/num_nextn_predict_layers" || warning.pointer == "/vision_config";
      CHECK_MESSAGE(left_out, to_text(warning));
    }
  }
}

TEST_CASE("published presets and configs are the same network") {
  test::Folder folder("hf-presets");
  const auto preset = [&](const std::string& name) {
    return parameter_count(
        loaded(folder, published(name), R"({"preset": ")" + name + R"("})").network, 2048);
  };
  for (const char* name : {"qwen3-30b-a3b", "deepseek-v3", "mixtral-8x7b", "gpt-oss-20b",
                           "gpt-oss-120b", "nemotron-nano-9b-v2", "nemotron-3-nano-30b-a3b"}) {
    CAPTURE(name);
    CHECK(preset(name) == parameter_count(loaded(folder, published(name)).network, 2048));
  }
}

TEST_CASE("per-layer patterns of published configs") {
  test::Folder folder("hf-patterns");
  const auto network = [&](const char* name) {
    return loaded(folder, published(name)).network.as<Transformer>();
  };
  const Transformer gemma2 = network("gemma-2-2b"), gemma3 = network("gemma-3-1b");
  const Transformer oss = network("gpt-oss-20b"), scout = network("llama-4-scout");
  const Transformer maverick = network("llama-4-maverick"), kimi = network("kimi-k2");
  for (std::int64_t i = 0; i < 24; ++i) {
    CHECK(gemma2.is_windowed(i) == (i % 2 == 0));
    CHECK(gemma3.is_windowed(i) == (i % 6 != 5));
    CHECK(oss.is_windowed(i) == (i % 2 == 0));
    CHECK(scout.is_windowed(i) == (i % 4 != 3));
    CHECK(scout.is_mixture(i));
    CHECK(maverick.is_mixture(i) == (i % 2 == 1));
    CHECK(kimi.is_mixture(i) == (i > 0));
  }
  CHECK(gemma3.window.size == 512);
  CHECK(scout.window.chunked);
  CHECK_FALSE(scout.window.global_positions);
  CHECK_FALSE(network("qwen2.5-7b").is_windowed(27));
  CHECK(network("mistral-7b-v0.1").is_windowed(0));
}
