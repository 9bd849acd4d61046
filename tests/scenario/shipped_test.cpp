// Every scenario of configs/ is an example for users: it must load without an error or a warning.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "models/layers/layer_table.h"
#include "tests/scenario/temporary.h"
#include "tests/support/about.h"
#include "tests/support/rooms.h"

using namespace trainyard;
namespace fs = std::filesystem;

namespace {

const std::string kConfigs = std::string(TRAINYARD_SOURCE_DIR) + "/configs";

std::string contents(const std::string& path) {
  std::ifstream stream(path, std::ios::binary);
  std::ostringstream text;
  text << stream.rdbuf();
  return text.str();
}

Scenario shipped(const std::string& name, const std::string& variant = "") {
  const ScenarioSet set = load_scenario(kConfigs + "/scenarios/" + name + ".json");
  for (const Scenario& scenario : set.variants) {
    if (scenario.variant == variant) return scenario;
  }
  REQUIRE(variant == "");
  return set.base;
}

}  // namespace

TEST_CASE("every shipped scenario loads without a warning") {
  std::vector<std::string> paths;
  for (const auto& entry : fs::recursive_directory_iterator(kConfigs + "/scenarios"))
    if (entry.is_regular_file()) paths.push_back(entry.path().string());
  std::sort(paths.begin(), paths.end());
  CHECK(paths.size() >= 10);
  for (const std::string& path : paths) {
    CAPTURE(path);
    CHECK(test::problems(path) == "");
    const ScenarioSet set = load_scenario(path);
    CHECK(test::warnings(set.base) == "");
    for (const Scenario& variant : set.variants)
      CHECK((test::warnings(variant) == "" || variant.variant == "n8-m4"));  // as published
  }
}

TEST_CASE("the networks have the parameters of their names") {
  const auto parameters = [](const std::string& preset) {
    test::Folder folder("parameters");
    const std::string path = folder.write("s.json", test::kSmall);
    const ScenarioSet set = load_scenario(
        path, {"model={\"preset\": \"" + preset + "\"}", "parallelism.tp=1", "parallelism.pp=1"});
    return static_cast<double>(parameter_count(set.base.network, 2048)) / 1e9;
  };
  CHECK(parameters("gpt-1.7b") == about(1.7).within(0.03));
  CHECK(parameters("gpt-22b") == about(22).within(0.03));
  CHECK(parameters("gpt3-175b") == about(175).within(0.01));
  CHECK(parameters("gpt-530b") == about(530).within(0.01));
  CHECK(parameters("gpt-1t") == about(1000).within(0.02));
  CHECK(parameters("llama2-7b") == about(6.738).within(0.001));
  CHECK(parameters("llama3-8b") == about(8.030).within(0.001));
  CHECK(parameters("llama3-70b") == about(70.55).within(0.001));
  CHECK(parameters("llama3-405b") == about(405.85).within(0.001));
}

TEST_CASE("four strategies train the same batch of the same network") {
  const ScenarioSet set = load_scenario(kConfigs + "/scenarios/four-strategies.json");
  REQUIRE(set.variants.size() == 6);
  CHECK(set.baseline == "single-gpu");
  for (const Scenario& variant : set.variants) {
    CHECK(variant.recipe.global_batch == set.base.recipe.global_batch);
    CHECK(parameter_count(variant.network, 1024) == parameter_count(set.base.network, 1024));
    CHECK(variant.plan.degrees.world_size() ==
          variant.cluster.servers * variant.cluster.server.gpus);
  }
  CHECK(set.variants[0].cluster.server.gpus == 1);
  CHECK(set.variants[1].plan.degrees.data == 8);
  CHECK(set.variants[2].plan.pipeline.schedule == "sequential");
  CHECK(set.variants[5].plan.degrees.tensor == 8);
}

TEST_CASE("large shipped jobs are divided as their sources say") {
  const Scenario trillion = shipped("gpt-1t-512xa100", "full");
  CHECK(trillion.plan.degrees.pipeline == 64);
  CHECK(trillion.plan.degrees.data == 1);
  CHECK(trillion.recipe.recompute.form == Recompute::full);
  CHECK_FALSE(trillion.plan.tensor_parallel.sequence);
  CHECK(trillion.cluster.servers == 64);
  const Scenario llama = shipped("llama3-405b-16384xh100");
  CHECK(llama.plan.degrees.world_size() == 16384);
  // Section 3.3.2: the first stage has the embedding only, the last the output and the loss.
  CHECK(llama.plan.pipeline.layers_per_chunk.front() == 0);
  CHECK(llama.plan.pipeline.layers_per_chunk.back() == 0);
  CHECK(std::get<Clos>(llama.cluster.fabric).levels.size() == 3);
  // Grattafiori et al. 2024, table 4: both stages take 16 million tokens a step on all GPUs.
  const Scenario longer = shipped("llama3-405b-16384xh100", "128k");
  CHECK(longer.plan.degrees.world_size() == 16384);
  CHECK(longer.plan.degrees.context == 16);
  CHECK(longer.plan.degrees.data == 8);
  CHECK(longer.plan.context_parallel.method == ContextMethod::all_gather);
  CHECK(longer.recipe.global_batch * longer.recipe.micro_batch.sequence_length ==
        llama.recipe.global_batch * llama.recipe.micro_batch.sequence_length);
  const Scenario resnet = shipped("resnet50-ddp-8xv100");
  CHECK(resnet.network.as<LayerNetwork>().operations.size() > 100);
  CHECK(resnet.cluster.server.mesh.size() == 16);
  // Kernels fused by hand are Megatron-LM's; nobody is told that they run here.
  CHECK(resnet.recipe.kernels.fusion == Fusion::eager);
  CHECK_THROWS_AS(load_scenario(resnet.file, {"training.execution=fused"}), ScenarioError);
  CHECK(fs::path(resnet.profiles.front().path).filename() == "v100-sxm2-16gb.json");
}

TEST_CASE("the committed schema is the one that the tables write") {
  const std::string path = kConfigs + "/scenario.schema.json";
  if (std::getenv("TRAINYARD_UPDATE_GOLDEN") != nullptr) std::ofstream(path) << schema_json();
  CHECK(contents(path) == schema_json());
}
