#include <doctest/doctest.h>

#include <algorithm>

#include "sim/scenario/scenario.h"
#include "tests/scenario/temporary.h"

using namespace trainyard;

TEST_CASE("every preset is listed by kind and name, with a description") {
  const std::vector<Preset> presets = list_presets(std::string(TRAINYARD_SOURCE_DIR) + "/configs");
  const auto has = [&](const std::string& kind, const std::string& name) {
    return std::any_of(presets.begin(), presets.end(), [&](const Preset& preset) {
      return preset.kind == kind && preset.name == name;
    });
  };
  CHECK(has("model", "resnet50"));
  CHECK(has("model", "gpt3-175b"));
  CHECK(has("gpu", "h100-sxm5-80gb"));
  CHECK(has("server", "dgx-1v"));
  CHECK(has("cluster", "selene"));
  for (const Preset& preset : presets) {
    CAPTURE(preset.name);
    CHECK_FALSE(preset.description.empty());
  }
  CHECK(std::is_sorted(presets.begin(), presets.end(), [](const Preset& a, const Preset& b) {
    return a.kind != b.kind ? a.kind < b.kind : a.name < b.name;
  }));
}

TEST_CASE("the configs folder is found upwards from a scenario") {
  const std::string configs = std::string(TRAINYARD_SOURCE_DIR) + "/configs";
  CHECK(configs_folder(configs + "/scenarios/four-strategies.json") == configs_folder(configs));
  const std::string fallback = configs_folder("/");
  CHECK(fallback.substr(fallback.size() - 7) == "configs");
}

TEST_CASE("a project's own configs folder holds what it adds, the shipped one the rest") {
  const test::Folder folder("own-configs");
  folder.write("configs/models/tiny.json", R"({"kind": "transformer", "layers": 2, "hidden": 64,
    "heads": 4, "vocab": 100})");
  const std::string path = folder.write("configs/mine.json", R"({"version": 1, "name": "mine",
    "model": {"preset": "tiny"},
    "cluster": {"nodes": 1, "node": {"preset": "dgx-a100-80gb"}},
    "training": {"global_batch": 8, "micro_batch": 1, "sequence_length": 32,
      "precision": {"compute": "bf16"}, "optimizer": {"type": "adam"}}})");
  const ScenarioSet set = load_scenario(path);
  CHECK(set.base.cluster.server.gpu.name == "a100-sxm4-80gb");
  CHECK(std::get<Transformer>(set.base.network).layers == 2);
  CHECK_FALSE(set.base.profile.empty());
}
