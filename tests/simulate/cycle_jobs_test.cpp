// Horovod's cycles in whole jobs: whose host counts, how far agreement goes, and what a wait is in
// reports.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "sim/simulate/explain.h"
#include "sim/simulate/outlook/training_total.h"
#include "sim/simulate/report/summarize.h"
#include "sim/simulate/simulate.h"
#include "tests/simulate/mixed_jobs.h"
#include "tests/simulate/toy.h"
#include "tests/support/about.h"
#include "tests/support/networks.h"
#include "tests/support/rooms.h"

using namespace trainyard;

namespace {

Job job(int data, int context, int servers) {
  Job result;
  result.network = gpt(4, 512, 8, 8192);
  result.cluster = toy::cluster(data * context / servers, servers);
  result.recipe.global_batch = data;
  result.recipe.micro_batch.sequence_length = 256;
  result.recipe.kernels.attention = AttentionKernel::fa2;
  result.recipe.launch_time = std::chrono::microseconds(20);
  result.plan.degrees = {.context = context, .data = data};
  result.plan.data_parallel.bucket_size = Bytes(1 << 22);
  result.plan.data_parallel.cycle_time = std::chrono::microseconds(200);
  return result;
}

// For a cycle, that any rank has.
std::vector<Duration> waits(const Step& step) {
  std::vector<Duration> found;
  for (const Connection& connection : step.plan.cast.connections)
    if (connection.traffic == plan::Traffic::meeting)
      for (const TransferSpec& spec : connection.transfers)
        found.push_back(spec.time);
  return found;
}

Duration longest(const std::vector<Duration>& all) {
  return all.empty() ? Duration(0) : *std::max_element(all.begin(), all.end());
}

}  // namespace

// Four rounds of two messages without a memory of what was agreed.
TEST_CASE("ranks agree over the furthest replica, whichever axis they differ in") {
  for (const auto& [data, context] : {std::pair{4, 1}, {1, 4}, {2, 2}}) {
    CAPTURE(data);
    Job own = job(data, context, 4);
    own.cluster.server.nic_latency = std::chrono::milliseconds(5);
    own.plan.data_parallel.response_cache = false;
    CHECK(longest(waits(*simulate_step(own))) >= 4 * 2 * std::chrono::milliseconds(5));
  }
}

TEST_CASE("the slowest host of all replicas counts, wherever it stands") {
  const auto simulated = [](double first, double second) {
    Job own = job(2, 1, 2);
    own.cluster.server.host_launch_factor = first;
    own.cluster.others = {{1, toy::cluster(1, 1).server}};
    own.cluster.others.front().server.host_launch_factor = second;
    own.prices.resize(2);
    return simulate_step(own);
  };
  const auto slow_first = simulated(8, 1), slow_second = simulated(1, 8);
  CHECK(slow_first->trace().end == slow_second->trace().end);
  CHECK(waits(*slow_first) == waits(*slow_second));
  CHECK(waits(*slow_first) != waits(*simulated(1, 1)));
}

TEST_CASE("while ranks wait for a cycle no kernel is on their GPUs") {
  Job own = job(2, 1, 1);
  own.plan.data_parallel.cycle_time = std::chrono::milliseconds(400);
  const auto step = simulate_step(own, {.monitor = true});
  REQUIRE(longest(waits(*step)) > std::chrono::milliseconds(150));
  const Monitor found = monitor(own, *step, timeline(*step, {.ranks = 64}), {});
  double busy = 0, all = 0;
  for (const MonitorSample& sample : found.ranks.front().samples) {
    busy += sample.busy * Seconds(sample.length).count();
    all += Seconds(sample.length).count();
  }
  CHECK(busy < 0.3 * all);
}

TEST_CASE("a wait for a cycle is named as one, and no part of what estimates rest on") {
  const auto loaded = [](const char* cycle) {
    return test::scenario_of(fmt::format(
        R"("model": {{ "preset": "resnet50" }}, "cluster": {{ "node": "dgx-1v" }},
        "training": {{ "global_batch": 512, "precision": {{ "compute": "fp32" }} }},
        "parallelism": {{ "data_parallel": {{ "bucket_size": "128MiB", "cycle_time": "{}" }} }})",
        cycle));
  };
  const auto analytic = [&](const char* cycle) {
    double share = 0;
    const StepReport report = simulate::simulate(loaded(cycle)).report;
    REQUIRE(report.step_time.has_value());
    for (const BasisShare& basis : report.basis)
      if (basis.basis == Basis::analytic) share += basis.fraction;
    return share;
  };
  CHECK(std::abs(analytic("1s") - analytic("0s")) < 0.005);
  CHECK(explain_stage(loaded("1s"), "transfers").find("wait of 8 ranks for a cycle") !=
        std::string::npos);
}

TEST_CASE("layers that run again in groups have cycles as those that do so alone") {
  const auto step = [](const char* recompute) {
    return simulate::simulate(test::scenario_of(fmt::format(
                                  R"("model": {{ "preset": "gpt-1.7b", "layers": 4 }},
        "cluster": {{ "node": "dgx-a100-80gb" }},
        "training": {{ "global_batch": 8, "sequence_length": 512, "recompute": {} }},
        "parallelism": {{ "data_parallel": {{ "cycle_time": "1ms" }} }})",
                                  recompute)))
        .report.step_time;
  };
  const auto alone = step(R"("full")");
  const auto groups = step(R"({ "method": "uniform", "layers": 2 })");
  REQUIRE(alone.has_value());
  REQUIRE(groups.has_value());
  CHECK(Seconds(*groups).count() == about(Seconds(*alone).count()).within(0.05));
}
