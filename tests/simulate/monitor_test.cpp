// A GPU over the step in samples: whatever the samples are, they are parts of the same step.
#include <doctest/doctest.h>

#include <cmath>
#include <memory>
#include <numeric>

#include "models/layers/layer_table.h"
#include "sim/simulate/outlook/training_total.h"
#include "sim/simulate/report/summarize.h"
#include "tests/simulate/toy.h"
#include "tests/support/about.h"
#include "tests/support/networks.h"
#include "tests/support/rooms.h"

using namespace trainyard;

namespace {

constexpr Duration kForward = std::chrono::microseconds(300);
constexpr Duration kBackward = std::chrono::microseconds(700);
constexpr int kLayers = 4;
constexpr std::int64_t kParameters = 1'000'000;

// Kernels whose times are all said.
LayerNetwork timed_layers(std::int64_t parameters) {
  LayerTable table{{10}, {}, {}};
  for (int layer = 0; layer < kLayers; ++layer) {
    TableRow row;
    row.op = TableOp::time;
    row.name = "time";
    row.forward_time = kForward;
    row.backward_time = kBackward;
    row.micro_batch = 1;
    row.parameters = static_cast<double>(parameters);
    row.keeps = 1000;
    table.layers.push_back({"layer " + std::to_string(layer), std::nullopt, {row}, std::nullopt});
  }
  std::vector<TableProblem> problems;
  LayerNetwork network = resolve(table, problems);
  REQUIRE(problems.empty());
  return network;
}

Job job(const ParallelDegrees& degrees, int microbatches, int servers, const Network& network) {
  Job result;
  result.network = network;
  result.cluster = toy::cluster(degrees.world_size() / servers, servers);
  GpuSpec& gpu = result.cluster.server.gpu;
  gpu.idle_power = Watts(60);
  gpu.busy_power = Watts(400);
  gpu.memory_bound_power = Watts(300);
  gpu.communication_power = Watts(150);
  result.recipe.global_batch = std::int64_t{microbatches} * degrees.data;
  result.recipe.launch_time = Duration(0);
  result.plan.degrees = degrees;
  return result;
}

Job language(const ParallelDegrees& degrees, int microbatches, int servers) {
  Job result = job(degrees, microbatches, servers, gpt(kLayers, 512, 8, 8192));
  result.recipe.micro_batch.sequence_length = 256;
  return result;
}

struct Watched {
  std::unique_ptr<Step> step;
  StepReport report;
  Timeline lanes;
  Monitor monitor;
};

Watched watch(const Job& job, std::optional<Duration> interval = {}, bool unfold = false) {
  Watched result;
  result.step = simulate_step(job, {.unfold = unfold, .monitor = true});
  result.report = summarize(job, *result.step);
  result.lanes = timeline(*result.step, {.ranks = 64});
  result.monitor = monitor(job, *result.step, result.lanes, interval);
  return result;
}

template <class Field>
double sum(const MonitoredRank& rank, const Field& field) {
  double total = 0;
  for (const MonitorSample& sample : rank.samples)
    total += static_cast<double>(field(sample));
  return total;
}

Cooling cooling() {
  Cooling cooling;
  cooling.inlet = 20;
  cooling.busy = 60;
  cooling.time_constant = std::chrono::milliseconds(2);
  return cooling;
}

double seconds(Duration time) {
  return Seconds(time).count();
}

std::vector<Job> jobs() {
  std::vector<Job> list = {language({.tensor = 2}, 3, 1), language({.data = 4}, 2, 2),
                           language({.pipeline = 4}, 6, 1),
                           job({.pipeline = 2}, 3, 1, timed_layers(kParameters))};
  list.push_back(language({.data = 2}, 2, 1));
  list.back().recipe.launch_time = std::chrono::microseconds(30);  // the host holds kernels up
  list.push_back(language({.tensor = 2, .data = 2, .pipeline = 2}, 4, 1));
  return list;
}

}  // namespace

TEST_CASE("the energy of a step is the sum of its samples, whatever they are") {
  for (const Job& each : jobs()) {
    const Watched whole = watch(each, std::chrono::hours(1));
    REQUIRE(whole.report.energy);
    for (const std::optional<Duration> interval :
         {std::optional<Duration>{}, std::optional<Duration>(std::chrono::microseconds(17))}) {
      const Watched watched = watch(each, interval);
      double all = 0;
      for (std::size_t r = 0; r < watched.monitor.ranks.size(); ++r) {
        const MonitoredRank& rank = watched.monitor.ranks[r];
        const double joules =
            sum(rank, [](const MonitorSample& s) { return *s.watts * seconds(s.length); });
        CHECK(joules == about(*rank.joules).within(1e-12));
        CHECK(joules == about(*whole.monitor.ranks[r].joules).within(1e-12));
        all += rank.count * joules;
      }
      CHECK(all == about(whole.report.energy->joules).within(1e-12));
    }
  }
}

TEST_CASE("the energy of a training is that of its steps") {
  Job each = language({.data = 2}, 2, 1);
  each.length.samples = 40 * static_cast<double>(each.recipe.global_batch);
  const StepReport report = summarize(each, *simulate_step(each, {.detail = Detail::summary}));
  REQUIRE((report.training && report.energy));
  CHECK(*report.training->kilowatt_hours ==
        about(40 * report.energy->joules / 3.6e6).within(1e-14));
  CHECK(report.energy->joules == watch(each).report.energy->joules);
}

TEST_CASE("kernels of all samples last as long as the report says") {
  for (const Job& each : jobs()) {
    const Watched watched = watch(each);
    for (const StepReport::RankBreakdown& parts : watched.report.ranks)
      for (const MonitoredRank& rank : watched.monitor.ranks) {
        if (rank.rank != parts.rank) continue;
        const Duration kernels = parts.breakdown[static_cast<std::size_t>(TimeCategory::compute)] +
                                 parts.breakdown[static_cast<std::size_t>(TimeCategory::optimizer)];
        CHECK(sum(rank, [](const MonitorSample& s) { return s.kernels * seconds(s.length); }) ==
              about(seconds(kernels)).within(1e-9));
      }
  }
}

TEST_CASE("a rank whose times are all said draws its two powers for those times") {
  Job each = job({}, 3, 1, timed_layers(kParameters));
  each.recipe.optimizer = Optimizer::sgd;
  const Watched watched = watch(each);
  const double kernels = 3 * kLayers * seconds(kForward + kBackward);
  const double optimizer =
      seconds(watched.report.breakdown[static_cast<std::size_t>(TimeCategory::optimizer)]);
  REQUIRE(optimizer > 0);
  const double rest = seconds(watched.report.simulated_step) - kernels - optimizer;
  CHECK(*watched.monitor.ranks.at(0).joules ==
        about(400 * kernels + 300 * optimizer + 60 * rest).within(1e-9));
}

TEST_CASE(
    "a stage that waits for its first micro-batch is busy for a monitor and idle for its power") {
  const Watched watched =
      watch(job({.pipeline = 2}, 3, 1, timed_layers(0)), std::chrono::microseconds(100));
  const MonitorSample& first = watched.monitor.ranks.at(1).samples.at(0);
  CHECK(first.kernels == 0);
  CHECK(*first.watts == 60);
  CHECK(first.busy == 1);  // the kernel that receives is there from the start
}

TEST_CASE("traffic adds up to what a ring of gradients sends, over the links that join its ranks") {
  for (const int servers : {1, 2, 4}) {
    Job each = job({.data = 4}, 2, servers, timed_layers(kParameters));
    const Watched watched = watch(each, std::chrono::microseconds(13));
    const std::int64_t gradients =
        kLayers * kParameters * size_of(each.recipe.precision.gradients).count();
    for (const MonitoredRank& rank : watched.monitor.ranks) {
      const double links = sum(rank, [](const MonitorSample& s) { return s.links.out; });
      const double pcie = sum(rank, [](const MonitorSample& s) { return s.pcie.out; });
      CHECK(links + pcie == about(2.0 * 3 / 4 * static_cast<double>(gradients)));
      // Of a ring of four ranks as many edges leave a server as there are servers.
      const double outside = servers == 1 ? 0 : servers / 4.0;
      CHECK(pcie == about(outside * (links + pcie)));
      CHECK(links == sum(rank, [](const MonitorSample& s) { return s.links.in; }));
      CHECK(pcie == sum(rank, [](const MonitorSample& s) { return s.pcie.in; }));
    }
  }
}

TEST_CASE("what stages send each other leaves one GPU and reaches another") {
  const Watched watched = watch(language({.pipeline = 4}, 6, 1), std::chrono::microseconds(11));
  double out = 0, in = 0;
  for (const MonitoredRank& rank : watched.monitor.ranks) {
    out += sum(rank, [](const MonitorSample& s) { return s.links.out; });
    in += sum(rank, [](const MonitorSample& s) { return s.links.in; });
  }
  CHECK(out == static_cast<double>(watched.report.pipeline_bytes.count()));
  CHECK(in == out);
}

TEST_CASE("the fullest sample holds the peak") {
  for (const Job& each : jobs()) {
    const Watched watched = watch(each);
    Bytes most;
    for (const MonitoredRank& rank : watched.monitor.ranks)
      for (const MonitorSample& sample : rank.samples)
        most = std::max(most, sample.memory);
    CHECK(most == watched.report.memory.peak);
  }
}

TEST_CASE("every rank simulated shows what one of each kind shows") {
  const Job each = language({.tensor = 2, .data = 2, .pipeline = 2}, 4, 1);
  const Watched folded = watch(each), all = watch(each, {}, true);
  CHECK(folded.report.energy->joules == all.report.energy->joules);
  for (const MonitoredRank& rank : folded.monitor.ranks)
    for (const MonitoredRank& other : all.monitor.ranks) {
      if (rank.rank != other.rank) continue;
      for (std::size_t s = 0; s < rank.samples.size(); ++s) {
        CHECK(*rank.samples[s].watts == *other.samples[s].watts);
        CHECK(rank.samples[s].busy == other.samples[s].busy);
        CHECK(rank.samples[s].links.in == other.samples[s].links.in);
        CHECK(rank.samples[s].links.out == other.samples[s].links.out);
      }
    }
}

TEST_CASE("temperature follows power with one time constant, step after step") {
  Job each = job({}, 1, 1, timed_layers(0));
  each.cluster.server.gpu.cooling = cooling();
  // Nothing but kernels: it settles where the busy power puts it.
  const Watched busy_always = watch(each);
  for (const MonitorSample& sample : busy_always.monitor.ranks.at(0).samples)
    CHECK(*sample.celsius == about(60));
  // A stage that works for a while and waits for a while: the closed form of a square wave.
  each = job({.pipeline = 2}, 1, 1, timed_layers(0));
  each.cluster.server.gpu.cooling = cooling();
  const Watched watched = watch(each, std::chrono::microseconds(1));
  const double step = seconds(watched.report.simulated_step);
  // The second stage computes once, after a wait: what has no parameters has no backward pass.
  const double busy = kLayers / 2 * seconds(kForward), tau = 2e-3;
  const double cool = 20 + 40 * 60.0 / 400, swing = 60 - cool;
  double hottest = 0;
  for (const MonitorSample& sample : watched.monitor.ranks.at(1).samples)
    hottest = std::max(hottest, *sample.celsius);
  CHECK(
      hottest ==
      about(cool + swing * (1 - std::exp(-busy / tau)) / (1 - std::exp(-step / tau))).within(1e-3));
}

TEST_CASE("coarser samples hold the same energy, bytes and time") {
  const MonitoredRank fine = watch(language({.data = 4}, 2, 2)).monitor.ranks.at(0);
  for (const std::size_t rows : {1U, 7U, 20U, 1000U}) {
    const MonitoredRank rank = coarser(fine, rows);
    CHECK(rank.samples.size() <= rows);
    const auto joules = [](const MonitorSample& s) { return *s.watts * seconds(s.length); };
    CHECK(sum(rank, joules) == about(sum(fine, joules)).within(1e-12));
    const auto bytes = [](const MonitorSample& s) { return s.pcie.out + 3 * s.links.in; };
    CHECK(sum(rank, bytes) == sum(fine, bytes));
    const auto time = [](const MonitorSample& s) { return s.length.count(); };
    CHECK(sum(rank, time) == sum(fine, time));
  }
}
