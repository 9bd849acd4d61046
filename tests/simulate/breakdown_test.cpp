// Every picosecond of a step has one category, decided from the trace.
#include <doctest/doctest.h>

#include "sim/simulate/report/summarize.h"
#include "tests/simulate/gpt_job.h"
#include "tests/support/about.h"

using namespace trainyard;

namespace {

Duration part(const Breakdown& breakdown, TimeCategory category) {
  return breakdown[static_cast<std::size_t>(category)];
}

StepReport report_of(const Job& job) {
  return summarize(job, *simulate_step(job));
}

}  // namespace

TEST_CASE("the breakdown of every rank sums to the step") {
  for (const auto& [tensor, data, pipeline] :
       {std::array{1, 1, 1}, std::array{4, 1, 1}, std::array{1, 4, 1}, std::array{1, 1, 4},
        std::array{2, 2, 2}}) {
    const StepReport report = report_of(gpt_job(tensor, data, pipeline));
    Duration sum{};
    for (const Duration time : report.breakdown)
      sum += time;
    CHECK(sum == *report.step_time);
    for (const auto& rank : report.ranks) {
      Duration rank_sum{};
      for (const Duration time : rank.breakdown)
        rank_sum += time;
      CHECK(rank_sum == *report.step_time);
    }
  }
}

TEST_CASE("a single GPU without launch time computes all the time") {
  const StepReport report = report_of(gpt_job(1, 1, 1));
  CHECK(part(report.breakdown, TimeCategory::compute) +
            part(report.breakdown, TimeCategory::optimizer) ==
        *report.step_time);
  CHECK(report.bubble_fraction == 0);
}

TEST_CASE("each kind of parallelism exposes its own communication and no other") {
  const StepReport tensor = report_of(gpt_job(4, 1, 1));
  CHECK(part(tensor.breakdown, TimeCategory::exposed_tp) > Duration(0));
  CHECK(part(tensor.breakdown, TimeCategory::exposed_dp) == Duration(0));
  CHECK(part(tensor.breakdown, TimeCategory::exposed_pp) == Duration(0));
  Job divided = gpt_job(1, 4, 1);
  divided.recipe.kernels.attention = AttentionKernel::fa2;
  divided.recipe.global_batch = 4;
  divided.plan.degrees = {.context = 4};
  const StepReport context = report_of(divided);
  CHECK(part(context.breakdown, TimeCategory::exposed_cp) > Duration(0));
  CHECK(part(context.breakdown, TimeCategory::exposed_tp) == Duration(0));
  // Its ranks hold the same parameters: their gradients are summed.
  CHECK(part(context.breakdown, TimeCategory::exposed_dp) > Duration(0));
  CHECK(part(tensor.breakdown, TimeCategory::exposed_cp) == Duration(0));
  Job routed = gpt_job(1, 4, 1);
  routed.network.change<Transformer>().biases = false;
  routed.network.change<Transformer>().moe = {.experts = 8, .top_k = 2, .ffn_hidden = 512};
  routed.plan.experts.ranks = 4;
  const StepReport experts = report_of(routed);
  CHECK(part(experts.breakdown, TimeCategory::exposed_ep) > Duration(0));
  CHECK(part(experts.breakdown, TimeCategory::exposed_cp) == Duration(0));
  const StepReport data = report_of(gpt_job(1, 4, 1));
  CHECK(part(data.breakdown, TimeCategory::exposed_tp) == Duration(0));
  CHECK(part(data.breakdown, TimeCategory::exposed_dp) > Duration(0));
  const StepReport pipeline = report_of(gpt_job(1, 1, 4));
  CHECK(part(pipeline.breakdown, TimeCategory::bubble) > Duration(0));
  CHECK(part(pipeline.breakdown, TimeCategory::exposed_dp) == Duration(0));
}

// The first transfer of a layer gathers activations and stands behind that of the parameters.
TEST_CASE("ranks that are all alike wait for no rank, whatever their transfers wait for") {
  Job sharded = gpt_job(2, 4, 1);
  sharded.network = llama(4, 4096, 32, 8, 14336, 128256);
  sharded.plan.tensor_parallel.sequence = true;
  sharded.plan.data_parallel.kind = "zero3";
  sharded.cluster = toy::cluster(2, 4);
  sharded.cluster.server.nic_bandwidth = BytesPerSecond(5e9);
  const auto step = simulate_step(sharded);
  CHECK(step->lowered.classes.size() == 1);
  const StepReport report = summarize(sharded, *step);
  CHECK(part(report.breakdown, TimeCategory::exposed_dp) > Duration(0));
  CHECK(part(report.breakdown, TimeCategory::bubble) == Duration(0));
}

// What is hidden and what is exposed of the all-reduces is all there is of them.
TEST_CASE("without overlap the whole all-reduce is exposed") {
  Job slow = gpt_job(1, 4, 1);
  slow.plan.data_parallel.overlap_backward = false;
  const auto step = simulate_step(slow);
  Duration total{};
  for (const Span& span : step->trace().spans) {
    const Program& program = step->plan.cast.roles[0].program;
    const Op& op = program.op(span.call, span.op);
    if (op.kind == OpKind::collective) total += span.end - span.active;
  }
  const StepReport report = summarize(slow, *step);
  CHECK(part(report.breakdown, TimeCategory::exposed_dp) == total);
  CHECK(*report_of(gpt_job(1, 4, 1)).step_time < *report.step_time);
}

TEST_CASE("a slow host is seen as host time") {
  Job launched = gpt_job(1, 1, 1);
  Profile profile;
  profile.name = "slow host";
  profile.launch = Seconds(50e-6);
  launched.prices = {{profile, ""}};
  const StepReport report = report_of(launched);
  CHECK(part(report.breakdown, TimeCategory::host) > Duration(0));
  Duration sum{};
  for (const Duration time : report.breakdown)
    sum += time;
  CHECK(sum == *report.step_time);
}

TEST_CASE("MFU is below one, and HFU exceeds it by what recomputation executes") {
  Job plain = gpt_job(1, 1, 1);
  const StepReport without = report_of(plain);
  CHECK(without.mfu > 0);
  CHECK(without.mfu <= 1);
  CHECK(without.hfu == without.mfu);
  plain.recipe.recompute.form = Recompute::full;
  const StepReport full = report_of(plain);
  CHECK(full.hfu > full.mfu);
  CHECK(full.hfu <= 1);
  CHECK(full.model_flops == without.model_flops);
}

TEST_CASE("a GPU that is faster than the others has a peak as much higher") {
  Job even = gpt_job(1, 2, 1);
  const StepReport as_they_are = report_of(even);
  even.stragglers = {{0, 0.25}, {1, 0.25}};
  const StepReport fast = report_of(even);
  CHECK(fast.mfu > 0);
  CHECK(fast.mfu <= as_they_are.mfu * (1 + 1e-9));
  even.stragglers = {{0, 4.0}, {1, 4.0}};
  const StepReport slow = report_of(even);
  CHECK(slow.mfu < as_they_are.mfu / 2);
}

// Half of the square of attention is masked, in three passes: 6 B s^2 l h.
TEST_CASE("model FLOPs leave out what the mask does, the other convention counts it") {
  const Job plain = gpt_job(1, 1, 1);
  const Transformer network = gpt(4, 512, 8, 8192);
  const std::int64_t s = plain.recipe.micro_batch.sequence_length;
  const std::int64_t masked =
      6 * plain.recipe.global_batch * s * s * network.layers * network.heads * network.head_size;
  const StepReport report = report_of(plain);
  CHECK(report.full_square_flops - report.model_flops == static_cast<double>(masked));
  CHECK(report.full_square_mfu / report.mfu ==
        about(report.full_square_flops / report.model_flops));
}

// 8 samples a step: 1001 samples are 126 steps, the last one not full.
TEST_CASE("a training is as many steps as its samples take, and its energy between idle and busy") {
  Job plain = gpt_job(2, 2, 1);
  CHECK(!report_of(plain).training);
  plain.length = {.samples = 1001, .gpu_hour = 2.5, .own = {}};
  plain.cluster.server.gpu.idle_power = Watts(100);
  plain.cluster.server.gpu.busy_power = Watts(400);
  const StepReport report = report_of(plain);
  REQUIRE(report.training);
  const TrainingTotal& total = *report.training;
  CHECK(total.steps == 126);
  CHECK(total.tokens == 1001 * 256);
  const double hours = 126 * Seconds(*report.step_time).count() / 3600;
  CHECK(total.gpu_hours == about(4 * hours).within(1e-12));
  CHECK(total.days == about(hours / 24).within(1e-12));
  CHECK(*total.dollars == about(10 * hours).within(1e-12));
  const double idle = report.bubble_fraction;
  CHECK(idle > 0);
  CHECK(*total.kilowatt_hours == about(4 * hours * (0.1 * idle + 0.4 * (1 - idle))).within(1e-12));
  plain.cluster.server.gpu.busy_power = Watts(0);
  CHECK(!report_of(plain).training->kilowatt_hours);
}

TEST_CASE("what the model multiplies does not depend on memory") {
  Job big = gpt_job(1, 1, 1);
  const StepReport fits = report_of(big);
  big.cluster.server.gpu.memory = Bytes(100 << 20);
  const StepReport report = report_of(big);
  CHECK(!report.fits);
  CHECK(report.model_flops == fits.model_flops);
  CHECK(report.model_flops > 0);
  CHECK(report.full_square_flops == fits.full_square_flops);
}

TEST_CASE("a job that does not fit says so and keeps its peak and owners") {
  Job big = gpt_job(1, 1, 1);
  big.cluster.server.gpu.memory = Bytes(100 << 20);
  const StepReport report = report_of(big);
  CHECK_FALSE(report.fits);
  CHECK_FALSE(report.step_time.has_value());
  CHECK(report.memory.peak > report.memory.capacity);
  CHECK(!report.memory.owners.empty());
  Bytes sum{};
  for (const Bytes bytes : report.memory.by_category)
    sum = sum + bytes;
  CHECK(sum == report.memory.peak);
}

TEST_CASE("activations at the peak by module sum to their category") {
  for (const int pipeline : {1, 4}) {
    for (const Recompute recompute : {Recompute::none, Recompute::full}) {
      Job some = gpt_job(1, 1, pipeline);
      some.recipe.recompute.form = recompute;
      if (recompute == Recompute::full)
        some.recipe.recompute.layers = {RecomputeLayers::Method::every, 1};
      const MemoryReport memory = report_of(some).memory;
      Bytes sum{};
      for (const MemoryReport::ModuleBytes& part : memory.activations) {
        CHECK(part.bytes > Bytes(0));
        sum = sum + part.bytes;
      }
      CHECK(sum == memory.by_category[static_cast<std::size_t>(MemoryKind::activations)]);
      // Recomputed layers keep their inputs; beside them there are embedding and loss.
      if (recompute == Recompute::none) CHECK(memory.activations.size() >= 6);
    }
  }
}
