// Micro-batches that repeat what the ones before did are skipped, and what concerns one rank alone
// is gone through at once; nothing of the result tells.
#include <doctest/doctest.h>

#include <string>

#include "sim/base/random.h"
#include "sim/engine/peak_owners.h"
#include "sim/schedule/schedule.h"
#include "sim/simulate/step.h"
#include "tests/engine/same_outcome.h"
#include "tests/simulate/toy.h"
#include "tests/support/networks.h"
#include "tests/support/rooms.h"

using namespace trainyard;

namespace {

Job job_of(const std::string& schedule, int stages, int microbatches, int chunks) {
  Job job;
  job.network = gpt(16, 1024, 16, 32000);
  job.cluster = toy::cluster(4, stages);
  job.recipe.micro_batch.sequence_length = 512;
  job.plan.degrees = {.tensor = 2, .data = 2, .pipeline = stages};
  job.recipe.global_batch = 2 * microbatches;
  job.plan.pipeline.schedule = schedule;
  job.plan.pipeline.chunks = chunks;
  job.plan.data_parallel.bucket_size = Bytes(16 << 20);
  return job;
}

// What no schedule decides.
void vary(SplitMix64& random, Job& job) {
  job.plan.tensor_parallel.sequence = random.below(2) == 0;
  job.plan.pipeline.overlap_p2p = random.below(3) != 0;
  if (random.below(3) == 0)
    job.recipe.launch_time = (1 + static_cast<std::int64_t>(random.below(400))) * Duration(100'000);
  if (random.below(4) == 0) job.stragglers.push_back({1, 1.3});
  if (random.below(4) == 0) job.fidelity = recipe::Fidelity::flow;
  constexpr std::array<const char*, 4> kSharding = {"allreduce", "distributed_optimizer", "zero2",
                                                    "fsdp"};
  job.plan.data_parallel.kind = kSharding[random.below(kSharding.size())];
  if (random.below(2) == 0)
    job.recipe.memory.launches_ahead = 1 + static_cast<std::int64_t>(random.below(400));
  job.length.samples = 1000;  // energy needs the loads of kernels
  job.cluster.server.gpu.busy_power = Watts(400);
}

// How many events of the run were skipped.
std::uint64_t check_same(const Job& job, bool unfold = false) {
  const auto step = [&](bool quick) {
    return simulate_step(job, {.unfold = unfold,
                               .detail = Detail::summary,
                               .skip_periods = quick,
                               .solos = quick,
                               .blocks = quick ? StageBlocks::shared : StageBlocks::written_each});
  };
  const auto quick = step(true), whole = step(false);
  REQUIRE(quick->outcome.index() == whole->outcome.index());
  const Trace &a = quick->trace(), &b = whole->trace();
  CHECK(a.end == b.end);
  CHECK(a.ops == b.ops);
  CHECK(a.events == b.events);
  CHECK(b.skipped == 0);
  for (const ActorId actor : a.finished.ids()) {
    CHECK(a.finished[actor] == b.finished[actor]);
    const MemoryPeak &left = a.peaks[actor], &right = b.peaks[actor];
    testing::check_equal(left, right);
    const Program& program = *whole->lowered.machine.actors[actor].program;
    CHECK(testing::bytes(owners_of_peak(program, actor, left)) ==
          testing::bytes(owners_of_peak(program, actor, right)));
  }
  CHECK(quick->window.begin == whole->window.begin);
  CHECK(quick->window.end == whole->window.end);
  CHECK(quick->breakdowns == whole->breakdowns);
  CHECK(!whole->loads.empty());
  CHECK(quick->loads == whole->loads);
  for (std::size_t c = 0; c < whole->devices.size(); ++c)
    CHECK(quick->devices[c].late == whole->devices[c].late);
  return a.skipped;
}

}  // namespace

TEST_CASE("skipping micro-batches changes no integer of a step, whatever the schedule") {
  SplitMix64 random(7);
  for (const ScheduleEntry& entry : schedules()) {
    std::uint64_t skipped = 0;
    for (int round = 0; round < 24; ++round) {
      const int stages = 1 << random.below(4);
      constexpr std::array<int, 8> kMicrobatches = {1, 2, 3, 5, 8, 24, 64, 160};
      const int microbatches = kMicrobatches[random.below(kMicrobatches.size())];
      const int chunks = entry.chunks > 1 || random.below(2) == 0 ? entry.chunks : 2;
      if (entry.unsupported(shape_of(entry, stages, microbatches, chunks))) continue;
      Job job = job_of(std::string(entry.name), stages, microbatches, chunks);
      vary(random, job);
      CAPTURE(entry.name);
      CAPTURE(stages);
      CAPTURE(microbatches);
      skipped += check_same(job, random.below(4) == 0);
    }
    CAPTURE(entry.name);
    CHECK(skipped > 0);
  }
}

TEST_CASE("the events of a step grow with its micro-batches only if each is simulated") {
  for (const char* schedule : {"1f1b", "interleaved_1f1b", "zb_h1"}) {
    const Job job = job_of(schedule, 4, 4096, schedule == std::string("interleaved_1f1b") ? 2 : 1);
    const auto step = simulate_step(job, {.detail = Detail::summary});
    CAPTURE(schedule);
    CHECK(step->trace().events - step->trace().skipped < step->trace().events / 50);
  }
}
