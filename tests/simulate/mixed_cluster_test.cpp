// Jobs on GPUs and servers of several kinds: laws, links and memory of each, and how work is dealt
// to them.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <numeric>
#include <set>

#include "models/layer/peak.h"
#include "sim/base/random.h"
#include "sim/lower/group_shape.h"
#include "sim/simulate/simulate.h"
#include "sim/simulate/stage_gpus.h"
#include "tests/simulate/mixed_jobs.h"
#include "tests/simulate/toy.h"
#include "tests/support/about.h"

using namespace trainyard;
using test::kGpt;
using test::scenario_of;

namespace {

// Takes `factor` times as long as toy::Compute.
class SlowCompute final : public ComputeCost {
 public:
  explicit SlowCompute(double factor) : factor_(factor) {}
  Estimate time(const Kernel& kernel) const override {
    Estimate estimate = toy::Compute().time(kernel);
    estimate.time = factor_ * estimate.time;
    return estimate;
  }

 private:
  double factor_;
};

// A server of `fast` GPUs, then one of `slow` ones.
ClusterSpec fast_and_slow(int fast, int slow) {
  ClusterSpec cluster = toy::cluster(fast, 1);
  cluster.others = {{1, toy::cluster(slow, 1).server}};
  cluster.servers = 2;
  return cluster;
}

Duration end_on(const StepPlan& plan, const ClusterSpec& cluster, double slowdown) {
  const toy::Compute fast;
  const SlowCompute slow(slowdown);
  const std::array<lower::GpuLaws, 2> laws = {{{.compute = &fast}, {.compute = &slow}}};
  const Lowered lowered = lower::lower(plan.cast, lower::in_order(plan.cast, cluster), cluster,
                                       nullptr, laws, toy::Messages(0), {});
  return std::get<Trace>(run(lowered.machine)).end;
}

const char* const kResnet = R"("model": { "preset": "resnet50" },
  "training": { "global_batch": 64, "precision": { "compute": "fp16" } })";

// A 3090 and a 2080 Ti on PCIe.
const char* const kTwoCards = R"("cluster": { "nodes": 1, "node": { "preset": "pcie-2x3090",
  "other_gpus": [{ "at": 1, "gpu": "rtx-2080-ti" }] } })";

}  // namespace

TEST_CASE("servers said to be of two kinds that are alike run as servers of one") {
  for (const char* const parallel :
       {R"("tp": 2, "pp": 2)", R"("data_parallel": { "kind": "zero3" })",
        R"("tp": 2, "pp": 4, "pipeline": { "schedule": "gpipe" })"})
    for (const char* const fidelity : {"closed_form", "flow"}) {
      CAPTURE(parallel);
      CAPTURE(fidelity);
      const auto run_on = [&](const char* cluster) {
        const scenario::Scenario scenario =
            scenario_of(fmt::format(R"({}, "cluster": {}, "parallelism": {{ {} }}, "simulation": {{
              "fidelity": "{}" }})",
                                    kGpt, cluster, parallel, fidelity));
        return simulate_step(simulate::job_of(scenario));
      };
      const auto one = run_on(R"({ "nodes": 2, "node": "dgx-a100-80gb" })");
      const auto two = run_on(R"({ "nodes": 1, "node": "dgx-a100-80gb",
        "other_nodes": [{ "node": "dgx-a100-80gb" }] })");
      CHECK(two->lowered.classes.size() >= one->lowered.classes.size());
      CHECK(two->trace().end == one->trace().end);
      for (std::size_t rank = 0; rank < one->lowered.class_of_rank.size(); ++rank) {
        const auto peak = [&](const Step& step) {
          const RankClass& own = step.lowered.classes[step.lowered.class_of_rank[rank]];
          return step.trace().peaks[own.actor].peak;
        };
        CHECK(peak(*two) == peak(*one));
      }
    }
}

TEST_CASE("ranks that wait for each other go at the pace of the slowest GPU") {
  NetworkWork work = toy::network(4, {.forward = 100, .backward = 200});
  TrainingRecipe recipe;
  recipe.global_batch = 6;
  ParallelPlan plan;
  plan.degrees.data = 6;
  const StepPlan step = plan_step(work, recipe, plan);
  for (const int slowdown : {1, 2, 3})
    CHECK(end_on(step, fast_and_slow(4, 2), slowdown).count() == slowdown * 4 * 300 * 1000);
}

// Source: each pass of GPipe is a chain of two servers in tandem.
TEST_CASE("a pipeline over two kinds takes what its slower stage takes for each micro-batch") {
  constexpr std::int64_t kForward = 100, kBackward = 200;
  TrainingRecipe recipe;
  ParallelPlan plan;
  plan.degrees.pipeline = 2;
  plan.pipeline.schedule = "gpipe";
  const NetworkWork work = toy::network(2, {.forward = kForward, .backward = kBackward});
  for (const int microbatches : {1, 2, 7})
    for (const int slowdown : {1, 2, 5}) {
      recipe.global_batch = microbatches;
      const StepPlan step = plan_step(work, recipe, plan);
      const std::int64_t expected =
          (kForward + kBackward) * (1 + slowdown + (microbatches - 1) * slowdown);
      CHECK(end_on(step, fast_and_slow(1, 1), slowdown).count() == expected * 1000);
    }
}

TEST_CASE("launches, and what kernels mind of communication, are those of each kind") {
  TrainingRecipe recipe;
  recipe.global_batch = 2;
  ParallelPlan plan;
  plan.degrees.data = 2;
  const StepPlan step = plan_step(toy::network(4, {.forward = 1, .backward = 2}), recipe, plan);
  const toy::Compute compute;
  const ClusterSpec cluster = fast_and_slow(1, 1);
  std::array<lower::GpuLaws, 2> laws;
  laws[0].compute = laws[1].compute = &compute;
  laws[1].launch = std::chrono::microseconds(1);
  laws[1].memory_bound_weight = 0.5;
  const Lowered lowered = lower::lower(step.cast, lower::in_order(step.cast, cluster), cluster,
                                       nullptr, laws, toy::Messages(0), {});
  const auto& actors = lowered.machine.actors;
  REQUIRE(actors.size() == 2);
  CHECK(actors[engine::ActorId(0)].launch == Duration(0));
  CHECK(actors[engine::ActorId(1)].launch == std::chrono::microseconds(1));
  CHECK(actors[engine::ActorId(0)].times->weight.empty());
  REQUIRE(!actors[engine::ActorId(1)].times->weight.empty());
  CHECK(actors[engine::ActorId(1)].times->weight[0] == engine::kFullWeight / 2);
}

TEST_CASE("a group over two kinds has the slower links, the older GPU and its laws") {
  ClusterSpec cluster = fast_and_slow(4, 2);
  cluster.server.gpu.compute_capability = "8.0";
  ServerSpec& slow = cluster.others[0].server;
  slow.gpu.compute_capability = "7.0";
  slow.gpu.memory_bandwidth = BytesPerSecond(5e11);
  slow.intra_bandwidth = BytesPerSecond(1e11);
  slow.intra_latency = std::chrono::microseconds(3);
  slow.nic_bandwidth = BytesPerSecond(5e9);
  const std::vector<int> players = {4, 2};
  for (const bool flows : {false, true}) {
    GroupShapes shapes(cluster, players, flows);
    const std::vector<int> fast_alone = {0, 1, 2, 3}, slow_alone = {4, 5}, both = {0, 1, 4, 5};
    const GroupShape one = shapes.of_group(fast_alone), two = shapes.of_group(slow_alone),
                     all = shapes.of_group(both);
    CHECK(one.gpu_kind == 0);
    CHECK(one.intra_bandwidth.count() == 3e11);
    CHECK(one.nccl->generation == nccl::Generation::ampere);
    CHECK(two.gpu_kind == 1);
    CHECK(two.intra_bandwidth.count() == 1e11);
    CHECK(all.gpu_kind == 1);
    CHECK(all.gpu_kinds == 3);
    CHECK(all.intra_bandwidth.count() == 1e11);
    CHECK(all.intra_latency == std::chrono::microseconds(3));
    CHECK(all.nccl->generation == nccl::Generation::volta);
    CHECK(all.inter_bandwidth.count() == 2 * 5e9);  // two NICs each, the slow server's
    CHECK(shapes.of_pair(0, 4, 1).inter_bandwidth.count() == 5e9);
    CHECK(shapes.of_pair(4, 0, 1).inter_bandwidth.count() == 5e9);
  }
}

TEST_CASE("on unlike GPUs the longest stage is shortest by time, the fullest leanest by memory") {
  SplitMix64 random(3);
  for (int i = 0; i < 60; ++i) {
    CAPTURE(i);
    const int stages = 2 + static_cast<int>(random.below(3));
    const int layers = stages + static_cast<int>(random.below(7));
    std::vector<toy::Times> times(static_cast<std::size_t>(layers));
    for (toy::Times& own : times)
      own.forward = 1 + static_cast<std::int64_t>(random.below(20));
    const NetworkWork work = toy::uneven_network(times);
    std::vector<StageGpus> gpus;
    for (int stage = 0; stage < stages; ++stage) {
      const double slow = 1 + static_cast<double>(random.below(4));
      StageGpus& own = gpus.emplace_back();
      own.memory = Bytes(1000 * (1 + static_cast<std::int64_t>(random.below(4))));
      for (const toy::Times& layer : times)
        own.times.push_back(slow * static_cast<double>(layer.forward));
    }
    ParallelPlan plan;
    plan.degrees.pipeline = stages;
    TrainingRecipe recipe;
    recipe.global_batch = 16;
    const auto longest = [&](const std::vector<ChainRange>& ranges) {
      double most = 0;
      for (std::size_t stage = 0; stage < ranges.size(); ++stage) {
        const auto first = gpus[stage].times.begin();
        most = std::max(
            most, std::accumulate(first + ranges[stage].first, first + ranges[stage].last, 0.0));
      }
      return most;
    };
    // 1F1B holds p - s micro-batches of a byte a layer, here as shares of the first stage's memory.
    const auto fullest = [&](const std::vector<ChainRange>& ranges) {
      double most = 0;
      for (std::size_t stage = 0; stage < ranges.size(); ++stage) {
        const auto held =
            static_cast<double>((ranges.size() - stage) *
                                static_cast<std::size_t>(ranges[stage].last - ranges[stage].first));
        most = std::max(most, held * (static_cast<double>(gpus[0].memory.count()) /
                                      static_cast<double>(gpus[stage].memory.count())));
      }
      return most;
    };
    const auto split = [&](LayerSplit how) {
      plan.pipeline.layer_split = how;
      return split_layers(work, pipeline_shape(recipe, plan), recipe, plan, gpus);
    };
    double shortest = 1e300, leanest = 1e300;
    // All ways to cut, by which places end a stage.
    for (unsigned cuts = 0; cuts < 1u << (layers - 1); ++cuts) {
      if (std::popcount(cuts) != stages - 1) continue;
      std::vector<ChainRange> ranges(1);
      for (int place = 1; place <= layers; ++place) {
        ranges.back().last = place;
        if (place < layers && (cuts >> (place - 1) & 1) != 0) ranges.push_back({place, place});
      }
      shortest = std::min(shortest, longest(ranges));
      leanest = std::min(leanest, fullest(ranges));
    }
    CHECK(longest(split(LayerSplit::by_time)) == shortest);
    CHECK(fullest(split(LayerSplit::by_memory)) == leanest);
  }
}

TEST_CASE("by speed no sample moved from one replica to another makes the longest shorter") {
  const std::string text = fmt::format(
      R"({}, "cluster": {{ "nodes": 1, "node": {{ "preset": "pcie-4x3090-10gbe",
        "other_gpus": [{{ "at": [1], "gpu": "rtx-2080-ti" }}, {{ "at": 3, "gpu": "t4" }}] }} }},
        "parallelism": {{ "data_parallel": {{ "batch_split": "by_speed" }} }})",
      kResnet);
  for (const int each : {1, 2, 3, 5, 7, 16, 33}) {
    CAPTURE(each);
    const std::vector<std::string> batch = {fmt::format("training.global_batch={}", 4 * each)};
    const simulate::Job job = simulate::job_of(scenario_of(text, batch));
    const auto step = simulate_step(job);
    const std::vector<std::int64_t>& sizes = step->plan.batch_sizes;
    const auto size = [&](int rank) {
      const auto role = step->plan.cast.role_of[static_cast<std::size_t>(rank)];
      return sizes[static_cast<std::size_t>(step->plan.cast.roles[role].batch)];
    };
    CHECK(size(0) + size(1) + size(2) + size(3) == 4 * each);
    CHECK(std::abs(size(0) - size(2)) <= 1);
    CHECK(size(0) >= size(1));
    CHECK(size(1) >= size(3));
    const auto kernels = [&](int rank, std::int64_t samples) {
      const int kind = gpu_kind_of(job.cluster, 0, rank);
      const auto compute =
          fitted_compute_cost(*job.profile_of(kind),
                              peaks(*gpu_kinds(job.cluster)[static_cast<std::size_t>(kind)].gpu));
      const NetworkWork work = *work_of(job, samples);
      double sum = 0;
      for (const int layer : work.chain)
        for (const auto* items : {&work.kinds[static_cast<std::size_t>(layer)].forward,
                                  &work.kinds[static_cast<std::size_t>(layer)].backward})
          for (const WorkItem& item : *items)
            if (const auto* named = std::get_if<NamedKernel>(&item))
              sum += compute->time(named->kernel).time.count();
      return sum;
    };
    int longest = 0;
    for (int rank = 1; rank < 4; ++rank)
      if (kernels(rank, size(rank)) > kernels(longest, size(longest))) longest = rank;
    for (int rank = 0; rank < 4; ++rank)
      if (rank != longest && size(longest) > 1)
        CHECK(kernels(rank, size(rank) + 1) >= kernels(longest, size(longest)));
    std::vector<std::string> equal = batch;
    equal.push_back("parallelism.data_parallel.batch_split=equal");
    const auto even = simulate_step(simulate::job_of(scenario_of(text, equal)));
    if (each > 2) CHECK(step->trace().end < even->trace().end);
  }
}

TEST_CASE("a list of equal micro-batches is no list, and an uneven one does the same work") {
  const std::string text = fmt::format("{}, {}", kResnet, kTwoCards);
  const auto report_of = [&](const std::string& split) {
    return simulate::simulate(scenario_of(text, {"parallelism.data_parallel.batch_split=" + split}))
        .report;
  };
  const StepReport equal = report_of("equal"), same = report_of("[32, 32]"),
                   uneven = report_of("[48, 16]"), turned = report_of("[16, 48]");
  CHECK(same.step_time == equal.step_time);
  CHECK(same.breakdown == equal.breakdown);
  CHECK(same.memory.peak == equal.memory.peak);
  CHECK(uneven.model_flops == about(equal.model_flops).within(1e-12));
  CHECK(*uneven.step_time < *equal.step_time);
  CHECK(*turned.step_time > *equal.step_time);
  REQUIRE(uneven.gpu_shares.size() == 2);
  CHECK(uneven.gpu_shares[0].name == "rtx-3090");
  CHECK(uneven.gpu_shares[0].most_batch == 48);
  CHECK(uneven.gpu_shares[1].least_batch == 16);
  CHECK(uneven.gpu_shares[0].memory > uneven.gpu_shares[1].memory);
  // What stays of 48 images in a layer is as it is told for the rank that has them.
  CHECK(!turned.memory.activations.empty());
  std::int64_t modules = 0;
  for (const auto& module : turned.memory.activations)
    modules += module.bytes.count();
  CHECK(modules ==
        turned.memory.by_category[static_cast<std::size_t>(MemoryKind::activations)].count());
}

TEST_CASE("memory is judged by each GPU's own, and the fullest is told") {
  const std::string text = fmt::format("{}, {}", kResnet, kTwoCards);
  const StepReport report =
      simulate::simulate(scenario_of(text, {"training.global_batch=512"})).report;
  CHECK(!report.fits);
  CHECK(report.memory.peak_rank == 1);
  CHECK(report.memory.capacity == Bytes(std::int64_t{11018} << 20));
  REQUIRE(report.gpu_shares.size() == 2);
  CHECK(report.gpu_shares[0].memory <= report.gpu_shares[0].capacity);
  CHECK(report.gpu_shares[1].memory > report.gpu_shares[1].capacity);
  CHECK(simulate::simulate(scenario_of(text, {"training.global_batch=512",
                                              "parallelism.data_parallel.batch_split=[420, 92]"}))
            .report.fits);
  // 24 GiB hold more of what is theirs than 11, but have more left.
  const StepReport uneven =
      simulate::simulate(scenario_of(text, {"training.global_batch=128",
                                            "parallelism.data_parallel.batch_split=[120, 8]"}))
          .report;
  const auto share = [](Bytes held, Bytes capacity) {
    return static_cast<double>(held.count()) / static_cast<double>(capacity.count());
  };
  const double told = share(uneven.memory.peak, uneven.memory.capacity);
  for (const auto& gpu : uneven.gpu_shares)
    CHECK(share(gpu.memory, gpu.capacity) <= told);
  CHECK(uneven.memory.peak_rank == 0);
  CHECK(uneven.gpu_shares[0].capacity - uneven.gpu_shares[0].memory >
        uneven.gpu_shares[1].capacity - uneven.gpu_shares[1].memory);
}

TEST_CASE("a share of a peak that changes nothing is told of each kind of GPU") {
  const std::string text = fmt::format("{}, {}", kResnet, R"("cluster": { "nodes": 1, "node": {
    "preset": "pcie-2x3090", "other_gpus": [{ "at": 1, "gpu": "rtx-4090" }] } })");
  const auto told = [&](const std::vector<std::string>& sets) {
    std::string all;
    for (const std::string& warning : simulate::simulate(scenario_of(text, sets)).report.warnings)
      if (warning.find("changes nothing") != std::string::npos) all += warning;
    return all;
  };
  CHECK(told({"cluster.node.other_gpus.0.gpu.sustained.bf16=0.5"})
            .find("/cluster/node/other_gpus/0/gpu/sustained/bf16 changes nothing: the profile") ==
        0);
  CHECK(told({"cluster.node.gpu.sustained.bf16=0.5"}) == "");  // which has no profile
  CHECK(told({}) == "");
}

TEST_CASE("power and peaks are those of each GPU") {
  const std::string text = fmt::format("{}, {}", kResnet, kTwoCards);
  const scenario::Scenario scenario = scenario_of(
      text, {"training.samples=1000000", "cluster.node.gpu.power.busy=350W",
             "cluster.node.gpu.power.idle=30W", "cluster.node.other_gpus.0.gpu.power.busy=250W",
             "cluster.node.other_gpus.0.gpu.power.idle=20W"});
  const StepReport report = simulate::simulate(scenario).report;
  REQUIRE(report.energy);
  REQUIRE(report.energy->watts_by_gpu_kind.size() == 2);
  const double seconds = Seconds(*report.step_time).count();
  double watts = 0, peak = 0;
  for (const double own : report.energy->watts_by_gpu_kind)
    watts += own;
  for (const GpuKind& kind : gpu_kinds(scenario.cluster))
    peak += peak_of(*kind.gpu, Dtype::fp16).count();
  CHECK(report.energy->joules == about(watts * seconds));
  CHECK(report.mfu == about(report.model_flops / (seconds * peak)));
  // The card that waits draws less of what it can.
  const auto kinds = gpu_kinds(scenario.cluster);
  CHECK(report.energy->watts_by_gpu_kind[0] / kinds[0].gpu->busy_power.count() <
        report.energy->watts_by_gpu_kind[1] / kinds[1].gpu->busy_power.count());
}

TEST_CASE("a kind of GPUs that no rank uses changes nothing, whatever it lacks") {
  const auto report_of = [&](const char* cluster) {
    return simulate::simulate(
               scenario_of(fmt::format(R"({}, "cluster": {}, "parallelism": {{ "tp": 8 }})", kGpt,
                                       cluster)))
        .report;
  };
  const StepReport alone = report_of(R"({ "nodes": 1, "node": "dgx-a100-80gb" })");
  // A TPU has no fp16.
  const StepReport beside = report_of(R"({ "nodes": 1, "node": "dgx-a100-80gb",
    "other_nodes": [{ "node": "tpu-v5e-pod" }], "gpus_used": [8, 0] })");
  CHECK(beside.step_time == alone.step_time);
  CHECK(beside.mfu == alone.mfu);
  CHECK(beside.profile == alone.profile);
}

TEST_CASE("what runs again is counted alike in replicas of any size") {
  const std::string text = fmt::format(
      R"({}, "cluster": {{ "nodes": 2, "node": "dgx-a100-80gb" }}, "parallelism": {{ "tp": 8 }})",
      kGpt);
  const auto report_of = [&](const char* split, const char* layers) {
    return simulate::simulate(
               scenario_of(text, {"training.micro_batch=4", layers,
                                  std::string("parallelism.data_parallel.batch_split=") + split}))
        .report;
  };
  for (const char* const layers :
       {R"(training.recompute={"method":"block","layers":1})",
        R"(training.recompute={"method":"every","layers":2})", "training.recompute=full"}) {
    CAPTURE(layers);
    const StepReport equal = report_of("equal", layers), uneven = report_of("[5, 3]", layers);
    CHECK(uneven.hfu / uneven.mfu == about(equal.hfu / equal.mfu).within(1e-12));
  }
}

TEST_CASE("processors beside the GPUs have no part in the peak") {
  const scenario::Scenario scenario = scenario_of(fmt::format(
      R"({}, "cluster": {{ "nodes": 1, "node": "dgx-a100-80gb",
        "other_nodes": [{{ "node": "dgx-1v-32gb" }}] }},
        "parallelism": {{ "data_parallel": {{ "kind": "parameter_server" }} }})",
      kGpt));
  const StepReport report = simulate::simulate(scenario).report;
  double peak = 0;
  for (const GpuKind& kind : gpu_kinds(scenario.cluster))
    peak += 8 * peak_of(*kind.gpu, Dtype::fp16).count();
  const double seconds = Seconds(*report.step_time).count();
  CHECK(report.mfu == about(report.model_flops / (seconds * peak)).within(1e-12));
}

TEST_CASE("shards that are not said are asked for before batches are split") {
  test::Folder folder("mixed");
  const std::string path = folder.write(
      "s.json", fmt::format(R"({{"version": 1, "name": "mixed", {}, "cluster": {{ "nodes": 2,
        "node": "dgx-a100-80gb" }}, "parallelism": {{ "tp": 8, "data_parallel": {{
        "kind": "hsdp", "batch_split": "by_speed" }} }} }})",
                            kGpt));
  CHECK(test::problems(path).find("/parallelism/data_parallel/shard_size") != std::string::npos);
}
