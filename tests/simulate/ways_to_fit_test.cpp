#include "sim/search/ways_to_fit.h"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "sim/search/fit_knobs.h"
#include "sim/simulate/simulate.h"
#include "tests/scenario/temporary.h"
#include "tests/support/rooms.h"

using namespace trainyard;

namespace {

// GPT of 12 layers, 2 servers of 4 A100: every axis can be turned. The memory is the test's.
constexpr const char* kJob = R"({
  "version": 1,
  "name": "tight",
  "model": { "layers": 12, "hidden": 1024, "heads": 16, "vocab": 51200 },
  "cluster": { "nodes": 2, "node": { "preset": "dgx-a100-80gb", "gpus": 4 } },
  "training": {
    "global_batch": 64, "micro_batch": 4, "sequence_length": 1024,
    "precision": { "compute": "bf16", "gradients": "fp32" }, "optimizer": { "type": "adam" }
  },
  "parallelism": { "tp": 1, "pp": 2, "dp": 4, "pipeline": { "schedule": "gpipe" } }
})";

StepReport report_of(const std::string& path, const std::vector<std::string>& sets) {
  return simulate::simulate(load_scenario(path, sets).base, {.timeline = false}).report;
}

WaysToFit ways_of(const std::string& path, const std::vector<std::string>& sets,
                  const WaysToFitOptions& options = {}) {
  const Scenario scenario = load_scenario(path, sets).base;
  const StepReport report = simulate::simulate(scenario, {.timeline = false}).report;
  REQUIRE_FALSE(report.fits);
  return ways_to_fit(scenario, report, options);
}

// One combination as a user would write and run it.
struct Written {
  std::set<std::size_t> knobs;
  Edits edits;
  bool fits = false;
  Bytes peak;
  Duration time{};
};

std::vector<std::string> with(std::vector<std::string> sets, const Edits& edits) {
  for (const Edit& edit : edits)
    sets.push_back(fmt::format("{}={}", edit.pointer, json::to_text(edit.value, -1)));
  return sets;
}

// All changes of one knob more than `onto`, on the scenario that those have made, run by
// themselves.
std::vector<Written> one_more(const std::string& path, const std::vector<std::string>& sets,
                              const Written& onto) {
  std::vector<Written> all;
  const Scenario before = load_scenario(path, with(sets, onto.edits)).base;
  const std::size_t first = onto.knobs.empty() ? 0 : *onto.knobs.rbegin() + 1;
  for (std::size_t knob = first; knob < fit_knobs().size(); ++knob) {
    for (const Edits& edits : fit_knobs()[knob].changes(before)) {
      Written one = onto;
      one.knobs.insert(knob);
      one.edits.insert(one.edits.end(), edits.begin(), edits.end());
      try {
        const StepReport report = report_of(path, with(sets, one.edits));
        one.fits = report.fits;
        one.peak = report.memory.peak;
        one.time = report.simulated_step;
        all.push_back(one);
      } catch (const ScenarioError&) {
        continue;
      }
    }
  }
  return all;
}

// The fastest of each set of knobs that fits, fastest first.
std::vector<Written> fastest(std::vector<Written> all) {
  std::stable_sort(all.begin(), all.end(),
                   [](const Written& a, const Written& b) { return a.time < b.time; });
  std::vector<Written> kept;
  for (const Written& one : all) {
    const bool known = std::any_of(kept.begin(), kept.end(),
                                   [&](const Written& other) { return other.knobs == one.knobs; });
    if (one.fits && !known) kept.push_back(one);
  }
  return kept;
}

// Sketches rank what they cannot tell apart in any order.
void check_as_good(const WaysToFit& found, const std::vector<Written>& expected) {
  REQUIRE(found.ways.size() >= std::min<std::size_t>(3, expected.size()));
  for (std::size_t i = 0; i < std::min(found.ways.size(), expected.size()); ++i) {
    CAPTURE(i);
    CAPTURE(fmt::format("{}", fmt::join(found.ways[i].sets, " ")));
    CAPTURE(fmt::format("{}", fmt::join(with({}, expected[i].edits), " ")));
    CHECK(Seconds(found.ways[i].step_time) <= 1.01 * Seconds(expected[i].time));
  }
}

std::string gib(int hundredths) {
  return fmt::format("cluster.node.gpu.memory={}MiB", hundredths * 1024 / 100);
}

}  // namespace

TEST_CASE("the ways to fit are as fast as the best of all changes of one knob and of two") {
  const test::Folder folder("ways");
  const std::string path = folder.write("tight.json", kJob);
  // What a step takes does not depend on the memory that there is: all of them are run once.
  const std::vector<Written> singles = one_more(path, {}, {});
  std::vector<std::vector<Written>> pairs;  // by single
  for (const Written& single : singles)
    pairs.push_back(one_more(path, {}, single));
  for (const int memory : {1000, 700, 350}) {
    CAPTURE(memory);
    const Bytes capacity(std::int64_t{memory} * 1024 / 100 * (1 << 20));
    const auto fits_alone = [&](const Written& pair, std::size_t edits_before) {
      return std::any_of(singles.begin(), singles.end(), [&](const Written& single) {
        return single.peak <= capacity && single.knobs.contains(*pair.knobs.rbegin()) &&
               json::same(single.edits.front().value, pair.edits[edits_before].value);
      });
    };
    std::vector<Written> all = singles;
    for (std::size_t i = 0; i < singles.size(); ++i) {
      if (singles[i].peak <= capacity) continue;
      for (const Written& pair : pairs[i])
        if (!fits_alone(pair, singles[i].edits.size())) all.push_back(pair);
    }
    for (Written& one : all)
      one.fits = one.peak <= capacity;
    const WaysToFit found = ways_of(path, {gib(memory)});
    CHECK_FALSE(found.cut_short);
    CHECK(found.simulated <= 10);
    check_as_good(found, fastest(all));
  }
}

TEST_CASE("each way to fit is what --set does: it fits, in that memory and that time") {
  const test::Folder folder("ways");
  const std::string path = folder.write("tight.json", kJob);
  for (const int memory : {1000, 700, 350}) {
    const std::vector<std::string> sets = {gib(memory)};
    const WaysToFit found = ways_of(path, sets);
    CAPTURE(memory);
    CHECK(!found.ways.empty());
    for (const WayToFit& way : found.ways) {
      std::vector<std::string> all = sets;
      all.insert(all.end(), way.sets.begin(), way.sets.end());
      const StepReport report = report_of(path, all);
      CHECK(report.fits);
      CHECK(report.memory.peak == way.peak);
      CHECK(report.step_time == way.step_time);
      CHECK(report.global_batch == 64);
      CHECK(report.world_size == 8);
    }
  }
}

TEST_CASE("no way to fit is listed twice, though several changes lead to it") {
  const test::Folder folder("ways");
  const std::string path = folder.write("tight.json", kJob);
  const std::vector<std::string> job = {"parallelism={}",
                                        "parallelism.data_parallel.kind=zero3",
                                        "cluster.nodes=1",
                                        "cluster.node.gpus=2",
                                        "model.layers=2",
                                        "training.micro_batch=1",
                                        "training.sequence_length=4096",
                                        "training.precision.gradients=bf16",
                                        "training.fused_attention=true"};
  const auto with = [&](std::vector<std::string> sets) {
    sets.insert(sets.begin(), job.begin(), job.end());
    return sets;
  };
  // Tensor parallelism alone just does not fit; sequence parallelism comes with it, or after it.
  const Bytes alone = report_of(path, with({"parallelism.tp=2"})).memory.peak;
  const Bytes both =
      report_of(path, with({"parallelism.tp=2", "parallelism.sequence_parallel=true"})).memory.peak;
  REQUIRE(both < alone);
  const std::int64_t between = both.count() + (alone.count() - both.count()) / 3;
  const WaysToFit found =
      ways_of(path, with({fmt::format("cluster.node.gpu.memory={}B", between)}));
  REQUIRE(found.ways.size() > 1);
  std::set<std::set<std::string>> ways;
  for (const WayToFit& way : found.ways)
    ways.insert({way.sets.begin(), way.sets.end()});
  CHECK(ways.size() == found.ways.size());
}

TEST_CASE("the ways to fit differ in their knobs and say what they change") {
  const test::Folder folder("ways");
  const std::string path = folder.write("tight.json", kJob);
  const WaysToFit found = ways_of(path, {gib(1000)});
  REQUIRE(found.ways.size() == 3);
  std::set<std::string> kinds;
  for (const WayToFit& way : found.ways) {
    std::string kind;
    for (const ChangedValue& change : way.changes) {
      kind += change.what + ";";
      CHECK(change.from != change.to);
    }
    kinds.insert(kind);
  }
  CHECK(kinds.size() == 3);
  CHECK(found.ways[0].step_time <= found.ways[1].step_time);
  CHECK(found.ways[1].step_time <= found.ways[2].step_time);
}

TEST_CASE("ways to fit are the same each time") {
  const test::Folder folder("ways");
  const std::string path = folder.write("tight.json", kJob);
  const WaysToFit one = ways_of(path, {gib(350)}), two = ways_of(path, {gib(350)});
  CHECK(one.simulated == two.simulated);
  REQUIRE(one.ways.size() == two.ways.size());
  for (std::size_t i = 0; i < one.ways.size(); ++i)
    CHECK(one.ways[i].sets == two.ways[i].sets);
}

TEST_CASE("what an allocator gives back is no way to fit, and hides none") {
  test::Folder folder("ways-tight");
  const std::string path = folder.write("s.json", kJob);
  const auto found = [&](const std::string& memory, const std::string& least) {
    const Scenario scenario =
        load_scenario(path, {"cluster.node.gpu.memory=" + memory,
                             "training.memory.fragmentation=0.6",
                             "training.memory.least_fragmentation=" + least})
            .base;
    const StepReport report = simulate::simulate(scenario, {.timeline = false}).report;
    CHECK_FALSE(report.has_room());
    return std::pair(report, ways_to_fit(scenario, report, {}));
  };
  // Tight, and too large for the same wanted sum: the same ways, that save as much.
  const auto [tight, ways] = found("20GiB", "0.02");
  const auto [full, others] = found("20GiB", "0.6");
  CHECK(tight.memory.is_tight);
  CHECK_FALSE(full.fits);
  CHECK(tight.memory.wanted == full.memory.wanted);
  REQUIRE(!ways.ways.empty());
  REQUIRE(ways.ways.size() == others.ways.size());
  for (std::size_t i = 0; i < ways.ways.size(); ++i) {
    CHECK(ways.ways[i].sets == others.ways[i].sets);
    CHECK(ways.ways[i].peak == others.ways[i].peak);
    CHECK(ways.ways[i].peak <= tight.memory.capacity);
  }
  // Where none has room, that which wants least is closest, and how much it lacks is said.
  const auto [little, none] = found("64MiB", "0");
  REQUIRE(none.ways.empty());
  CHECK(none.closest.front().peak > little.memory.capacity);
}

TEST_CASE("where nothing fits, what comes closest is said") {
  const test::Folder folder("ways");
  const std::string path = folder.write("tight.json", kJob);
  const std::vector<std::string> sets = {"cluster.node.gpu.memory=64MiB"};
  const WaysToFit found = ways_of(path, sets);
  CHECK(found.ways.empty());
  REQUIRE(found.closest.size() == 1);
  std::vector<std::string> all = sets;
  all.insert(all.end(), found.closest[0].sets.begin(), found.closest[0].sets.end());
  CHECK(report_of(path, all).memory.peak == found.closest[0].peak);
  for (const Written& single : one_more(path, sets, {}))
    CHECK(found.closest[0].peak <= single.peak);
}

TEST_CASE("a change that the scenario cannot take is no way to fit") {
  const test::Folder folder("ways");
  const std::string path = folder.write("tight.json", kJob);
  // Twice the ranks of tensor parallelism would fit, were the heads divisible.
  const std::vector<std::string> odd = {gib(700), "model.heads=17", "model.head_dim=64"};
  const Scenario scenario = load_scenario(path, odd).base;
  json::Value patch = json::Value::object();
  json::set(patch, "/parallelism/tp", json::Value::of(2));
  json::set(patch, "/parallelism/dp", json::Value::of(2));
  CHECK_FALSE(with_patch(scenario, patch).has_value());
  CHECK(with_patch(load_scenario(path, {gib(700)}).base, patch).has_value());
  const WaysToFit found = ways_of(path, odd);
  CHECK(!found.ways.empty());
  for (const WayToFit& way : found.ways)
    for (const ChangedValue& change : way.changes)
      CHECK(change.pointer != "/parallelism/tp");
}

// FlashAttention-2's README: Ampere, Ada and Hopper.
TEST_CASE("fused attention is no way to fit below compute capability 8.0") {
  const test::Folder folder("ways");
  const std::string path = folder.write("tight.json", kJob);
  const auto fused = std::find_if(fit_knobs().begin(), fit_knobs().end(), [](const FitKnob& knob) {
    return knob.name == "fused attention";
  });
  REQUIRE(fused != fit_knobs().end());
  const auto changes = [&](const std::string& capability) {
    const std::string set = "cluster.node.gpu.compute_capability=" + capability;
    return fused->changes(load_scenario(path, {set}).base).size();
  };
  for (const char* old : {"\"7.0\"", "\"7.5\""})
    CHECK(changes(old) == 0);
  for (const char* able : {"\"8.0\"", "\"8.9\"", "\"10.0\"", "null"})
    CHECK(changes(able) == 1);
}

TEST_CASE("a patched scenario is the one that --set makes") {
  const test::Folder folder("ways");
  const std::string path = folder.write("tight.json", kJob);
  json::Value patch = json::Value::object();
  json::set(patch, "/training/recompute", json::Value::of("full"));
  json::set(patch, "/parallelism/dp", json::Value::null());
  const std::optional<Scenario> patched = with_patch(load_scenario(path).base, patch);
  REQUIRE(patched.has_value());
  const Scenario set = load_scenario(path, {"training.recompute=full", "parallelism.dp=null"}).base;
  CHECK(json::same(patched->document, set.document));
  CHECK(patched->recipe.recompute.form == Recompute::full);
  CHECK(patched->plan.degrees.data == 4);
  CHECK(patched->file == set.file);
}

TEST_CASE("a step that is too large is not simulated again, and the ways say so") {
  const test::Folder folder("ways");
  const std::string path = folder.write("tight.json", kJob);
  WaysToFitOptions options;
  options.most_events = 1;
  const WaysToFit none = ways_of(path, {gib(700)}, options);
  CHECK(none.simulated == 0);
  CHECK(none.cut_short);
  CHECK(none.ways.empty());
  CHECK(none.closest.empty());
}

// Five hundred layers of one operation are few events; to read and to plan them is more.
TEST_CASE("what is read and planned again for each change is bounded, too") {
  const test::Folder folder("ways");
  std::string layers;
  for (int i = 0; i < 500; ++i)
    layers +=
        fmt::format(R"({}{{"name": "l{}", "ops": [{{"op": "linear", "in": 64, "out": 64}}]}})",
                    i == 0 ? "" : ", ", i);
  const std::string path = folder.write("deep.json", fmt::format(R"({{
  "version": 1,
  "name": "deep",
  "model": {{ "kind": "layers", "input": {{ "shape": [64] }}, "layers": [{}] }},
  "cluster": {{ "nodes": 1, "node": {{ "preset": "dgx-a100-80gb" }} }},
  "training": {{ "global_batch": 16, "optimizer": {{ "type": "adam" }} }}
}})",
                                                                 layers));
  const std::vector<std::string> small = {"cluster.node.gpu.memory=\"1MiB\""};
  WaysToFitOptions options;
  options.most_events = 2'000'000;
  const WaysToFit few = ways_of(path, small, options);
  CHECK(few.cut_short);
  options.most_events = 64'000'000;
  const WaysToFit all = ways_of(path, small, options);
  CHECK_FALSE(all.cut_short);
  CHECK(all.simulated > few.simulated);
}

// Every row of the table where it applies: it changes the job, and no change does nothing.
TEST_CASE("every knob saves memory somewhere") {
  const test::Folder folder("ways");
  const std::string path = folder.write("tight.json", kJob);
  const std::string plain = "parallelism.pipeline.schedule=1f1b";
  const std::string host =
      "cluster.node.host={\"pcie_bandwidth\": \"20GB/s\", \"memory_bandwidth\": \"100GB/s\"}";
  const std::map<std::string, std::vector<std::string>> jobs = {
      {"schedule", {}},
      {"optimizer offload", {plain, host}},
      {"activation offload", {plain, host}},
      {"context parallelism", {plain, "training.fused_attention=true"}},
      {"expert parallelism",
       {"model.moe={\"experts\": 8, \"top_k\": 2}", "model.biases=false", "parallelism.pp=1",
        "parallelism.dp=8"}},
      {"chunks",
       {"parallelism.pipeline.schedule=interleaved_1f1b",
        "parallelism.pipeline.chunks_per_stage=2"}},
      {"sequence parallelism", {"parallelism.tp=2", "parallelism.dp=2"}},
      {"reshard after forward",
       {"parallelism.data_parallel={\"kind\": \"fsdp\", \"reshard_after_forward\": false}"}},
      {"limited gathers",
       {"parallelism.pp=1", "parallelism.dp=8",
        "parallelism.data_parallel={\"kind\": \"fsdp\", \"limit_all_gathers\": false}"}},
      {"prefetching",
       {"parallelism.pp=1", "parallelism.dp=8", "training.micro_batch=1", "model.vocab=64",
        "training.sequence_length=16", "parallelism.data_parallel={\"kind\": \"fsdp\"}"}}};
  for (std::size_t knob = 0; knob < fit_knobs().size(); ++knob) {
    const std::string name(fit_knobs()[knob].name);
    CAPTURE(name);
    const auto job = jobs.find(name);
    const std::vector<std::string> sets =
        job == jobs.end() ? std::vector<std::string>{plain} : job->second;
    const StepReport before = report_of(path, sets);
    Bytes least = before.memory.peak;
    for (const Written& one : one_more(path, sets, {}))
      if (one.knobs == std::set{knob}) least = std::min(least, one.peak);
    CHECK(least < before.memory.peak);
  }
}

TEST_CASE("what does not go with passes that overlap takes the overlap away") {
  test::Folder folder("ways");
  const std::string path = folder.write("job.json", kJob);
  const std::vector<std::string> stages = {
      "parallelism.pipeline={\"schedule\": \"interleaved_1f1b\", \"chunks_per_stage\": 2, "
      "\"overlap_passes\": true}"};
  const std::vector<std::string> alone = {"parallelism.pp=1", "parallelism.dp=8",
                                          "parallelism.pipeline={\"overlap_passes\": true}"};
  const std::map<std::string_view, std::vector<std::string>> jobs = {
      {"schedule", stages}, {"data parallelism", stages}, {"pipeline parallelism", alone}};
  for (const FitKnob& knob : fit_knobs()) {
    if (jobs.count(knob.name) == 0) continue;
    const std::vector<std::string>& sets = jobs.at(knob.name);
    const Scenario before = load_scenario(path, sets).base;
    std::size_t loaded = 0;
    for (const Edits& edits : knob.changes(before)) {
      try {
        loaded += load_scenario(path, with(sets, edits)).base.plan.pipeline.overlap_passes ? 0 : 1;
      } catch (const ScenarioError&) {
      }
    }
    CAPTURE(knob.name);
    CHECK(loaded > 0);
  }
}
