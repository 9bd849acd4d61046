// Software as data: what a framework does where a scenario says nothing.
#include "sim/scenario/software.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "sim/json/parse.h"
#include "sim/scenario/sources.h"
#include "tests/scenario/temporary.h"
#include "tests/support/rooms.h"

using namespace trainyard;

namespace {

const std::string kConfigs = std::string(TRAINYARD_SOURCE_DIR) + "/configs";

std::string text_of_file(const std::string& path) {
  std::ifstream stream(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(stream), std::istreambuf_iterator<char>()};
}

// A configs folder of one's own, for the time of a test.
class OwnConfigs {
 public:
  explicit OwnConfigs(const std::string& path) {
    const char* before = std::getenv("TRAINYARD_CONFIGS");
    if (before != nullptr) before_ = before;
    ::setenv("TRAINYARD_CONFIGS", path.c_str(), 1);
  }
  ~OwnConfigs() {
    if (before_.empty())
      ::unsetenv("TRAINYARD_CONFIGS");
    else
      ::setenv("TRAINYARD_CONFIGS", before_.c_str(), 1);
  }
  OwnConfigs(const OwnConfigs&) = delete;
  OwnConfigs& operator=(const OwnConfigs&) = delete;

 private:
  std::string before_;
};

constexpr const char* kPlain = R"({
  "version": 1, "name": "plain", "software": "torchtitan",
  "model": { "layers": 8, "hidden": 1024, "heads": 16, "vocab": 51200 },
  "cluster": { "nodes": 2, "node": { "preset": "dgx-a100-80gb", "gpus": 4 } },
  "training": { "global_batch": 64, "sequence_length": 1024 }
})";

std::vector<std::string> pointers(const std::vector<Assumption>& habits) {
  std::vector<std::string> list;
  for (const Assumption& habit : habits)
    list.push_back(habit.pointer);
  return list;
}

bool sets(const Scenario& scenario, const std::string& pointer) {
  const std::vector<std::string> list = pointers(scenario.habits);
  return std::find(list.begin(), list.end(), pointer) != list.end();
}

constexpr const char* kKind = "/parallelism/data_parallel/kind";

}  // namespace

TEST_CASE("software decides what a scenario leaves open, with its sources") {
  test::Folder folder("software");
  const Scenario scenario = load_scenario(folder.write("plain.json", kPlain)).base;
  CHECK(scenario.software == "torchtitan");
  CHECK(scenario.recipe.kernels.fusion == models::Fusion::eager);
  CHECK(scenario.plan.data_parallel.kind == "fsdp");
  CHECK(scenario.plan.data_parallel.reduce_dtype == models::Dtype::fp32);
  CHECK(sets(scenario, kKind));
  for (const Assumption& habit : scenario.habits)
    CHECK((habit.why.find('@') != std::string::npos ||  // a commit, or measurements
           habit.why.find("docs/") != std::string::npos));
  // Software fuses attention; whose kernel that is, the GPU says.
  CHECK(sets(scenario, "/training/fused_attention"));
  for (const Assumption& assumption : scenario.assumed)
    if (assumption.pointer == "/training/fused_attention") CHECK(assumption.value == "fa2");
}

TEST_CASE("what a scenario says stands, and habits that go with another value do not hold") {
  test::Folder folder("software");
  const std::string path = folder.write("plain.json", kPlain);
  const Scenario scenario = load_scenario(path, {"parallelism.data_parallel.kind=allreduce"}).base;
  CHECK(scenario.plan.data_parallel.kind == "allreduce");
  CHECK(!sets(scenario, kKind));
  CHECK(!sets(scenario, "/parallelism/data_parallel/reduce_dtype"));
  CHECK(scenario.recipe.kernels.fusion == models::Fusion::eager);
  CHECK(load_scenario(path, {"software=null"}).base.habits.empty());
}

TEST_CASE("conditions see degrees and what is not said") {
  test::Folder folder("software");
  const std::string path = folder.write("plain.json", kPlain);
  const auto habits = [&](std::vector<std::string> changes) {
    changes.emplace_back("software=megatron-lm-2021");
    return load_scenario(path, changes).base;
  };
  const char* const kScatter = "/parallelism/pipeline/scatter_gather";
  CHECK(!sets(habits({"parallelism.pp=2"}), kScatter));
  CHECK(!sets(habits({"parallelism.tp=2"}), kScatter));
  CHECK(sets(habits({"parallelism.pp=2", "parallelism.tp=2"}), kScatter));
  CHECK(sets(habits({}), "/training/precision/gradients"));
  CHECK(sets(habits({"training.precision.compute=bf16"}), "/training/precision/gradients"));
  CHECK(!sets(habits({"training.precision.compute=fp16"}), "/training/precision/gradients"));
}

TEST_CASE("software that has two names is known by both") {
  test::Folder folder("software");
  const std::string path = folder.write("plain.json", kPlain);
  for (const auto& [other, name] :
       {std::pair("deepspeed-zero", "deepspeed"), std::pair("axolotl", "hf-trainer")}) {
    const auto habits = [&](const std::string& software) {
      return pointers(load_scenario(path, {"software=" + software}).base.habits);
    };
    CHECK(!habits(other).empty());
    CHECK(habits(other) == habits(name));
  }
}

TEST_CASE("habits of a backward pass do not hold where there is none") {
  test::Folder folder("software");
  const std::string path = folder.write("plain.json", kPlain);
  const char* const kClipping = "/training/gradient_clipping";
  for (const std::string software : {"deepspeed", "hf-trainer", "internevo", "llm-foundry",
                                     "megatron-core", "megatron-deepspeed", "megatron-lm-2021",
                                     "nanotron", "nemo", "torchtitan", "torchtitan-compiled"}) {
    CAPTURE(software);
    const std::string name = "software=" + software;
    for (const std::string change : {"training.forward_only=true", "training.optimizer.type=none",
                                     "parallelism.data_parallel.kind=parameter_server"}) {
      CAPTURE(change);
      CHECK(test::problems(path, {name, change}) == "");
      CHECK(!sets(load_scenario(path, {name, change}).base, kClipping));
    }
  }
  CHECK(sets(load_scenario(path, {"software=nanotron"}).base, kClipping));
  // What divides the weights stays.
  const Scenario forward = load_scenario(path, {"training.forward_only=true"}).base;
  CHECK(forward.plan.data_parallel.kind == "fsdp");
}

TEST_CASE("habits that need a kind, a stage or a replica hold where there is one") {
  test::Folder folder("software");
  const std::string path = folder.write("plain.json", kPlain);
  const auto with = [&](std::vector<std::string> changes) {
    CHECK(test::problems(path, changes) == "");
    return load_scenario(path, changes).base;
  };
  const char* const kPieces = "/parallelism/data_parallel/allgather_bucket_size";
  const std::string nanotron = "software=nanotron", zero1 = "parallelism.data_parallel.kind=zero1";
  CHECK(sets(with({nanotron, zero1}), kPieces));
  CHECK(!sets(with({nanotron}), kPieces));
  CHECK(!sets(with({nanotron, zero1, "parallelism.data_parallel.overlap_param_gather=true"}),
              kPieces));
  with({nanotron, zero1, "parallelism.tp=8"});  // one replica
  const char* const kOutputs = "/training/memory/kept_outputs";
  for (const char* const software : {"software=deepspeed", "software=megatron-deepspeed"}) {
    CHECK(sets(with({software, "parallelism.pp=2"}), kOutputs));
    CHECK(!sets(with({software}), kOutputs));
  }
}

TEST_CASE("a patch of a read scenario decides habits again, as --set does") {
  test::Folder folder("software");
  const std::string path = folder.write("plain.json", kPlain);
  const Scenario read = load_scenario(path).base;
  std::vector<Diagnostic> none;
  const json::Value patch = json::parse_text(
      R"({"parallelism": {"data_parallel": {"kind": "allreduce"}}})", "patch", none);
  const std::optional<Scenario> patched = with_patch(read, patch);
  REQUIRE(patched);
  const Scenario set = load_scenario(path, {"parallelism.data_parallel.kind=allreduce"}).base;
  CHECK(pointers(patched->habits) == pointers(set.habits));
  CHECK(patched->plan.data_parallel.reduce_dtype == set.plan.data_parallel.reduce_dtype);
}

TEST_CASE("variants name software of their own") {
  test::Folder folder("software");
  std::string text = kPlain;
  text.replace(text.rfind('}'), 1, R"(, "variants": [
    {"name": "titan"}, {"name": "nemo", "with": {"software": "nemo"}}]})");
  const ScenarioSet set = load_scenario(folder.write("two.json", text));
  REQUIRE(set.variants.size() == 2);
  CHECK(set.variants[0].plan.data_parallel.kind == "fsdp");
  CHECK(set.variants[1].plan.data_parallel.kind == "distributed_optimizer");
  CHECK(set.variants[1].software == "nemo");
}

TEST_CASE("software that is not known has a cure") {
  test::Folder folder("software");
  std::string text = kPlain;
  text.replace(text.find("torchtitan"), 10, "torchtitam");
  CHECK(test::problems(folder.write("plain.json", text)) ==
        "plain.json:2:46: error: /software: unknown software \"torchtitam\"; nearest: torchtitan");
}

TEST_CASE("a file of one's own is checked row by row, where its rows stand") {
  test::Folder folder("software");
  const OwnConfigs own(folder.path() + "/configs");
  const std::string path = folder.write("plain.json", kPlain);
  const auto said = [&](const std::string& habits) {
    folder.write("configs/software/mine.json", "{\"habits\": [\n" + habits + "\n]}");
    return test::problems(path, {"software=mine"});
  };
  CHECK(said(R"({"key": "/training/execution", "value": "eager", "source": "us"})") == "");
  CHECK(said(R"({"key": "/training/execution", "value": "eager"})")
            .find("mine.json:2:1: error: /software: a habit has key, value and source") !=
        std::string::npos);
  CHECK(said(R"({"key": "/training/execution", "value": "eager", "source": "us",
                 "when": {"/parallelism/pp": {"over": 1}}})")
            .find("mine.json:2:1: error: /software: a habit") != std::string::npos);
  CHECK(said(R"({"key": "/training/execution", "value": "hasty", "source": "us"})")
            .find("mine.json:2:41: error: /training/execution") != std::string::npos);
  CHECK(said(R"({"key": "/training/hurry", "value": 1, "source": "us"})").find("unknown key") !=
        std::string::npos);
}

TEST_CASE("every shipped software runs a language model with and without a pipeline") {
  test::Folder folder("software");
  const std::string path = folder.write("plain.json", kPlain);
  const std::vector<std::string> names = preset_names(kConfigs, "software");
  CHECK(names.size() >= 14);
  for (const std::string& name : names) {
    CAPTURE(name);
    for (const char* degrees : {"parallelism.tp=1", "parallelism.tp=2"}) {
      for (const char* stages : {"parallelism.pp=1", "parallelism.pp=2"}) {
        for (const char* compute : {"bf16", "fp16"}) {
          const std::vector<std::string> changes = {
              "software=" + name, degrees, stages,
              std::string("training.precision.compute=") + compute};
          CHECK(test::problems(path, changes) == "");
          const Scenario scenario = load_scenario(path, changes).base;
          CHECK(scenario.habits.size() >= 3);
          CHECK(test::warnings(scenario) == "");
        }
      }
    }
  }
}

// Habits are taken in order: one that asks for what another sets does not see it before that.
TEST_CASE("habits of shipped software stand behind those whose values they ask for") {
  for (const std::string& name : preset_names(kConfigs, "software")) {
    CAPTURE(name);
    std::vector<Diagnostic> none;
    const std::string path = kConfigs + "/software/" + name + ".json";
    const json::Value file = json::parse_text(text_of_file(path), path, none);
    const json::Value* habits = json::find(file, "/habits");
    REQUIRE(habits != nullptr);
    for (std::size_t asks = 0; asks < habits->items.size(); ++asks) {
      const json::Value* when = habits->items[asks].find("when");
      const std::string key = habits->items[asks].find("key")->text;
      CAPTURE(key);
      for (std::size_t sets = asks + 1; when != nullptr && sets < habits->items.size(); ++sets) {
        const std::string later = habits->items[sets].find("key")->text;
        const json::Value* asked = when->find(later);
        if (asked == nullptr || later == key) continue;
        const json::Value& value = *habits->items[sets].find("value");
        bool unset = false;
        bool set = false;
        for (const json::Value& one : asked->items) {
          unset = unset || one.is(json::Kind::null);
          set = set || json::same(one, value);
        }
        CAPTURE(later);
        CHECK((!set || unset));
      }
    }
  }
}
