#include <doctest/doctest.h>

#include <algorithm>

#include "sim/scenario/scenario.h"

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
