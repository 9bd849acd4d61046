// Exchanges of rows with experts, and what hides them: nothing in passes by themselves, the other
// pass in an overlapped pair.
#include <doctest/doctest.h>

#include <algorithm>
#include <array>

#include "sim/base/random.h"
#include "sim/simulate/report/summarize.h"
#include "tests/simulate/toy.h"
#include "tests/support/about.h"
#include "tests/support/cast.h"
#include "tests/support/max_plus.h"
#include "tests/support/networks.h"
#include "tests/support/rooms.h"

using namespace trainyard;
using namespace trainyard::testing;

namespace {

// A pass computes, sends rows away, computes at the experts, gets rows back, computes.
struct Parts {
  std::array<std::int64_t, 3> compute{};
  std::array<std::int64_t, 2> exchange{};
  std::int64_t alone() const {
    return compute[0] + compute[1] + compute[2] + exchange[0] + exchange[1];
  }
};

std::vector<WorkItem> items(const Parts& parts) {
  std::vector<WorkItem> list;
  for (std::size_t i = 0; i < 3; ++i) {
    list.emplace_back(toy::kernel(parts.compute[i]));
    if (i == 2) break;
    list.emplace_back(GroupCollective{i == 0 ? "dispatch" : "combine", CollectiveKind::all_to_all,
                                      Bytes(parts.exchange[i]), LayerGroup::expert});
    list.emplace_back(GroupWait{LayerGroup::expert});
  }
  return list;
}

NetworkWork network(int layers, const Parts& forward, const Parts& input, std::int64_t weight) {
  NetworkWork work = toy::network(layers, {});
  work.kinds[0].forward = items(forward);
  work.kinds[0].backward = items(input);
  NamedKernel deferred = toy::kernel(weight);
  deferred.weight_gradient = true;
  work.kinds[0].backward.emplace_back(deferred);
  return work;
}

// Each exchange is under way while the other pass computes until it needs one itself.
std::int64_t together(const Parts& forward, const Parts& input, std::int64_t weight) {
  return forward.compute[0] + std::max(input.compute[0], forward.exchange[0]) +
         std::max(forward.compute[1], input.exchange[0]) +
         std::max(input.compute[1], forward.exchange[1]) +
         std::max(forward.compute[2], input.exchange[1]) + input.compute[2] + weight;
}

Parts drawn(SplitMix64& random, std::uint64_t most_computing, std::uint64_t most_exchanged) {
  Parts parts;
  for (std::int64_t& time : parts.compute)
    time = 1 + static_cast<std::int64_t>(random.below(most_computing));
  for (std::int64_t& time : parts.exchange)
    time = 1 + static_cast<std::int64_t>(random.below(most_exchanged));
  return parts;
}

// Two ranks per stage share the experts. Collectives take a nanosecond a byte.
std::unique_ptr<toy::Result> step(const NetworkWork& work, ParallelPlan plan, int microbatches) {
  TrainingRecipe recipe;
  recipe.global_batch = 2 * std::int64_t{microbatches};
  plan.degrees.data = plan.experts.ranks = 2;
  auto result = std::make_unique<toy::Result>();
  result->plan = plan_step(work, recipe, plan);
  result->lowered = lower_in_order(result->plan.cast, toy::cluster(2 * plan.degrees.pipeline, 1),
                                   nullptr, toy::Compute(), toy::Messages(0), {});
  result->outcome = run(result->lowered.machine);
  return result;
}

}  // namespace

TEST_CASE("in a pair each pass hides the other's exchanges as far as it computes") {
  SplitMix64 random(64);
  int hidden = 0, exposed = 0;
  for (int trial = 0; trial < 200; ++trial) {
    const Parts forward = drawn(random, 20, trial % 2 == 0 ? 5 : 40);
    const Parts input = drawn(random, 20, trial % 2 == 0 ? 5 : 40);
    const std::int64_t weight = 1 + static_cast<std::int64_t>(random.below(10));
    ParallelPlan plan;
    plan.pipeline.schedule = kCustomSchedule;
    plan.pipeline.custom.slots = {"F0 F1+B0 B1"};
    const auto result = step(network(1, forward, input, weight), plan, 2);
    const std::int64_t pair = together(forward, input, weight);
    CHECK(result->end() ==
          std::chrono::nanoseconds(forward.alone() + pair + input.alone() + weight));
    std::int64_t computed = weight;
    for (std::size_t i = 0; i < 3; ++i)
      computed += forward.compute[i] + input.compute[i];
    (pair == computed ? hidden : exposed) += 1;
  }
  CHECK(hidden > 20);
  CHECK(exposed > 50);
}

// The step is the longest path of the order, with exchanges in F and I, and in a pair what the
// other pass does not hide.
TEST_CASE("steps of mixtures take the longest path of DualPipe, DualPipeV and zero bubble") {
  SplitMix64 random(65);
  int runs = 0;
  for (const char* name : {"dualpipe", "dualpipe_v", "zb_h1", "zb_h2", "zb_v", "1f1b"}) {
    const ScheduleEntry& entry = *find_schedule(name);
    for (const int p : {2, 4}) {
      for (int trial = 0; trial < 4; ++trial) {
        const Parts forward = drawn(random, 20, trial < 2 ? 5 : 30);
        const Parts input = drawn(random, 20, trial < 2 ? 5 : 30);
        const std::int64_t weight = 1 + static_cast<std::int64_t>(random.below(20));
        ParallelPlan plan;
        plan.pipeline.schedule = name;
        plan.degrees.pipeline = p;
        plan.pipeline.chunks = entry.chunks;
        const int m = 2 * p + 2;
        const PipelineShape shape = shape_of(entry, p, m);
        const auto result = step(network(virtual_stages(shape), forward, input, weight), plan, m);
        const PipelineTimes times = equal_halves(forward.alone(), input.alone(), weight, 0,
                                                 together(forward, input, weight));
        CAPTURE(name);
        CAPTURE(p);
        CHECK(result->end() ==
              std::chrono::nanoseconds(
                  longest_path(shape, build_stages(entry, shape), times).makespan));
        ++runs;
      }
    }
  }
  CHECK(runs == 48);
}

TEST_CASE("1F1B in pairs takes its closed form") {
  SplitMix64 random(66);
  for (int trial = 0; trial < 24; ++trial) {
    const Parts forward = drawn(random, 20, trial % 2 == 0 ? 5 : 40);
    const Parts input = drawn(random, 20, trial % 2 == 0 ? 5 : 40);
    const std::int64_t weight = 1 + static_cast<std::int64_t>(random.below(10));
    ParallelPlan plan;
    const int p = plan.degrees.pipeline = 1 + trial % 3;
    const int v = plan.pipeline.chunks = p == 1 ? 1 : 2;
    plan.pipeline.schedule = p == 1 ? "1f1b" : "interleaved_1f1b";
    plan.pipeline.overlap_passes = true;
    const int m = 3 * p;
    const auto result = step(network(p * v, forward, input, weight), plan, m);
    const int before = (v - 1) * p + 1;
    CAPTURE(p);
    CHECK(result->end() ==
          std::chrono::nanoseconds((p + before - 1) * (forward.alone() + input.alone() + weight) +
                                   (m * v - before) * together(forward, input, weight)));
  }
}

// As Megatron-LM's compute stream waits for them; DualPipe hides them too.
TEST_CASE("1F1B in pairs hides no collectives of tensor parallelism") {
  Job job;
  job.network = gpt(4, 1024, 16, 4096);
  job.cluster = toy::cluster(4, 1);
  job.recipe.global_batch = 8;
  job.recipe.micro_batch.sequence_length = 512;
  job.plan.degrees = {.tensor = 4};
  const Duration plain = simulate_step(job)->trace().end;
  job.plan.pipeline.overlap_passes = true;
  CHECK(simulate_step(job)->trace().end == plain);
  job.plan.pipeline.overlap_passes = false;
  job.plan.pipeline.schedule = kCustomSchedule;
  job.plan.pipeline.custom.slots = {"F0 F1+B0 F2+B1 F3+B2 F4+B3 F5+B4 F6+B5 F7+B6 B7"};
  CHECK(simulate_step(job)->trace().end < plain);
}

TEST_CASE("DualPipe exposes less of the exchanges of a mixture than 1F1B") {
  Transformer mixture = gpt(8, 1024, 16, 4096);
  mixture.biases = false;
  mixture.moe = {.experts = 8, .top_k = 2, .ffn_hidden = 4096};
  Job job;
  job.network = mixture;
  job.cluster = toy::cluster(8, 1);
  job.recipe.global_batch = 32;
  job.recipe.micro_batch.sequence_length = 512;
  job.recipe.kernels.attention = AttentionKernel::fa2;
  job.plan.degrees = {.data = 2, .pipeline = 4};
  job.plan.experts.ranks = 2;
  const auto exposed = [&](const char* schedule, int chunks) {
    job.plan.pipeline.schedule = schedule;
    job.plan.pipeline.chunks = chunks;
    Duration sum{};
    const StepReport report = summarize(job, *simulate_step(job));
    for (const StepReport::RankBreakdown& rank : report.ranks)
      sum += rank.breakdown[static_cast<std::size_t>(TimeCategory::exposed_ep)];
    return sum;
  };
  const Duration plain = exposed("1f1b", 1);
  CHECK(plain > Duration(0));
  CHECK(2 * exposed("dualpipe", 1) < plain);
  CHECK(2 * exposed("dualpipe_v", 2) < plain);
  const Duration interleaved = exposed("interleaved_1f1b", 2);
  job.plan.pipeline.overlap_passes = true;
  CHECK(3 * exposed("interleaved_1f1b", 2) < 2 * interleaved);
}

namespace {

Bytes exchanged(const Step& step) {
  const Machine& machine = step.lowered.machine;
  const CommunicatorId exchange =
      machine.actors[ActorId(0)].communicators[port_on(step.plan.cast, "expert parallel")];
  return step.lowered.transfers[machine.communicators[exchange].transfers][0].terms.wire_bytes;
}

}  // namespace

// Eight ranks on two servers: half of the rows leave, or one for the other server.
TEST_CASE("a step with hierarchical dispatch carries a row for each server that a token visits") {
  Transformer mixture = gpt(2, 1024, 16, 4096);
  mixture.biases = false;
  mixture.moe = {.experts = 16, .top_k = 4, .ffn_hidden = 512, .groups = 2, .top_groups = 1};
  Job job;
  job.network = mixture;
  job.cluster = toy::cluster(4, 2);
  job.recipe.global_batch = 16;
  job.recipe.micro_batch.sequence_length = 512;
  job.plan.degrees = {.data = 8};
  job.plan.experts.ranks = 8;
  const std::int64_t rows = 512 * 4 * 1024 * 2;
  const auto plain = simulate_step(job);
  CHECK(exchanged(*plain).count() == rows / 2);
  job.plan.experts.hierarchical_dispatch = true;
  const auto limited = simulate_step(job);
  CHECK(exchanged(*limited).count() == rows / 4 / 2);  // one of the two servers
  job.network.change<Transformer>().moe.top_groups = 2;
  const auto free = simulate_step(job);
  const double visited = 2 * (1 - 8.0 * 7 * 6 * 5 / (16.0 * 15 * 14 * 13));
  CHECK(exchanged(*free).count() == about(rows / 4 * visited / 2).within(1e-6));
  CHECK(limited->trace().end < free->trace().end);
  CHECK(free->trace().end < plain->trace().end);
  for (const bool flows : {false, true}) {
    job.fidelity = flows ? Fidelity::flow : Fidelity::closed_form;
    const auto folded = simulate_step(job);
    const auto unfolded = simulate_step(job, {.unfold = true, .run = true});
    CHECK(folded->trace().end == unfolded->trace().end);
  }
}
