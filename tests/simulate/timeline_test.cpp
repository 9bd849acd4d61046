// What slices of a timeline are: told by what the plan says of an op, never by its label.
#include <doctest/doctest.h>

#include <algorithm>
#include <map>
#include <tuple>
#include <vector>

#include "models/layers/layer_table.h"
#include "sim/schedule/chunk_placement.h"
#include "sim/simulate/report/actor_spans.h"
#include "sim/simulate/report/summarize.h"
#include "tests/simulate/toy.h"
#include "tests/support/networks.h"
#include "tests/support/rooms.h"

using namespace trainyard;

namespace {

constexpr Duration kForward = std::chrono::microseconds(100);
constexpr Duration kBackward = std::chrono::microseconds(200);
constexpr int kLayers = 6;

// Names that would mislead whoever read them.
LayerNetwork misnamed_layers() {
  LayerTable table{{10}, {}, {}};
  for (const char* name : {"recompute", "my forward", "send activations", "receive activations",
                           "a forward recompute", "backward"}) {
    TableRow row;
    row.op = TableOp::time;
    row.name = "time";
    row.forward_time = kForward;
    row.backward_time = kBackward;
    row.micro_batch = 1;
    row.parameters = 1000;
    row.keeps = 1000;
    table.layers.push_back({name, std::nullopt, {row}, std::nullopt});
  }
  std::vector<TableProblem> problems;
  LayerNetwork network = resolve(table, problems);
  REQUIRE(problems.empty());
  return network;
}

Job job(const Network& network, const ParallelDegrees& degrees, int microbatches) {
  Job result;
  result.network = network;
  result.cluster = toy::cluster(degrees.tensor * degrees.data * degrees.pipeline, 1);
  result.recipe.global_batch = std::int64_t{microbatches} * degrees.data;
  result.recipe.launch_time = Duration(0);
  result.plan.degrees = degrees;
  return result;
}

Job paired(const char* schedule, int chunks, int microbatches) {
  Job result = job(misnamed_layers(), {.pipeline = 2}, microbatches);
  result.plan.pipeline.schedule = schedule;
  result.plan.pipeline.chunks = chunks;
  return result;
}

// The perceptrons of a transformer run again; their collectives stand around them.
Job partly_again(int microbatches) {
  Job result = job(gpt(kLayers, 512, 8, 8192), {.tensor = 2}, microbatches);
  result.recipe.micro_batch.sequence_length = 256;
  result.plan.tensor_parallel.sequence = true;
  result.recipe.recompute.form = Recompute::modules;
  result.recipe.recompute.modules.add(RecomputeModule::mlp);
  return result;
}

std::vector<Slice> slices(const Timeline& timeline) {
  std::vector<Slice> all;
  for (const Lane& lane : timeline.lanes)
    all.insert(all.end(), lane.slices.begin(), lane.slices.end());
  return all;
}

std::vector<Slice> of_kind(SliceKind kind, const Timeline& timeline) {
  std::vector<Slice> found;
  for (const Slice& slice : slices(timeline))
    if (slice.kind == kind) found.push_back(slice);
  return found;
}

Duration total(const std::vector<Slice>& slices) {
  Duration sum{};
  for (const Slice& slice : slices)
    sum += slice.end - slice.begin;
  return sum;
}

}  // namespace

TEST_CASE("only what runs again is shown as recomputation, whatever layers are called") {
  Job each = job(misnamed_layers(), {}, 3);
  const Timeline plain = timeline(*simulate_step(each), {.ranks = 1});
  CHECK(of_kind(SliceKind::recompute, plain).empty());
  CHECK(total(of_kind(SliceKind::forward, plain)) == 3 * kLayers * kForward);
  CHECK(total(of_kind(SliceKind::backward, plain)) == 3 * kLayers * kBackward);
  each.recipe.recompute.form = Recompute::full;
  const Timeline again = timeline(*simulate_step(each), {.ranks = 1});
  // The last layer's backward follows its forward at once.
  CHECK(total(of_kind(SliceKind::recompute, again)) == 3 * (kLayers - 1) * kForward);
  CHECK(total(of_kind(SliceKind::backward, again)) == 3 * kLayers * kBackward);
}

TEST_CASE("repeats of partial recomputation are shown as recomputation") {
  const Timeline again = timeline(*simulate_step(partly_again(2)), {.ranks = 1});
  const std::vector<Slice> repeats = of_kind(SliceKind::recompute, again);
  REQUIRE(repeats.size() == 2 * kLayers);
  // They are the kernels of the forward pass between the same two collectives.
  std::vector<Slice> first;
  for (const Slice& slice : of_kind(SliceKind::forward, again))
    if (again.names[slice.name].ends_with(": fc1 .. fc2")) first.push_back(slice);
  REQUIRE(first.size() == repeats.size());
  CHECK(total(repeats) == total(first));
}

TEST_CASE("with fewer ops than there are whole ranks are left out, and told") {
  const Job three = job(misnamed_layers(), {.pipeline = 3}, 8);
  const std::unique_ptr<Step> whole = simulate_step(three);
  const std::size_t classes = whole->lowered.classes.size();
  REQUIRE(classes > 2);
  std::uint64_t all = 0, of_two = 0;
  for (const ActorId actor : whole->lowered.machine.actors.ids()) {
    const std::uint64_t ops = spans_of(whole->trace(), actor).size();
    all += ops;
    if (index(actor) != 1) of_two += ops;  // the ends of three stages
  }
  const auto texts = [](const Timeline& timeline) {
    std::vector<std::tuple<int, std::string, std::string, Duration, Duration, std::uint64_t>> seen;
    for (const Lane& lane : timeline.lanes)
      for (const Slice& slice : lane.slices)
        seen.emplace_back(lane.rank, lane.stream, timeline.names[slice.name], slice.begin,
                          slice.end, slice.flow);
    return seen;
  };
  for (const auto& [ops, shown] : {std::pair{all, classes}, {of_two, std::size_t{2}}, {0, 1}}) {
    const TimelineLimits limits{.ops = ops};
    const std::unique_ptr<Step> step = simulate_step(three, {.shown = limits});
    CHECK(step->trace().end == whole->trace().end);
    const Timeline some = timeline(*step, limits);
    CHECK(some.ranks_shown.size() == shown);
    CHECK(some.memory.size() == shown);
    CHECK(some.ranks_left_out.size() == classes - shown);
    CHECK(some.stages_left_out.size() == classes - shown);
    CHECK(step->trace().spans.size() + some.ops_left_out == all);
    CHECK(texts(some) == texts(timeline(*whole, {.ranks = static_cast<int>(shown)})));
  }
}

TEST_CASE("each op of a pair carries the micro-batch of its own pass") {
  for (const auto& [schedule, chunks] : {std::pair{"dualpipe", 1}, std::pair{"dualpipe_v", 2}}) {
    const std::unique_ptr<Step> step = simulate_step(paired(schedule, chunks, 8));
    bool pairs = false;
    for (const Role& role : step->plan.cast.roles)
      for (const CallInfo& call : role.calls)
        pairs = pairs || call.kind == CallKind::pair;
    CHECK(pairs);
    const Timeline shown = timeline(*step, {.ranks = 2});
    // By stage, part of the stage and micro-batch.
    std::map<std::tuple<int, int, int>, std::pair<Duration, Duration>> times;
    std::map<std::uint64_t, int> sent;
    for (const Lane& lane : shown.lanes) {
      for (const Slice& slice : lane.slices) {
        auto& [forward, backward] = times[{lane.stage, slice.chunk, slice.microbatch}];
        if (slice.kind == SliceKind::forward) forward += slice.end - slice.begin;
        if (slice.kind == SliceKind::backward) backward += slice.end - slice.begin;
        if (slice.flow == 0) continue;
        const auto [other, first] = sent.try_emplace(slice.flow, slice.microbatch);
        CHECK((first || other->second == slice.microbatch));
      }
    }
    const PipelineShape& shape = step->plan.shape;
    for (const auto& [place, time] : times) {
      const auto [stage, part, microbatch] = place;
      if (microbatch < 0) continue;  // of the step
      const auto direction = static_cast<std::uint8_t>(part / shape.chunks);
      const int at = virtual_stage(shape, Seat{stage, part % shape.chunks, direction});
      const ChainRange range = step->plan.layers[static_cast<std::size_t>(at)];
      CHECK(range.first < range.last);
      CHECK(time.first == (range.last - range.first) * kForward);
      CHECK(time.second == (range.last - range.first) * kBackward);
    }
  }
}

TEST_CASE("other labels change nothing but names") {
  for (const Job& each : {partly_again(2), paired("dualpipe", 1, 8), paired("dualpipe_v", 2, 8)}) {
    const std::unique_ptr<Step> step = simulate_step(each);
    const std::vector<Slice> before = slices(timeline(*step, {.ranks = 2}));
    for (const char* label : {"", "a forward", "recompute", "send activations"}) {
      for (Role& role : step->plan.cast.roles) {
        std::fill(role.program.labels.where.begin(), role.program.labels.where.end(), "");
        for (std::string& what : role.program.labels.what.edit())
          what = label;
      }
      const std::vector<Slice> after = slices(timeline(*step, {.ranks = 2}));
      REQUIRE(after.size() == before.size());
      for (std::size_t i = 0; i < after.size(); ++i) {
        CHECK(after[i].kind == before[i].kind);
        CHECK(after[i].microbatch == before[i].microbatch);
        CHECK(after[i].chunk == before[i].chunk);
      }
    }
  }
}
