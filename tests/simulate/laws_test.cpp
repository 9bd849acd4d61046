// Volumes, parameters, utilization and memory of whole steps against closed forms, for every
// schedule and every axis of parallelism.
#include <doctest/doctest.h>

#include <algorithm>

#include "sim/base/random.h"
#include "sim/recipe/rank_map.h"
#include "sim/schedule/chunk_placement.h"
#include "sim/simulate/report/summarize.h"
#include "tests/simulate/toy.h"
#include "tests/support/about.h"
#include "tests/support/networks.h"
#include "tests/support/rooms.h"

using namespace trainyard;

namespace {

constexpr int kLayers = 12;

Transformer network() {
  return llama(kLayers, 512, 8, 8, 1536, 4096);
}

Transformer mixture() {
  Transformer result = network();
  result.moe = {.experts = 8, .top_k = 2, .ffn_hidden = 256, .shared_ffn_hidden = 128};
  return result;
}

Job job(const Transformer& network, const ParallelDegrees& degrees, int microbatches) {
  Job result;
  result.network = network;
  result.cluster = toy::cluster(degrees.world_size(), 1);
  result.recipe.global_batch = 2 * std::int64_t{microbatches} * degrees.data;
  result.recipe.micro_batch.size = 2;
  result.recipe.micro_batch.sequence_length = 256;
  result.recipe.kernels.attention = AttentionKernel::fa2;
  result.plan.degrees = degrees;
  result.plan.tensor_parallel.sequence = degrees.tensor > 1;
  result.plan.experts.tensor = degrees.tensor;
  return result;
}

Job scheduled(const ScheduleEntry& entry, int stages, int microbatches) {
  Job result = job(network(), {.pipeline = stages}, microbatches);
  result.plan.pipeline.schedule = entry.name;
  result.plan.pipeline.chunks = entry.name == "interleaved_1f1b" ? 3 : entry.chunks;
  return result;
}

// What one rank of a stage sends on a connection in one step.
std::int64_t sent(const StepPlan& plan, int stage, std::string_view connection) {
  const Program& program = plan.cast.roles[static_cast<std::size_t>(stage)].program;
  std::int64_t bytes = 0;
  for (const Call& call : program.calls)
    for (const Op& op : program.blocks[call.block].ops)
      if (op.kind == OpKind::send && plan.cast.connection(op).name == connection)
        bytes += plan.cast.transfer(op).bytes.count();
  return bytes;
}

const MemoryPeak& peak_of_stage(const Step& step, int stage) {
  for (const RankClass& rank_class : step.lowered.classes)
    if (rank_class.stage == stage) return step.trace().peaks[rank_class.actor];
  FAIL("no rank of the stage");
  return step.trace().peaks[ActorId(0)];
}

std::int64_t activations(const MemoryPeak& peak) {
  return peak.by_category[static_cast<std::size_t>(MemoryKind::activations)];
}

}  // namespace

// b s h times the element, over the tensor- and the context-parallel ranks that hold parts of it.
TEST_CASE("a boundary carries b s h per micro-batch and direction, v times that interleaved") {
  constexpr int p = 4, m = 8;
  for (const auto& [tensor, context] : {std::pair{1, 1}, std::pair{2, 1}, std::pair{2, 2}}) {
    const std::int64_t message = 2 * 256 * 512 * 2 / (tensor * context);
    for (const int v : {1, 2, 3}) {
      Job piped = job(network(), {.tensor = tensor, .context = context, .pipeline = p}, m);
      if (v > 1) piped.plan.pipeline.schedule = "interleaved_1f1b";
      piped.plan.pipeline.chunks = v;
      const auto step = simulate_step(piped);
      for (int s = 0; s < p; ++s) {
        // The last stage sends back to the first between chunks.
        const int down = s + 1 < p ? v : v - 1, up = s > 0 ? v : v - 1;
        CHECK(sent(step->plan, s, "activations down") == down * m * message);
        CHECK(sent(step->plan, s, "gradients up") == up * m * message);
      }
      CHECK(summarize(piped, *step).pipeline_bytes.count() ==
            2 * (p * v - 1) * m * message * tensor * context);
    }
  }
}

// The turn of a V stays on its stage.
TEST_CASE("a V sends twice the bytes of 1F1B, two copies of the network as many") {
  constexpr int p = 4, m = 8;
  const auto bytes = [&](const char* name) {
    const Job piped = scheduled(*find_schedule(name), p, m);
    return summarize(piped, *simulate_step(piped)).pipeline_bytes;
  };
  for (const char* name : {"gpipe", "zb_h1", "zb_h2", "chimera", "dualpipe", "pipedream_2bw"}) {
    CAPTURE(name);
    CHECK(bytes(name) == bytes("1f1b"));
  }
  for (const char* name : {"zb_v", "v_half", "v_min", "dualpipe_v"}) {
    CAPTURE(name);
    CHECK(bytes(name) == 2 * bytes("1f1b"));
  }
}

// Whole on every tensor-parallel rank: norms, and the router.
TEST_CASE("parameters over all ranks are the network's, times their replicas") {
  const Transformer routed = mixture();
  const std::int64_t experts = kLayers * 8 * 3 * 512 * 256;
  const std::int64_t whole = kLayers * (2 * 512 + 8 * 512) + 512;
  for (const int tensor : {1, 2}) {
    for (const int context : {1, 2}) {
      for (const int data : {1, 4}) {
        for (const int pipeline : {1, 2, 4}) {
          for (const auto& [expert, divided] :
               {std::pair{1, 1}, std::pair{2, 1}, std::pair{4, 1}, std::pair{2, 2}}) {
            const ParallelDegrees degrees{tensor, context, data, pipeline};
            if (tensor * context * data % (expert * divided) != 0) continue;
            Job dealt = job(routed, degrees, 4);
            dealt.plan.experts.ranks = expert;
            dealt.plan.experts.tensor = divided;
            const RankGrids grids = rank_grids(dealt.plan);
            CHECK(grids.dense.world_size() == degrees.world_size());
            CHECK(grids.experts.world_size() == degrees.world_size());
            CHECK(expert * divided * dealt.plan.expert_replicas() * pipeline ==
                  degrees.world_size());
            const auto step = simulate_step(dealt, {.unfold = false, .run = false});
            std::int64_t held = 0;
            for (const Role& stage : step->plan.cast.roles)
              held += tensor * context * data * stage.parameters;
            CHECK(held ==
                  context * data * (parameter_count(routed, 256) - experts + (tensor - 1) * whole) +
                      dealt.plan.expert_replicas() * experts);
          }
        }
      }
    }
  }
}

TEST_CASE("MFU is model FLOPs over time and peak, HFU more if and only if something runs twice") {
  for (const bool fused : {true, false}) {
    for (const Recompute recompute : {Recompute::none, Recompute::selective, Recompute::full}) {
      for (const auto& degrees : {ParallelDegrees{1, 1, 1, 1}, ParallelDegrees{2, 1, 2, 2}}) {
        Job plain = job(mixture(), degrees, 4);
        plain.recipe.kernels.attention = fused ? AttentionKernel::fa2 : AttentionKernel::unfused;
        plain.recipe.recompute.form = recompute;
        const StepReport report = summarize(plain, *simulate_step(plain));
        const double seconds = Seconds(*report.step_time).count();
        CHECK(report.mfu ==
              about(report.model_flops / (seconds * degrees.world_size() * 1e14)).within(1e-12));
        CHECK(report.mfu > 0);
        CHECK(report.hfu <= 1);
        const bool twice =
            recompute == Recompute::full || (recompute == Recompute::selective && !fused);
        CHECK((report.hfu > report.mfu) == twice);
        CHECK((report.hfu == report.mfu) == !twice);
      }
    }
  }
}

TEST_CASE("a stage's peak is at least what it holds and its most micro-batches in flight") {
  constexpr int p = 4, m = 8;
  for (const ScheduleEntry& entry : schedules()) {
    CAPTURE(entry.name);
    const Job piped = scheduled(entry, p, m);
    const auto step = simulate_step(piped);
    const PipelineShape& shape = step->plan.shape;
    for (int s = 0; s < p; ++s) {
      // A layer of every part in flight; the embedding and the logits keep more.
      std::int64_t live = 0, most = 0;
      for (const CallInfo& call : step->plan.cast.roles[static_cast<std::size_t>(s)].calls) {
        const bool begins = call.kind == CallKind::forward || call.kind == CallKind::pair;
        const bool ends = call.kind == CallKind::backward ||
                          call.kind == CallKind::backward_weight || call.kind == CallKind::pair;
        const auto kept = [&](int part) {
          const bool second = directions(shape) == 2 && part == 1;
          const Seat seat{s, second ? 0 : part, static_cast<std::uint8_t>(second ? 1 : 0)};
          const ChainRange range =
              step->plan.layers[static_cast<std::size_t>(virtual_stage(shape, seat))];
          std::int64_t bytes = 0;
          for (int place = range.first; place < range.last; ++place)
            bytes += step->work
                         ->kinds[static_cast<std::size_t>(
                             step->work->chain[static_cast<std::size_t>(place)])]
                         .activations()
                         .count();
          return bytes;
        };
        if (begins) live += kept(call.chunk);
        most = std::max(most, live);
        if (ends) live -= kept(call.kind == CallKind::pair ? call.backward_chunk : call.chunk);
      }
      CHECK(live == 0);
      const MemoryPeak& peak = peak_of_stage(*step, s);
      CHECK(peak.peak >= peak.resident + Bytes(most));
      CHECK(peak.at_end == peak.resident);
    }
  }
}

TEST_CASE("GPipe holds m / min(p - s, m) times the activations of 1F1B on stage s") {
  for (const int p : {2, 4}) {
    for (const int m : {1, 3, 4, 9}) {
      const auto flushing = simulate_step(scheduled(*find_schedule("gpipe"), p, m));
      const auto alternating = simulate_step(scheduled(*find_schedule("1f1b"), p, m));
      for (int s = 0; s < p; ++s) {
        CAPTURE(p);
        CAPTURE(m);
        CAPTURE(s);
        CHECK(activations(peak_of_stage(*flushing, s)) * std::min(p - s, m) ==
              activations(peak_of_stage(*alternating, s)) * m);
      }
    }
  }
}

// Orders are fixed, so memory is too: with passes of any length, and with machines, links and
// single ranks of any speed.
TEST_CASE("the peak of every static schedule is the same at any speed") {
  constexpr int p = 4, m = 8;
  SplitMix64 random(59);
  int compared = 0;
  for (const ScheduleEntry& entry : schedules()) {
    if (!entry.times_from.empty()) continue;
    CAPTURE(entry.name);
    const Job piped = scheduled(entry, p, m);
    const auto step = simulate_step(piped);
    for (int trial = 0; trial < 4; ++trial) {
      Job other = piped;
      other.cluster.server.gpu.bf16 = FlopsPerSecond(1e12 * (1.0 + random.below(1000)));
      other.cluster.server.gpu.memory_bandwidth = BytesPerSecond(1e10 * (1.0 + random.below(500)));
      other.cluster.server.intra_bandwidth = BytesPerSecond(1e8 * (1.0 + random.below(10000)));
      other.cluster.server.intra_latency = std::chrono::microseconds(random.below(1000));
      other.stragglers = {{.rank = static_cast<int>(random.below(p)),
                           .compute_slowdown = 1 + 0.1 * static_cast<double>(random.below(30))}};
      const auto perturbed = simulate_step(other);
      CHECK(perturbed->trace().end != step->trace().end);
      for (int s = 0; s < p; ++s) {
        const MemoryPeak& before = peak_of_stage(*step, s);
        const MemoryPeak& after = peak_of_stage(*perturbed, s);
        CHECK(after.peak == before.peak);
        CHECK(after.by_category == before.by_category);
        ++compared;
      }
    }
  }
  CHECK(compared == 15 * 4 * p);
}

TEST_CASE("experts and divided sequences give back what they take") {
  Job dealt = job(mixture(), {.tensor = 2, .context = 2, .data = 2, .pipeline = 2}, 4);
  dealt.plan.experts.ranks = 4;
  dealt.plan.experts.tensor = 1;
  for (const Recompute recompute : {Recompute::none, Recompute::full}) {
    dealt.recipe.recompute.form = recompute;
    const auto step = simulate_step(dealt);
    for (const MemoryPeak& peak : step->trace().peaks) {
      CHECK(peak.at_end == peak.resident);
      CHECK(peak.peak > peak.resident);
    }
  }
}
