// Where layers with branches are placed, against all ways to place them; given placements; what a
// placed network holds and sends.
#include "sim/plan/branches/branch_placement.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <map>

#include "sim/base/random.h"
#include "sim/plan/branches/placed_network.h"
#include "sim/plan/step_plan.h"
#include "tests/support/rooms.h"

using namespace trainyard;

namespace {

using Stages = std::vector<int>;

LayerWork layer_of(std::string name, std::int64_t kept) {
  LayerWork work;
  work.name = std::move(name);
  work.kept.add(Module::features, Bytes(kept));
  return work;
}

void add(NetworkWork& work, std::string name, std::int64_t kept = 1) {
  work.chain.push_back(static_cast<int>(work.kinds.size()));
  work.kinds.push_back(layer_of(std::move(name), kept));
  work.divisible.push_back(true);
}

SharedTensor tensor(int maker, Stages readers, std::int64_t bytes, Stages keepers = {}) {
  return {.maker = maker,
          .readers = std::move(readers),
          .keepers = std::move(keepers),
          .bytes = Bytes(bytes),
          .gradient = true};
}

// a1 a2 b1 b2 head; both towers read the input.
NetworkWork two_towers(std::int64_t bytes) {
  NetworkWork work;
  for (const char* name : {"a1", "a2", "b1", "b2", "head"})
    add(work, name);
  work.tensors = {tensor(-1, {0, 2}, 7, {0, 2}), tensor(0, {1}, bytes), tensor(1, {4}, bytes, {4}),
                  tensor(2, {3}, bytes), tensor(3, {4}, bytes, {3, 4})};
  return work;
}

// Every layer reads one or two before it.
NetworkWork random_network(SplitMix64& random, int layers) {
  NetworkWork work;
  std::map<int, Stages> readers;
  for (int place = 0; place < layers; ++place) {
    add(work, "layer", 1 + static_cast<std::int64_t>(random.below(9)));
    for (std::uint64_t reads = place > 0 ? 1 + random.below(2) : 0; reads > 0; --reads) {
      Stages& own = readers[static_cast<int>(random.below(static_cast<std::uint64_t>(place)))];
      if (own.empty() || own.back() != place) own.push_back(place);
    }
  }
  for (const auto& [maker, own] : readers)
    work.tensors.push_back(tensor(maker, own, 1 + static_cast<std::int64_t>(random.below(4))));
  return work;
}

ParallelPlan placed(int stages, BranchPlacement how) {
  ParallelPlan plan;
  plan.degrees.pipeline = stages;
  plan.pipeline.schedule = "gpipe";
  plan.pipeline.branches = Branches{.placed = how};
  return plan;
}

constexpr double kLatency = 0.5, kByte = 0.25;

std::vector<StageGpus> gpus(const NetworkWork& work, SplitMix64& random) {
  StageGpus own{
      .times = {}, .memory = Bytes(1000), .message_latency = kLatency, .message_byte = kByte};
  for (std::size_t kind = 0; kind < work.kinds.size(); ++kind)
    own.times.push_back(static_cast<double>(1 + random.below(8)));
  return {own};
}

Stages place(const NetworkWork& work, const ParallelPlan& plan, const std::vector<StageGpus>& own,
             int microbatches) {
  TrainingRecipe recipe;
  recipe.global_batch = microbatches;
  return place_branches(work, pipeline_shape(recipe, plan), recipe, plan, own);
}

// The estimate that the header describes, for one micro-batch; told apart from the search's own.
double time_of(const NetworkWork& work, const StageGpus& own, const Stages& stages) {
  std::map<int, double> free;
  std::map<std::pair<int, bool>, double> sent;
  std::map<std::pair<std::size_t, int>, double> there;
  for (int place = 0; place < static_cast<int>(work.chain.size()); ++place) {
    const int stage = stages[static_cast<std::size_t>(place)];
    double begin = free[stage];
    for (std::size_t t = 0; t < work.tensors.size(); ++t) {
      const SharedTensor& read = work.tensors[t];
      if (std::count(read.readers.begin(), read.readers.end(), place) > 0)
        begin = std::max(begin, there[{t, stage}]);
    }
    free[stage] = begin + own.times[static_cast<std::size_t>(place)];
    for (std::size_t t = 0; t < work.tensors.size(); ++t) {
      const SharedTensor& made = work.tensors[t];
      if (made.maker != place) continue;
      std::vector<int> to;
      for (const int reader : made.readers)
        to.push_back(stages[static_cast<std::size_t>(reader)]);
      std::sort(to.begin(), to.end());
      to.erase(std::unique(to.begin(), to.end()), to.end());
      for (const int other : to) {
        if (other == stage) continue;
        double& channel = sent[{stage, other > stage}];
        channel = std::max(channel, free[stage]) +
                  2 * (kLatency + static_cast<double>(made.bytes.count()) * kByte);
        there[{t, other}] = channel;
      }
    }
  }
  double end = 0;
  for (const auto& [stage, at] : free)
    end = std::max(end, at);
  return end;
}

double least_of_all(const NetworkWork& work, const StageGpus& own, int stages) {
  double least = 1e9;
  Stages all(work.chain.size(), 0);
  while (true) {
    bool uses_all = true;
    for (int stage = 0; stage < stages; ++stage)
      uses_all = uses_all && std::count(all.begin(), all.end(), stage) > 0;
    if (uses_all) least = std::min(least, time_of(work, own, all));
    std::size_t at = 0;
    while (at < all.size() && ++all[at] == stages)
      all[at++] = 0;
    if (at == all.size()) return least;
  }
}

}  // namespace

TEST_CASE("two towers go to a stage each where messages are cheap, and stay where they are dear") {
  SplitMix64 random(1);
  const ParallelPlan plan = placed(2, BranchPlacement::by_time);
  NetworkWork work = two_towers(1);
  std::vector<StageGpus> own = gpus(work, random);
  own[0].times = {4, 4, 4, 4, 1};
  const Stages cheap = place(work, plan, own, 1);
  CHECK(cheap[0] == cheap[1]);
  CHECK(cheap[2] == cheap[3]);
  CHECK(cheap[0] != cheap[2]);
  work = two_towers(1000);
  const Stages dear = place(work, plan, own, 1);
  // What each stage must have at least is a layer that no message waits for.
  CHECK(time_of(work, own[0], dear) == least_of_all(work, own[0], 2));
}

TEST_CASE("placements by time are within an eighth of the best of all, and mostly the best") {
  SplitMix64 random(20);
  int best = 0;
  double worst = 1;
  constexpr int kNetworks = 60;
  for (int trial = 0; trial < kNetworks; ++trial) {
    const int stages = 2 + static_cast<int>(random.below(2));
    const NetworkWork work =
        random_network(random, stages + 3 + static_cast<int>(random.below(stages == 2 ? 6 : 3)));
    const std::vector<StageGpus> own = gpus(work, random);
    const Stages found = place(work, placed(stages, BranchPlacement::by_time), own, 1);
    const double time = time_of(work, own[0], found), least = least_of_all(work, own[0], stages);
    CHECK(time >= least);
    worst = std::max(worst, time / least);
    best += time == least ? 1 : 0;
  }
  CHECK(worst <= 1.125);
  CHECK(best >= kNetworks * 9 / 10);
}

TEST_CASE("by memory the fullest stage holds as little as any placement's") {
  SplitMix64 random(3);
  for (int trial = 0; trial < 40; ++trial) {
    const NetworkWork work = random_network(random, 8);
    const std::vector<StageGpus> own = gpus(work, random);
    const Stages found = place(work, placed(2, BranchPlacement::by_memory), own, 1);
    std::int64_t all = 0, first = 0;
    for (std::size_t p = 0; p < found.size(); ++p) {
      const std::int64_t kept = work.kinds[p].activations().count();
      all += kept;
      first += found[p] == 0 ? kept : 0;
    }
    std::int64_t least = all;
    for (int set = 1; set < 255; ++set) {
      std::int64_t own_part = 0;
      for (std::size_t p = 0; p < 8; ++p)
        own_part += (set >> p & 1) != 0 ? work.kinds[p].activations().count() : 0;
      least = std::min(least, std::max(own_part, all - own_part));
    }
    CHECK(std::max(first, all - first) <= least + 1);
  }
}

TEST_CASE("a faster stage is given more") {
  SplitMix64 random(4);
  NetworkWork work;
  for (int i = 0; i < 12; ++i)
    add(work, "layer");  // none reads another
  std::vector<StageGpus> own = gpus(work, random);
  own.push_back(own[0]);
  own[0].times.assign(12, 1);
  own[1].times.assign(12, 2);
  const Stages found = place(work, placed(2, BranchPlacement::by_time), own, 1);
  CHECK(std::count(found.begin(), found.end(), 0) == 8);
}

TEST_CASE("names of a given placement, with stars") {
  const std::vector<std::string> layers = {"stem", "left 1", "left 2", "right 1", "right 2", "end"};
  const auto given = [&](std::vector<std::vector<std::string>> stages) {
    Branches branches{.placed = BranchPlacement::given};
    for (std::vector<std::string>& names : stages)
      branches.stages.push_back({std::move(names)});
    std::vector<PlacementProblem> problems;
    const Stages result = given_stages(layers, branches, problems);
    return std::pair(result, problems);
  };
  CHECK(given({{"stem", "left*", "end"}, {"right ?", "r*t *"}}).second.size() == 1);
  const auto [stages, none] = given({{"stem", "left*", "end"}, {"*ight *"}});
  CHECK(none.empty());
  CHECK(stages == Stages{0, 0, 0, 1, 1, 0});
  const auto problem = [&](std::vector<std::vector<std::string>> lists) {
    const std::vector<PlacementProblem> found = given(std::move(lists)).second;
    REQUIRE(found.size() == 1);
    return fmt::format("{} {} {}", found[0].stage, found[0].entry, found[0].message);
  };
  CHECK(problem({{"stem", "left*", "end"}, {"wrong"}}) == "1 0 no layer is called \"wrong\"");
  CHECK(problem({{"*"}, {"right*"}}) == "1 0 layer \"right 1\" is listed before");
  CHECK(problem({{"stem", "l*"}, {"right*"}}) == "-1 -1 no stage has the layer \"end\"");
  CHECK(problem({{"*"}, {}}) == "1 -1 a stage has at least one layer");
}

TEST_CASE(
    "a placed network: stage by stage, a message for each reader's stage, copies where kept") {
  const NetworkWork work = two_towers(64);
  const PlacedNetwork own = place_network(work, Stages{0, 0, 1, 1, 0}, 2);
  CHECK(own.work.chain == Stages{0, 1, 4, 2, 3});
  CHECK(own.layers == std::vector<ChainRange>{{0, 3}, {3, 5}});
  REQUIRE(own.crossings.size() == 1);
  CHECK(own.crossings[0].from == 1);
  CHECK(own.crossings[0].to == 0);
  CHECK(own.crossings[0].maker == 4);
  CHECK(own.crossings[0].reader == 2);
  CHECK(own.crossings[0].bytes == Bytes(64));
  const auto kept = [&](const Stages& stage_of, int stages, int kind) {
    const PlacedNetwork network = place_network(work, stage_of, stages);
    RecomputePlaces placed = place_recompute(network.work, network.layers, {});
    hold_shared(placed, work, stage_of, network.place_of);
    return placed.work.kinds[static_cast<std::size_t>(kind)].activations().count();
  };
  const Stages towers = {0, 0, 1, 1, 0};
  CHECK(kept(towers, 2, 2) == 1 + 7);   // the input once more
  CHECK(kept(towers, 2, 3) == 1 + 64);  // b2's own output, which the head counts
  CHECK(kept(towers, 2, 4) == 1);
  // On one stage nothing is sent and nothing held twice.
  const Stages one = {0, 0, 0, 0, 0};
  CHECK(place_network(work, one, 1).crossings.empty());
  std::int64_t all = 0;
  for (int kind = 0; kind < 5; ++kind)
    all += kept(one, 1, kind);
  CHECK(all == 5);
}
