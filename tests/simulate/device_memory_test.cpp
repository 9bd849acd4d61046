// What a device holds beside what its program allocates, and the verdict that follows.
#include "sim/simulate/device_memory.h"

#include <doctest/doctest.h>

#include <algorithm>

#include "sim/collective/nccl_buffers.h"
#include "sim/simulate/report/summarize.h"
#include "tests/simulate/toy.h"
#include "tests/support/networks.h"
#include "tests/support/rooms.h"

using namespace trainyard;

namespace {

constexpr std::int64_t kMiB = 1 << 20;

Job job(const ParallelDegrees& degrees, int gpus_per_server = 8) {
  Transformer network = gpt(8, 512, 8, 8192);
  Job result;
  result.network = network;
  const int gpus = std::min(gpus_per_server, degrees.world_size());
  result.cluster = toy::cluster(gpus, degrees.world_size() / gpus);
  result.recipe.global_batch = 8 * degrees.data;
  result.recipe.micro_batch.sequence_length = 256;
  result.recipe.memory = {.context = Bytes(512 * kMiB),
                          .fragmentation = 0.02,
                          .least_fragmentation = 0.02,
                          .blas_workspace = Bytes(32 * kMiB),
                          .nccl_buffers = true};
  result.plan.degrees = degrees;
  return result;
}

std::int64_t sum(const std::array<std::int64_t, kMemoryKinds>& bytes) {
  std::int64_t all = 0;
  for (const std::int64_t each : bytes)
    all += each;
  return all;
}

std::int64_t of(const MemoryReport& memory, MemoryKind category) {
  return memory.by_category[static_cast<std::size_t>(category)].count();
}

// The NCCL buffers of rank 0's class.
Bytes buffers_of_rank_0(const Job& job) {
  const std::unique_ptr<Step> step = simulate_step(job, {.unfold = false, .run = false});
  return step->devices[step->lowered.class_of_rank[0]].nccl_buffers;
}

}  // namespace

TEST_CASE("allocated, reserved and device add up to the byte") {
  DeviceMemory device;
  device.blas_workspace = Bytes(7);
  device.nccl_buffers = Bytes(100);
  device.context = Bytes(1000);
  device.fragmentation_ppm = 250'000;
  CHECK(device.allocated(Bytes(1000)) == Bytes(1007));
  CHECK(device.reserved(Bytes(1000)) == Bytes(1007 + 251));  // 251.75 rounded down
  CHECK(device.on_device(Bytes(1000)) == Bytes(1258 + 1100));
  device.pools = Bytes(400);
  CHECK(device.allocated(Bytes(1000)) == Bytes(1007));
  CHECK(device.reserved(Bytes(1000)) == Bytes(1407 + 351));  // 351.75 rounded down
}

TEST_CASE("an allocator that is short of room keeps as much as there is room for") {
  DeviceMemory device;
  device.context = Bytes(500);
  device.fragmentation_ppm = 100'000;
  device.least_fragmentation_ppm = 20'000;
  device.late = Bytes(300);
  device.lost = Bytes(50);
  const Bytes held(1000), required(1000 + 20 + 50 + 500), wanted(1000 + 100 + 300 + 500);
  CHECK(device.required(held) == required);
  CHECK(device.wanted(held) == wanted);
  CHECK(device.on_device(held) == wanted);  // no limit
  CHECK(device.waited_for(held) == Bytes(250));
  const auto with_room = [&](Bytes capacity) {
    DeviceMemory limited = device;
    limited.capacity = capacity;
    CHECK(limited.reserved(held) + device.context == limited.on_device(held));
    return std::pair(limited.on_device(held), limited.waited_for(held));
  };
  CHECK(with_room(wanted + Bytes(1)) == std::pair(wanted, Bytes(250)));
  CHECK(with_room(Bytes(1700)) == std::pair(Bytes(1700), Bytes(50)));  // late blocks go first
  CHECK(with_room(Bytes(1600)) == std::pair(Bytes(1600), Bytes(0)));
  CHECK(with_room(required) == std::pair(required, Bytes(0)));
  CHECK(with_room(required - Bytes(1)) == std::pair(required, Bytes(0)));  // does not fit
}

TEST_CASE("a step that fits by what its allocator gives back is tight") {
  Job each = job({});
  each.recipe.memory.least_fragmentation = 0.02;
  each.recipe.memory.fragmentation = 0.1;
  const auto report_with = [&](Bytes capacity) {
    each.cluster.server.gpu.memory = capacity;
    return summarize(each, *simulate_step(each));
  };
  const MemoryReport roomy = report_with(Bytes(std::int64_t{80} << 30)).memory;
  CHECK(roomy.wanted == roomy.peak);
  const std::int64_t allocated = roomy.allocated.count();
  const Bytes required = roomy.wanted - Bytes(allocated / 10) + Bytes(allocated / 50);
  for (const auto& [capacity, fits, is_tight] :
       {std::tuple(roomy.wanted, true, false), std::tuple(roomy.wanted - Bytes(1), true, true),
        std::tuple(required, true, true), std::tuple(required - Bytes(1), false, false)}) {
    const StepReport report = report_with(capacity);
    CHECK(report.memory.fits == fits);
    CHECK(report.memory.is_tight == is_tight);
    CHECK(report.has_room() == (fits && !is_tight));
    CHECK(report.memory.peak == std::max(required, std::min(capacity, roomy.wanted)));
    CHECK(report.memory.wanted == roomy.wanted);
    CHECK(report.memory.allocated == roomy.allocated);
  }
}

TEST_CASE("of ranks that are tight the one that wants most is told of") {
  Job each = job({.pipeline = 2});
  each.network = Transformer(gpt(8, 512, 8, 65536));  // the last stage holds its logits
  each.recipe.memory.least_fragmentation = 0;
  each.recipe.memory.fragmentation = 1;
  const std::unique_ptr<Step> roomy = simulate_step(each);
  std::vector<Bytes> wanted, required;
  for (std::size_t c = 0; c < roomy->devices.size(); ++c) {
    const Bytes held = roomy->trace().peaks[roomy->lowered.classes[c].actor].peak;
    wanted.push_back(roomy->devices[c].wanted(held));
    required.push_back(roomy->devices[c].required(held));
  }
  const auto most = std::max_element(wanted.begin(), wanted.end());
  const Bytes capacity = *std::max_element(required.begin(), required.end());
  const auto tight =
      std::count_if(wanted.begin(), wanted.end(), [&](Bytes bytes) { return bytes > capacity; });
  REQUIRE(tight == 2);
  REQUIRE(most != wanted.begin());  // the first of those that are full is not the one
  each.cluster.server.gpu.memory = capacity;
  const MemoryReport memory = summarize(each, *simulate_step(each)).memory;
  CHECK(memory.is_tight);
  CHECK(memory.wanted == *most);
  const auto c = static_cast<std::size_t>(most - wanted.begin());
  CHECK(memory.peak_rank == roomy->lowered.classes[c].representative);
}

// Gathered layers, reduce buffers and sharded gradients are not there when activations are most.
TEST_CASE("FSDP's streams keep their blocks, which no other strategy's do") {
  Job sharded = job({.tensor = 1, .data = 8, .pipeline = 1});
  sharded.recipe.memory = {};
  const MemoryReport replicated = summarize(sharded, *simulate_step(sharded)).memory;
  CHECK(replicated.reserved == replicated.allocated);
  sharded.plan.data_parallel.kind = "fsdp";
  const std::unique_ptr<Step> step = simulate_step(sharded);
  const MemoryReport memory = summarize(sharded, *step).memory;
  const engine::MemoryPeak& peak = step->trace().peaks[step->lowered.classes[0].actor];
  CHECK(peak.pooled > peak.peak);
  CHECK(memory.reserved - memory.allocated == peak.pooled - peak.peak);
  CHECK(of(memory, MemoryKind::fragmentation) == (peak.pooled - peak.peak).count());
}

TEST_CASE("the budget is the most that still fits") {
  for (const std::int64_t ppm : {0, 1, 20'000, 333'333, 1'000'000}) {
    for (const std::int64_t capacity : {std::int64_t{5000}, std::int64_t{123'456'789},
                                        std::int64_t{80} << 30, std::int64_t{1} << 50}) {
      DeviceMemory device;
      device.capacity = Bytes(capacity);
      device.blas_workspace = Bytes(7);
      device.nccl_buffers = Bytes(100);
      device.context = Bytes(1000);
      device.fragmentation_ppm = ppm;
      device.least_fragmentation_ppm = ppm / 2;
      CAPTURE(ppm);
      CAPTURE(capacity);
      CHECK(device.wanted(device.budget()) <= device.capacity);
      CHECK(device.wanted(device.budget() + Bytes(1)) > device.capacity);
    }
  }
  DeviceMemory device;
  CHECK(device.budget() == Bytes(0));  // no limit
  device.capacity = Bytes(10);
  device.context = Bytes(1000);
  CHECK(device.budget() == Bytes(1));  // not 0, which would be no limit
}

TEST_CASE("the report's three sums differ by the allowance and by nothing else") {
  const Job with = job({.tensor = 2, .data = 2, .pipeline = 2});
  Job without = with;
  without.recipe.memory = {};
  const MemoryReport device = summarize(with, *simulate_step(with)).memory;
  const MemoryReport plain = summarize(without, *simulate_step(without)).memory;
  CHECK(plain.allocated == plain.peak);
  CHECK(plain.reserved == plain.peak);
  CHECK(device.allocated == plain.allocated + Bytes(32 * kMiB));
  CHECK(device.reserved == device.allocated + Bytes(device.allocated.count() / 50));
  CHECK(of(device, MemoryKind::fragmentation) == device.allocated.count() / 50);
  CHECK(of(device, MemoryKind::context) == 512 * kMiB);
  CHECK(of(device, MemoryKind::workspace) == of(plain, MemoryKind::workspace) + 32 * kMiB);
  CHECK(device.peak == device.reserved + Bytes(512 * kMiB + of(device, MemoryKind::nccl_buffers)));
  for (const MemoryKind same :
       {MemoryKind::parameters, MemoryKind::gradients, MemoryKind::optimizer_state,
        MemoryKind::activations, MemoryKind::logits, MemoryKind::communication_buffers})
    CHECK(of(device, same) == of(plain, same));
}

TEST_CASE("categories sum to the level at every instant, and the largest level is the peak") {
  for (const ParallelDegrees& degrees : {ParallelDegrees{}, ParallelDegrees{.data = 4},
                                         ParallelDegrees{.tensor = 2, .pipeline = 4}}) {
    const Job each = job(degrees);
    const std::unique_ptr<Step> step = simulate_step(each);
    const StepReport report = summarize(each, *step);
    std::int64_t most = 0;
    for (const MemoryCurve& curve : timeline(*step, {.ranks = 64}).memory) {
      CHECK(curve.capacity == each.cluster.server.gpu.memory);
      for (const MemorySample& sample : curve.samples) {
        for (const std::int64_t bytes : sample.bytes)
          CHECK(bytes >= 0);
        most = std::max(most, sum(sample.bytes));
      }
      // The step ends with what it began with.
      const std::size_t c = step->lowered.class_of_rank[static_cast<std::size_t>(curve.rank)];
      const MemoryPeak& peak = step->trace().peaks[step->lowered.classes[c].actor];
      CHECK(peak.at_end == peak.resident);
      CHECK(Bytes(sum(curve.samples.back().bytes)) == step->devices[c].on_device(peak.resident));
    }
    CHECK(Bytes(most) == report.memory.peak);
    Bytes categories;
    for (const Bytes bytes : report.memory.by_category)
      categories = categories + bytes;
    CHECK(categories == report.memory.peak);
  }
}

namespace {

// What the programs of the stages hold all the time.
std::vector<Bytes> resident_by_stage(const Job& job) {
  const std::unique_ptr<Step> step = simulate_step(job, {.unfold = false, .run = false});
  std::vector<Bytes> bytes(static_cast<std::size_t>(job.plan.degrees.pipeline));
  for (const plan::Role& role : step->plan.cast.roles) {
    Bytes& stage = bytes[static_cast<std::size_t>(role.stage.value())];
    for (const engine::MemoryEffect& effect : role.program.resident)
      stage = stage + Bytes(effect.bytes);
  }
  return bytes;
}

}  // namespace

TEST_CASE("outputs that the trainer keeps lie on the last stage all the time") {
  Job each = job({.tensor = 2, .pipeline = 2});
  each.recipe.kernels.fusion = models::Fusion::eager;
  const std::vector<Bytes> none = resident_by_stage(each);
  const Bytes logits(256 * 8192 / 2 * 2);  // of a micro-batch, in 16 bits
  const auto kept = [&](int outputs) {
    each.recipe.memory.kept_outputs = outputs;
    return resident_by_stage(each);
  };
  for (const int outputs : {1, 2, 8, 9}) {
    CHECK(kept(outputs)[0] == none[0]);
    CHECK(kept(outputs)[1] == none[1] + std::min(outputs, 8) * logits);  // 8 micro-batches
  }
  // Each end of two copies of the network sees half of the micro-batches.
  Job both = job({.data = 1, .pipeline = 2});
  both.recipe.kernels.fusion = models::Fusion::eager;
  both.plan.pipeline.schedule = "chimera";
  const std::vector<Bytes> ends = resident_by_stage(both);
  both.recipe.memory.kept_outputs = 9;
  for (const std::size_t stage : {0, 1})
    CHECK(resident_by_stage(both)[stage] == ends[stage] + 4 * 2 * logits);
  // The loss has the latest of them for itself.
  each.recipe.kernels.fusion = models::Fusion::compiled;
  CHECK(kept(0)[1] == kept(1)[1]);
  CHECK(kept(2)[1] == kept(0)[1] + logits);
}

TEST_CASE("placeholders of gradients that are kept are one of each shape on each stage") {
  Job each = job({.tensor = 2, .pipeline = 2});
  const std::vector<Bytes> none = resident_by_stage(each);
  each.recipe.kernels.placeholders = models::Placeholders::dropped;
  CHECK(resident_by_stage(each) == none);
  each.recipe.kernels.placeholders = models::Placeholders::kept;
  const Bytes shapes(2 * (768 * 512 + 512 * 256 + 1024 * 512 + 512 * 1024));
  for (const std::size_t stage : {0, 1})
    CHECK(resident_by_stage(each)[stage] == none[stage] + shapes);
  each.recipe.forward_only = true;
  const std::vector<Bytes> forward = resident_by_stage(each);
  each.recipe.kernels.placeholders = models::Placeholders::none;
  CHECK(resident_by_stage(each) == forward);
}

TEST_CASE("what is live at the peak is named for a job that fits too") {
  const Job each = job({.data = 2});
  const MemoryReport memory = summarize(each, *simulate_step(each)).memory;
  CHECK(memory.fits);
  REQUIRE(memory.owners.size() > 4);
  for (std::size_t i = 1; i < memory.owners.size(); ++i)
    CHECK(memory.owners[i - 1].bytes >= memory.owners[i].bytes);
  const auto named = [&](MemoryKind category, std::string_view name) {
    return std::any_of(memory.owners.begin(), memory.owners.end(), [&](const auto& owner) {
      return owner.category == category && owner.name == name;
    });
  };
  CHECK(named(MemoryKind::context, "CUDA context"));
  CHECK(named(MemoryKind::nccl_buffers, "NCCL buffers"));
  CHECK(named(MemoryKind::optimizer_state, "optimizer state"));
}

// One byte less than the peak of the device is too little.
TEST_CASE("a job fits exactly while its peak on the device does") {
  for (const bool unfold : {false, true}) {
    Job each = job({.tensor = 2, .data = 2, .pipeline = 2});
    const StepOptions options{.unfold = unfold, .run = true};
    const MemoryReport roomy = summarize(each, *simulate_step(each, options)).memory;
    each.cluster.server.gpu.memory = roomy.peak;
    std::unique_ptr<Step> step = simulate_step(each, options);
    CHECK(std::holds_alternative<Trace>(step->outcome));
    CHECK(summarize(each, *step).fits);
    each.cluster.server.gpu.memory = roomy.peak - Bytes(1);
    step = simulate_step(each, options);
    REQUIRE(std::holds_alternative<OutOfMemory>(step->outcome));
    const StepReport report = summarize(each, *step);
    CHECK_FALSE(report.fits);
    CHECK_FALSE(report.step_time.has_value());
    CHECK(report.memory.peak == roomy.peak);
    CHECK(report.memory.peak_rank == roomy.peak_rank);
    CHECK(report.memory.peak_at == roomy.peak_at);
  }
}

// The ratio of GPipe's activations to 1F1B's on the first stage is m / min(p, m), and
// stretching a rank's kernels moves no peak.
TEST_CASE("peaks follow the order of the passes and not their times") {
  constexpr int kStages = 4, kMicrobatches = 8;
  const auto activations = [&](const char* schedule, double slowdown) {
    Job each = job({.pipeline = kStages});
    each.recipe.global_batch = kMicrobatches;
    each.plan.pipeline.schedule = schedule;
    if (slowdown != 1) each.stragglers = {{.rank = 2, .compute_slowdown = slowdown}};
    const std::unique_ptr<Step> step = simulate_step(each);
    const RankClass& first = step->lowered.classes[step->lowered.class_of_rank[0]];
    const MemoryPeak& peak = step->trace().peaks[first.actor];
    CHECK(peak.peak >= peak.resident);
    return peak.by_category[static_cast<std::size_t>(MemoryKind::activations)];
  };
  CHECK(activations("gpipe", 1) * kStages == activations("1f1b", 1) * kMicrobatches);
  for (const char* schedule : {"gpipe", "1f1b"})
    for (const double slowdown : {0.5, 1.5, 4.0})
      CHECK(activations(schedule, slowdown) == activations(schedule, 1));
}

TEST_CASE("an order made for a memory fits in all of it that a smaller one does") {
  for (const Recompute form : {Recompute::none, Recompute::selective, Recompute::full}) {
    CAPTURE(static_cast<int>(form));
    Job each = job({.pipeline = 4});
    each.recipe.micro_batch.sequence_length = 2048;
    each.recipe.recompute.form = form;
    each.plan.pipeline.schedule = "zb_auto";
    const auto memory_in = [&](Bytes capacity) {
      each.cluster.server.gpu.memory = capacity;
      return outline(each, *simulate_step(each, {.detail = Detail::outline})).memory;
    };
    const Bytes most = memory_in(Bytes(std::int64_t{1} << 40)).peak;
    bool has_fitted = false;
    int orders = 0;
    Bytes last;
    for (int share = 300; share <= 1000; share += 3) {
      CAPTURE(share);
      const MemoryReport memory = memory_in(Bytes(most.count() * share / 1000));
      CHECK((memory.fits || !has_fitted));
      has_fitted = has_fitted || memory.fits;
      orders += memory.fits && memory.peak != last ? 1 : 0;
      last = memory.peak;
    }
    CHECK(memory_in(most).fits);
    CHECK(orders > 3);
  }
}

// Without a profile a collective on NVSwitch has 24 channels.
TEST_CASE("a rank has the buffers of each group it is in, and of its neighbours in the pipeline") {
  const Bytes ring = nccl::ring(24);
  CHECK(buffers_of_rank_0(job({})) == Bytes(0));
  CHECK(buffers_of_rank_0(job({.tensor = 4})) == ring);
  CHECK(buffers_of_rank_0(job({.data = 8})) == ring);
  CHECK(buffers_of_rank_0(job({.tensor = 2, .data = 4})) == 2 * ring);
  // Stage 0 has one neighbour on its server, or one beyond it.
  CHECK(buffers_of_rank_0(job({.pipeline = 4})) == nccl::pairs(24, false, 1, 0));
  CHECK(buffers_of_rank_0(job({.tensor = 8, .pipeline = 4})) == ring + nccl::pairs(24, true, 0, 1));
  Job off = job({.tensor = 4});
  off.recipe.memory.nccl_buffers = false;
  CHECK(buffers_of_rank_0(off) == Bytes(0));
}

// Clipping and data parallelism on one stage: both ports join the same ranks.
TEST_CASE("ranks that are one group on two ports share its communicator") {
  Job clipped = job({.data = 8});
  clipped.plan.data_parallel.kind = "zero2";
  clipped.recipe.gradient_clipping = true;
  CHECK(buffers_of_rank_0(clipped) == nccl::ring(24));
}

TEST_CASE("experts exchange rows with all peers of their group") {
  Job experts = job({.data = 8});
  experts.network.change<Transformer>().moe = {.experts = 8, .top_k = 2, .ffn_hidden = 512};
  experts.plan.experts.ranks = 8;
  CHECK(buffers_of_rank_0(experts) == nccl::ring(24) + nccl::pairs(24, false, 7, 0));
}

// Beside fp32 sums of P gradients 2 P bytes at most: of all layers when the pass ends, where they
// are more than the activations that it gives back, and of the first few where they are less.
TEST_CASE("gradients of a pass come one layer after the other and go when it is over") {
  const auto beside_sums = [](Accumulation how, int microbatch) {
    Job one = job({});
    one.recipe.precision.compute = Dtype::bf16;
    one.recipe.precision.gradients = Dtype::fp32;
    one.recipe.accumulation = how;
    one.recipe.micro_batch.size = microbatch;
    one.recipe.global_batch = std::int64_t{2} * microbatch;
    one.recipe.micro_batch.sequence_length = 64;
    const StepReport report = summarize(one, *simulate_step(one));
    const std::int64_t beside = of(report.memory, MemoryKind::gradients) - 4 * report.parameters;
    return static_cast<double>(beside) / (2.0 * static_cast<double>(report.parameters));
  };
  CHECK(beside_sums(Accumulation::kernel, 1) == 0);
  CHECK(beside_sums(Accumulation::converted, 64) == 1);
  CHECK(beside_sums(Accumulation::after_pass, 1) == 1);
  CHECK(beside_sums(Accumulation::after_pass, 64) > 0);
  CHECK(beside_sums(Accumulation::after_pass, 64) < 0.5);
}
