// How layers are dealt to stages, against all ways to deal them.
#include "sim/plan/split/stage_split.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <functional>

#include "sim/base/random.h"
#include "sim/plan/step_plan.h"
#include "tests/support/rooms.h"

using namespace trainyard;

namespace {

LayerWork layer(std::int64_t flops, std::int64_t kept) {
  LayerWork work;
  work.forward_model_flops = Flops(static_cast<double>(flops));
  work.kept.add(Module::features, Bytes(kept));
  return work;
}

// An embedding, layers of random work and memory, logits.
NetworkWork random_network(SplitMix64& random, int layers) {
  NetworkWork work;
  const auto add = [&](LayerWork added, bool divisible) {
    work.chain.push_back(static_cast<int>(work.kinds.size()));
    work.kinds.push_back(std::move(added));
    work.divisible.push_back(divisible);
  };
  const auto below = [&](std::uint64_t n) { return static_cast<std::int64_t>(random.below(n)); };
  add(layer(0, below(4)), false);
  for (int i = 0; i < layers; ++i)
    add(layer(1 + below(3), 1 + below(3)), true);
  add(layer(below(8), below(8)), false);
  return work;
}

ParallelPlan in_stages(int stages) {
  ParallelPlan plan;
  plan.degrees.pipeline = stages;
  plan.pipeline.layer_split = LayerSplit::balanced;
  return plan;
}

constexpr int kMicrobatches = 16;

std::vector<ChainRange> split(const NetworkWork& work, const ParallelPlan& plan) {
  TrainingRecipe recipe;
  recipe.global_batch = kMicrobatches;
  return split_layers(work, pipeline_shape(recipe, plan), recipe, plan);
}

// The longest stage and the fullest of 1F1B, where stage s holds p - s micro-batches.
std::pair<double, std::int64_t> worst(const NetworkWork& work,
                                      const std::vector<ChainRange>& ranges) {
  double longest = 0;
  std::int64_t fullest = 0;
  for (std::size_t s = 0; s < ranges.size(); ++s) {
    double flops = 0;
    std::int64_t kept = 0;
    for (int place = ranges[s].first; place < ranges[s].last; ++place) {
      const LayerWork& own = work.kinds[static_cast<std::size_t>(place)];
      flops += own.forward_model_flops.count();
      kept += own.activations().count();
    }
    const auto held =
        std::min<std::int64_t>(kMicrobatches, static_cast<std::int64_t>(ranges.size() - s));
    longest = std::max(longest, flops);
    fullest = std::max(fullest, held * kept);
  }
  return {longest, fullest};
}

// All ways to give each stage a layer or more.
void each_way(int layers, int stages, std::vector<int>& counts,
              const std::function<void(const std::vector<int>&)>& take) {
  if (stages == 1) {
    counts.push_back(layers);
    take(counts);
    counts.pop_back();
    return;
  }
  for (int own = 1; own <= layers - stages + 1; ++own) {
    counts.push_back(own);
    each_way(layers - own, stages - 1, counts, take);
    counts.pop_back();
  }
}

int layers_of(const NetworkWork& work, const ChainRange& range) {
  return static_cast<int>(
      std::count(work.divisible.begin() + range.first, work.divisible.begin() + range.last, true));
}

std::vector<int> counts_of(const NetworkWork& work, const std::vector<ChainRange>& ranges) {
  std::vector<int> counts;
  for (const ChainRange& range : ranges)
    counts.push_back(layers_of(work, range));
  return counts;
}

}  // namespace

TEST_CASE("a balanced split has the shortest longest stage, and of those the least peak") {
  SplitMix64 random(7);
  for (int i = 0; i < 150; ++i) {
    const int stages = 2 + static_cast<int>(random.below(4));
    const int layers = stages + static_cast<int>(random.below(7));
    const NetworkWork work = random_network(random, layers);
    ParallelPlan plan = in_stages(stages);
    const std::vector<ChainRange> balanced = split(work, plan);
    plan.pipeline.layer_split = LayerSplit::list;
    std::pair<double, std::int64_t> best{1e300, 0};
    std::vector<int> counts;
    each_way(layers, stages, counts, [&](const std::vector<int>& way) {
      plan.pipeline.layers_per_chunk = way;
      best = std::min(best, worst(work, split(work, plan)));
    });
    CAPTURE(i);
    CHECK(worst(work, balanced) == best);
  }
}

// The first of two stages holds two micro-batches of 1 a layer, the last one of them beside what
// the loss needs while it runs: 2 a = b + room of 12 layers.
TEST_CASE("a split by memory leaves room for what a forward pass needs at its end") {
  NetworkWork work;
  for (int place = 0; place < 14; ++place) {
    const bool is_end = place == 0 || place == 13;
    work.chain.push_back(place);
    work.kinds.push_back(layer(is_end ? 0 : 1, is_end ? 0 : 1));
    work.divisible.push_back(!is_end);
  }
  ParallelPlan plan = in_stages(2);
  plan.pipeline.layer_split = LayerSplit::by_memory;
  CHECK(counts_of(work, split(work, plan)) == std::vector{4, 8});
  work.kinds.back().transient = Bytes(6);
  CHECK(counts_of(work, split(work, plan)) == std::vector{6, 6});
  std::swap(work.kinds.back().transient, work.kinds.back().forward_transient);
  CHECK(counts_of(work, split(work, plan)) == std::vector{6, 6});
}

TEST_CASE(
    "a split by time or by memory is the best of all ways, first by the one, then by the other") {
  SplitMix64 random(8);
  int unlike = 0;
  for (int i = 0; i < 150; ++i) {
    CAPTURE(i);
    const int stages = 2 + static_cast<int>(random.below(4));
    const int layers = stages + static_cast<int>(random.below(7));
    const NetworkWork work = random_network(random, layers);
    std::vector<double> times;
    NetworkWork timed = work;  // whose FLOPs are the times
    for (LayerWork& kind : timed.kinds) {
      times.push_back(static_cast<double>(1 + random.below(9)));
      kind.forward_model_flops = Flops(times.back());
    }
    ParallelPlan plan = in_stages(stages);
    plan.pipeline.layer_split = LayerSplit::by_time;
    TrainingRecipe recipe;
    recipe.global_batch = kMicrobatches;
    const StageGpus gpus{times, {}};
    const auto by_time = split_layers(work, pipeline_shape(recipe, plan), recipe, plan, {&gpus, 1});
    plan.pipeline.layer_split = LayerSplit::by_memory;
    const auto by_memory = split(work, plan);
    plan.pipeline.layer_split = LayerSplit::list;
    std::pair<double, std::int64_t> fastest{1e300, 0};
    std::pair<std::int64_t, double> leanest{std::int64_t{1} << 60, 0};
    const auto turned = [](const auto& pair) { return std::pair(pair.second, pair.first); };
    std::vector<int> counts;
    each_way(layers, stages, counts, [&](const std::vector<int>& way) {
      plan.pipeline.layers_per_chunk = way;
      const std::vector<ChainRange> ranges = split(work, plan);
      fastest = std::min(fastest, worst(timed, ranges));
      leanest = std::min(leanest, turned(worst(work, ranges)));
    });
    CHECK(worst(timed, by_time) == fastest);
    CHECK(turned(worst(work, by_memory)) == leanest);
    unlike += by_time != by_memory;
  }
  CHECK(unlike > 50);
}

TEST_CASE("however heavy the logits, a balanced split leaves no stage without layers") {
  for (int stages = 2; stages <= 8; ++stages) {
    NetworkWork work;
    work.kinds = {layer(0, 0), layer(10, 1), layer(1000, 1)};
    work.chain = {0};
    work.chain.insert(work.chain.end(), 32, 1);
    work.chain.push_back(2);
    work.divisible.assign(work.chain.size(), true);
    work.divisible.front() = work.divisible.back() = false;
    const std::vector<int> counts = counts_of(work, split(work, in_stages(stages)));
    CHECK(*std::min_element(counts.begin(), counts.end()) >= 1);
    CHECK(counts.back() == 1);
  }
}

TEST_CASE("stages of a list may have no layers, and there may be more stages than layers") {
  NetworkWork work;
  work.kinds = {layer(0, 0), layer(10, 1), layer(20, 1)};
  work.chain = {0, 1, 1, 2};
  work.divisible = {false, true, true, false};
  ParallelPlan plan = in_stages(5);
  plan.pipeline.layer_split = LayerSplit::list;
  plan.pipeline.layers_per_chunk = {0, 1, 0, 1, 0};
  const std::vector<ChainRange> expected = {{0, 1}, {1, 2}, {2, 2}, {2, 3}, {3, 4}};
  CHECK(split(work, plan) == expected);
}
