#include "sim/scenario/scenario.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <ctime>
#include <string>

#include "tests/scenario/temporary.h"
#include "tests/support/rooms.h"

using namespace trainyard;

namespace {

const json::Explained& line(const std::vector<json::Explained>& lines, const std::string& pointer) {
  const auto found =
      std::find_if(lines.begin(), lines.end(),
                   [&](const json::Explained& candidate) { return candidate.pointer == pointer; });
  REQUIRE(found != lines.end());
  return *found;
}

}  // namespace

TEST_CASE("a small scenario is read into plain values, defaults derived") {
  test::Folder folder("small");
  const Scenario s = load_scenario(folder.write("s.json", test::kSmall)).base;
  const auto& network = s.network.as<Transformer>();
  CHECK(network.kv_heads == 16);
  CHECK(network.head_size == 64);
  CHECK(network.ffn_hidden == 4096);
  CHECK(s.plan.degrees.data == 2);
  CHECK(s.recipe.precision.gradients == Dtype::bf16);
  CHECK(s.recipe.precision.keeps_master());
  CHECK(s.cluster.server.name == "dgx-a100-80gb");
  CHECK(s.cluster.server.gpus == 4);
  CHECK(s.cluster.server.gpu.name == "a100-sxm4-80gb");
  CHECK(s.cluster.server.gpu.fp16 == FlopsPerSecond(312e12));
  CHECK(s.cluster.server.nic_bandwidth == BytesPerSecond(25e9));
  CHECK(s.label == "small");
}

TEST_CASE("an order of stages means nothing to one stage") {
  test::Folder folder("one-stage");
  const std::string path = folder.write("s.json", test::kSmall);
  const auto load = [&](const std::string& schedule, const std::string& stages) {
    return load_scenario(path, {"parallelism.tp=1", "parallelism.pp=" + stages,
                                "parallelism.pipeline.schedule=" + schedule})
        .base;
  };
  for (const std::string schedule : {"gpipe", "zb_h1"}) {
    CHECK(load(schedule, "1").plan.pipeline.schedule == "1f1b");
    CHECK(test::warnings(load(schedule, "1")).find("means nothing: pp is 1") != std::string::npos);
    CHECK(load(schedule, "2").plan.pipeline.schedule == schedule);
    CHECK(test::warnings(load(schedule, "2")).find("means nothing") == std::string::npos);
  }
  CHECK(test::warnings(load("1f1b", "1")).find("means nothing") == std::string::npos);
  // When weights are updated is no order.
  CHECK(load("pipedream", "1").plan.pipeline.schedule == "pipedream");
}

TEST_CASE("--set takes dotted and pointer keys, JSON values and plain text") {
  test::Folder folder("set");
  const std::string path = folder.write("s.json", test::kSmall);
  const Scenario s = load_scenario(path, {"parallelism.tp=4", "/training/precision/compute=fp16",
                                          "cluster.node.nic.bandwidth=400Gbps",
                                          "parallelism.pipeline={\"schedule\": \"gpipe\"}",
                                          "cluster.node.gpu=h100-sxm5-80gb"})
                         .base;
  CHECK(s.plan.degrees.tensor == 4);
  CHECK(s.plan.degrees.data == 1);
  CHECK(s.recipe.precision.compute == Dtype::fp16);
  CHECK(s.plan.pipeline.schedule == "gpipe");
  CHECK(s.cluster.server.nic_bandwidth == BytesPerSecond(50e9));
  CHECK(s.cluster.server.gpu.name == "h100-sxm5-80gb");
  CHECK(s.cluster.server.name == "dgx-a100-80gb");
}

TEST_CASE("--set refuses what no table knows, with the nearest key") {
  test::Folder folder("set");
  const std::string path = folder.write("s.json", test::kSmall);
  CHECK(test::problems(path, {"paralelism.tp=4"}) ==
        "--set paralelism.tp=4: error: /paralelism: unknown key; did you mean \"parallelism\"?");
  CHECK(test::problems(path, {"training.tp=4"}) ==
        "--set training.tp=4: error: /training/tp: unknown key; it belongs under /parallelism");
  CHECK(test::problems(path, {"tp"}) ==
        "--set tp: error: expected KEY=VALUE, e.g. parallelism.tp=8");
  CHECK(test::problems(path, {"name.x=1"}) ==
        "--set name.x=1: error: /name/x: there is nothing of that name to set");
  CHECK(test::problems(path, {"parallelism.tp=four"}) ==
        "--set parallelism.tp=four: error: /parallelism/tp: expected a whole number, got \"four\"");
}

TEST_CASE("--set KEY=null takes a value back to its default") {
  test::Folder folder("set");
  const std::string path = folder.write("s.json", test::kSmall);
  CHECK(load_scenario(path, {"parallelism.tp=null"}).base.plan.degrees.tensor == 1);
}

TEST_CASE("a gpu may be described beside its preset's name") {
  test::Folder folder("gpu");
  const std::string path = folder.write("s.json", test::kSmall);
  const Scenario s = load_scenario(path, {"cluster.node.gpu={\"memory\": \"40GiB\"}"}).base;
  CHECK(s.cluster.server.gpu.memory == Bytes(std::int64_t{40} << 30));
  CHECK(s.cluster.server.gpu.fp16 == FlopsPerSecond(312e12));
}

TEST_CASE("a slow server slows its ranks, and only once") {
  test::Folder folder("slow");
  const std::string path = folder.write("s.json", test::kSmall);
  const std::string key = "perturbations.stragglers=";
  const Scenario s =
      load_scenario(path, {key + R"([{"select": {"node": 1}, "compute_slowdown": 1.5},
      {"select": {"rank": 0}, "compute_slowdown": 2}])"})
          .base;
  REQUIRE(s.stragglers.size() == 5);
  CHECK(s.stragglers[0].rank == 0);
  CHECK(s.stragglers[0].compute_slowdown == 2);
  CHECK(s.stragglers[1].rank == 4);
  CHECK(s.stragglers[4].rank == 7);
}

TEST_CASE("every value is explained with its origin") {
  test::Folder folder("explain");
  const std::string path = folder.write("s.json", test::kSmall);
  const std::vector<json::Explained> lines =
      explain(load_scenario(path, {"training.micro_batch=2"}).base);
  CHECK(line(lines, "/training/global_batch").origin.file == path);
  CHECK(line(lines, "/training/global_batch").origin.line == 7);
  CHECK(line(lines, "/training/micro_batch").origin.file == "--set training.micro_batch=2");
  CHECK(line(lines, "/cluster/node/intra/bandwidth_per_gpu").value == "\"300GB/s\"");
  CHECK(line(lines, "/cluster/node/intra/bandwidth_per_gpu")
            .origin.file.find("servers/dgx-a100-80gb.json") != std::string::npos);
  CHECK(line(lines, "/cluster/node/gpu/memory").origin.file.find("gpus/a100-sxm4-80gb.json") !=
        std::string::npos);
  CHECK(line(lines, "/parallelism/dp").value == "2");
  CHECK(line(lines, "/parallelism/dp").origin.file == "default");
  CHECK(line(lines, "/parallelism/pipeline/schedule").value == "\"1f1b\"");
}

TEST_CASE("variants are read in a time that grows as their number does") {
  test::Folder folder("many");
  const auto seconds = [&](int count) {
    std::string text = test::kSmall;
    text.replace(text.rfind('}'), 1, ", \"variants\": [");
    for (int i = 0; i < count; ++i) {
      text += (i == 0 ? "{ \"name\": \"v" : ", { \"name\": \"v") + std::to_string(i) +
              "\", \"with\": { \"parallelism\": { \"unknown\": [";
      for (int number = 0; number < 500; ++number)
        text += number == 0 ? "0" : ", 0";
      text += "] } } }";
    }
    const std::string file = folder.write("s.json", text + "] }");
    const std::clock_t begin = std::clock();
    CHECK(test::problems(file) != "");
    return static_cast<double>(std::clock() - begin);
  };
  // Four times as many: four times as long. Copying all of them for each would be sixteen.
  CHECK(seconds(400) < 8 * seconds(100));
}

TEST_CASE("a variant changes its scenario and its mistakes carry its name") {
  test::Folder folder("variants");
  std::string text = test::kSmall;
  text.replace(text.rfind('}'), 1, R"(,
  "baseline": "a",
  "variants": [
    { "name": "a", "with": { "parallelism": { "pp": null } } },
    { "name": "b", "label": "Flow", "with": { "simulation": { "fidelity": "flow" } } }
  ]
})");
  const ScenarioSet set = load_scenario(folder.write("s.json", text));
  REQUIRE(set.variants.size() == 2);
  CHECK(set.variants[0].plan.degrees.pipeline == 1);
  CHECK(set.variants[0].plan.degrees.data == 4);
  CHECK(set.variants[0].label == "a");
  CHECK(set.variants[1].fidelity == Fidelity::flow);
  CHECK(set.variants[1].label == "Flow");
  CHECK(set.base.fidelity == Fidelity::closed_form);

  std::string wrong = text;
  wrong.replace(wrong.find("\"flow\""), 6, "\"flaw\"");
  CHECK(test::problems(folder.write("w.json", wrong)) ==
        "w.json:15:75: error: /simulation/fidelity: in variant \"b\": unknown fidelity \"flaw\"; "
        "did you "
        "mean \"flow\"? known: closed_form, flow");
}

TEST_CASE("mistakes are cut at twenty, in the order of the file") {
  test::Folder folder("many");
  std::string text = "{\n";
  for (int i = 0; i < 30; ++i)
    text += "\"zz" + std::to_string(i) + "\": 1,\n";
  text += "\"version\": 1}";
  const std::string found = test::problems(folder.write("s.json", text));
  CHECK(std::count(found.begin(), found.end(), '\n') == 20);
  CHECK(found.find("s.json:1:1: error: /name: is required") == 0);
  CHECK(found.find("s.json: error: and 14 more") != std::string::npos);
}
