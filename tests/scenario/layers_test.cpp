// /model of kind layers: the shipped tables, their totals and their input.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include "models/layers/layer_table.h"
#include "tests/scenario/temporary.h"
#include "tests/support/golden.h"
#include "tests/support/rooms.h"

using namespace trainyard;

namespace {

std::string scenario_of(const test::Folder& folder, const std::string& model) {
  return folder.write("s.json", R"({ "version": 1, "name": "small", "model": )" + model +
                                    R"(, "cluster": { "nodes": 1, "node": "dgx-a100-80gb" },
    "training": { "global_batch": 64, "micro_batch": 1,
      "precision": { "compute": "bf16" }, "optimizer": { "type": "adam" } } })");
}

LayerNetwork network(const std::string& model) {
  test::Folder folder("layers");
  return load_scenario(scenario_of(folder, model)).base.network.as<LayerNetwork>();
}

LayerNetwork shipped(const std::string& name) {
  return network(R"({ "preset": ")" + name + "\" }");
}

std::string text_of(const Kernel& kernel) {
  const auto* memory = std::get_if<MemoryBound>(&kernel);
  if (memory == nullptr) return to_text(kernel);
  return fmt::format("{} reading {} B, writing {} B", name(memory->op), memory->read.count(),
                     memory->written.count());
}

std::string text_of(const char* pass, const LayerWork& layer, const std::vector<WorkItem>& items) {
  std::string text;
  for (const WorkItem& item : items) {
    const auto& kernel = std::get<NamedKernel>(item);
    text +=
        fmt::format("{} | {} | {} | {}\n", pass, layer.name, kernel.name, text_of(kernel.kernel));
  }
  return text;
}

}  // namespace

// Parameters of torchvision's documentation; multiply-adds of its models at their input, the
// auxiliary classifiers of GoogLeNet and Inception included.
TEST_CASE("captured networks have the totals of their modules") {
  struct Total {
    const char* name;
    std::int64_t parameters, multiply_adds;
  };
  constexpr std::array<Total, 12> kTotals = {{
      {"alexnet", 61'100'840, 714'188'480},
      {"densenet121", 7'978'856, 2'834'161'664},
      {"efficientnet-b0", 5'288'548, 385'814'752},
      {"googlenet", 13'004'888, 1'506'748'416},
      {"inception-v3", 27'161'264, 5'718'899'296},
      {"mobilenet-v3-large", 5'483'032, 216'589'760},
      {"resnet18", 11'689'512, 1'814'073'344},
      {"resnet152", 60'192'808, 11'513'626'624},
      {"resnext50-32x4d", 25'028'904, 4'230'479'872},
      {"swin-t", 28'288'354, 4'490'566'656},
      {"unet", 31'030'658, 192'384'335'872},
      {"vgg19", 143'667'240, 19'632'062'464},
  }};
  for (const Total& total : kTotals) {
    CAPTURE(total.name);
    const LayerNetwork found = shipped(total.name);
    CHECK(found.parameters == total.parameters);
    CHECK(found.multiply_adds == total.multiply_adds);
  }
}

TEST_CASE("an image of the scenario's own changes the work and not the parameters") {
  const LayerNetwork usual = shipped("resnet18");
  const LayerNetwork large =
      network(R"({ "preset": "resnet18", "input": { "image_size": [3, 448, 448] } })");
  CHECK(large.parameters == usual.parameters);
  // All but the classifier's 512 x 1000.
  CHECK(large.multiply_adds - 512'000 == 4 * (usual.multiply_adds - 512'000));
}

TEST_CASE("a total that a file states is compared with its layers") {
  test::Folder folder("layers");
  const std::string table = R"(, "input": { "shape": [10] }, "layers": [
    { "name": "a", "ops": [{ "op": "linear", "in": 10, "out": 5, "bias": true }] }] })";
  const auto wrong = [&](const std::string& total) {
    return test::problems(scenario_of(folder, R"({ "kind": "layers", )" + total + table));
  };
  CHECK(wrong(R"("parameters": 50)").find("the layers have 55 parameters, not 50") !=
        std::string::npos);
  CHECK(wrong(R"("multiply_adds": 55)").find("the layers have 50 multiply-adds, not 55") !=
        std::string::npos);
  CHECK(wrong(R"("parameters": 55, "multiply_adds": 50)").empty());
}

TEST_CASE("windows are one number or two, and rows have the defaults of their operation") {
  const LayerNetwork found = network(R"({ "kind": "layers", "input": { "image_size": [4, 8, 6] },
    "layers": [{ "name": "a", "ops": [
      { "op": "conv", "out": 4, "kernel": [3, 1], "padding": [1, 0] },
      { "op": "conv", "out": 4, "kernel": 3, "padding": 1 },
      { "op": "max_pool", "kernel": 2 }, { "op": "loss" }] }] })");
  REQUIRE(found.operations.size() == 4);
  CHECK(found.operations[0].output.shape == std::vector<std::int64_t>{4, 8, 6});
  CHECK(found.operations[1].name == "a conv 2");
  CHECK(found.operations[2].output.shape == std::vector<std::int64_t>{4, 4, 3});
}

// tests/capture/expansion_test.py holds the same text against the format's own expansion.
TEST_CASE("each operation has the kernels, and keeps the bytes, of docs/layers.md") {
  const std::string file =
      fmt::format("{}/tests/scenario/tables/every-operation.json", TRAINYARD_SOURCE_DIR);
  Execution how;
  how.micro_batch.size = 4;
  how.compute = Dtype::fp16;
  const NetworkWork work = network_work(load_scenario(file).base.network, how);
  std::string text;
  for (const LayerWork& layer : work.kinds)
    text += text_of("forward", layer, layer.forward);
  for (std::size_t i = work.kinds.size(); i-- > 0;)
    text += text_of("backward", work.kinds[i], work.kinds[i].backward);
  for (const LayerWork& layer : work.kinds)
    text += fmt::format("keeps | {} | {} | {}\n", layer.name,
                        layer.kept.of(Module::layer_input).count(),
                        layer.kept.of(Module::features).count());
  CHECK(text == testing::golden("layers-kernels.txt", text));
}
