// An input pipeline in time: W workers that each take d for a batch, storage that takes r, a GPU
// that takes t for a step of m batches. In steady state a step takes max(t, m (r + d) / W, m r).
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>

#include "sim/plan/input/batches.h"
#include "sim/simulate/report/summarize.h"
#include "tests/simulate/toy.h"
#include "tests/support/networks.h"
#include "tests/support/rooms.h"

using namespace trainyard;

namespace {

constexpr Duration kNothing = std::chrono::microseconds(20);  // messages between processes
constexpr std::int64_t kSamples = 4;

Job job(int data, int pipeline = 1, int microbatches = 1) {
  Transformer network = gpt(8, 512, 8, 8192);
  network.tied_embeddings = false;
  Job result;
  result.network = network;
  result.cluster = toy::cluster(4, std::max(1, data * pipeline / 4));
  result.cluster.gpus_used.assign(static_cast<std::size_t>(result.cluster.servers),
                                  std::min(4, data * pipeline));
  result.recipe.global_batch = kSamples * microbatches * data;
  result.recipe.micro_batch.size = kSamples;
  result.recipe.micro_batch.sequence_length = 256;
  result.recipe.launch_time = Duration(0);
  result.plan.degrees = {.data = data, .pipeline = pipeline};
  return result;
}

// Batches of one byte for each sample, which no core waits for.
InputPipeline instant(int workers) {
  InputPipeline input;
  input.workers = workers;
  input.prepared_sample = Bytes(1);
  return input;
}

Duration step_time(const Job& one, const StepOptions& options = {}) {
  return simulate_step(one, options)->window.step();
}

Duration step_time(Job one, const InputPipeline& input, const StepOptions& options = {}) {
  one.recipe.input = input;
  return step_time(one, options);
}

void check_about(Duration found, Duration expected) {
  CAPTURE(found.count());
  CAPTURE(expected.count());
  CHECK(std::chrono::abs(found - expected) <= kNothing);
}

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

// Of one sample, so that a batch takes `share` of a step.
Duration of_step(Duration step, double share) {
  return to_duration(Seconds(step) * (share / kSamples));
}

}  // namespace

TEST_CASE("input that takes no time changes no step") {
  for (const char* kind : {"allreduce", "zero1", "zero2", "zero3", "fsdp"})
    for (const int microbatches : {1, 3}) {
      CAPTURE(kind);
      Job one = job(4, 1, microbatches);
      one.plan.data_parallel.kind = kind;
      check_about(step_time(one, instant(2)), step_time(one));
    }
  for (const char* schedule : {"1f1b", "gpipe", "zb_h1"}) {
    CAPTURE(schedule);
    Job one = job(2, 4, 8);
    one.plan.pipeline.schedule = schedule;
    check_about(step_time(one, instant(4)), step_time(one));
  }
}

TEST_CASE("a step takes as long as the slower of GPU and workers, whatever is prefetched") {
  for (const Fidelity fidelity : {Fidelity::closed_form, Fidelity::flow})
    for (const int workers : {1, 3, 8})
      for (const double share : {0.5, 0.9, 1.5, 6.0, 20.0})
        for (const int prefetch : {1, 2, 4}) {
          CAPTURE(workers);
          CAPTURE(share);
          CAPTURE(prefetch);
          Job one = job(2);
          one.fidelity = fidelity;
          const Duration gpu = step_time(one, instant(workers));
          InputPipeline input = instant(workers);
          input.prefetch = prefetch;
          input.sample_cpu_time = of_step(gpu, share);
          input.copy_ahead = prefetch == 4;
          check_about(step_time(one, input),
                      std::max(gpu, to_duration(Seconds(gpu) * (share / workers))));
        }
}

TEST_CASE("a worker waits for storage, which gives its batches one after the other") {
  for (const double read : {0.2, 0.7, 1.8})
    for (const double prepare : {0.3, 3.0})
      for (const int workers : {1, 2, 5}) {
        CAPTURE(read);
        CAPTURE(prepare);
        CAPTURE(workers);
        const Job one = job(4);
        const Duration gpu = step_time(one, instant(workers));
        InputPipeline input = instant(workers);
        input.sample_cpu_time = of_step(gpu, prepare);
        input.stored_sample = Bytes(1'000'000);
        input.ranks_of_storage = 4;
        input.storage_bandwidth = BytesPerSecond(4e6 / Seconds(of_step(gpu, read)).count());
        const double slowest = std::max({1.0, (read + prepare) / workers, read});
        check_about(step_time(one, input), to_duration(Seconds(gpu) * slowest));
        input.cached_share = 1;
        check_about(step_time(one, input),
                    to_duration(Seconds(gpu) * std::max(1.0, prepare / workers)));
      }
}

TEST_CASE("workers beyond the cores of their server gain nothing") {
  const Job one = job(4);
  const Duration gpu = step_time(one, instant(1));
  const auto with = [&](int workers) {
    InputPipeline input = instant(workers);
    input.sample_cpu_time = of_step(gpu, 8);
    input.ranks_of_server = 4;
    input.cores = 16;
    return step_time(one, input);
  };
  check_about(with(2), 4 * gpu);
  check_about(with(4), 2 * gpu);
  check_about(with(8), 2 * gpu);
}

TEST_CASE("a batch of the pass before is copied in its turn, or while the GPU computes") {
  const Job one = job(1);
  const Duration gpu = step_time(one, instant(2));
  InputPipeline input = instant(2);
  input.prepared_sample = Bytes(250'000);
  const Duration copy = to_duration(Bytes(kSamples * 250'000) / BytesPerSecond(25e9));
  REQUIRE(copy < gpu);
  check_about(step_time(one, input), gpu + copy);
  input.copy_ahead = true;
  check_about(step_time(one, input), gpu);

  const auto allocated = [&](bool ahead) {
    Job own = one;
    input.copy_ahead = ahead;
    own.recipe.input = input;
    return summarize(own, *simulate_step(own)).memory.allocated;
  };
  CHECK(allocated(true) - allocated(false) == Bytes(kSamples * 250'000));
}

TEST_CASE("what the GPU prepares itself it does before the forward pass") {
  const Job one = job(2, 1, 3);
  InputPipeline input = instant(3);
  const Duration gpu = step_time(one, input);
  input.sample_gpu_time = std::chrono::microseconds(50);
  check_about(step_time(one, input), gpu + 3 * kSamples * input.sample_gpu_time.value());
}

TEST_CASE("folded ranks and their workers take the time of all of them") {
  const Job one = job(8);
  InputPipeline input = instant(3);
  input.sample_cpu_time = of_step(step_time(one, input), 4);
  input.stored_sample = Bytes(1000);
  input.storage_bandwidth = BytesPerSecond(1e9);
  const Duration folded = step_time(one, input);
  CHECK(step_time(one, input, {.unfold = true}) == folded);
}

TEST_CASE("of as many batches as all workers have in turn each has prepared as many") {
  for (const int workers : {1, 2, 3, 8, 12})
    for (const int microbatches : {1, 2, 8, 9}) {
      const Rounds rounds = input_rounds(instant(workers), microbatches);
      CHECK(rounds.measured * microbatches % workers == 0);
      CHECK(rounds.count == 2 * rounds.measured);
    }
}

TEST_CASE("the report says what waits, and how many workers would do") {
  Job one = job(2);
  const Duration gpu = step_time(one, instant(1));
  InputPipeline input = instant(2);
  input.sample_cpu_time = of_step(gpu, 5.5);
  one.recipe.input = input;
  const StepReport report = summarize(one, *simulate_step(one));
  const Duration waits = report.breakdown[static_cast<std::size_t>(TimeCategory::input)];
  check_about(waits, to_duration(Seconds(gpu) * 1.75));
  REQUIRE(report.input);
  CHECK(!report.input->keeps_up());
  CHECK(report.input->workers_needed() == 6);
  one.recipe.input->workers = 6;
  const StepReport enough = summarize(one, *simulate_step(one));
  CHECK(enough.input->keeps_up());
  one.recipe.input->ranks_of_server = 2;
  one.recipe.input->cores = 8;
  one.recipe.input->workers = 4;
  CHECK(!summarize(one, *simulate_step(one)).input->workers_needed());
}

TEST_CASE("storage is what limits only where workers are faster") {
  InputReport input{.workers = 1,
                    .workers_of_server = 4,
                    .most_workers = 64,
                    .prepare = std::chrono::milliseconds(900),
                    .prepare_alone = std::chrono::milliseconds(900),
                    .read = std::chrono::milliseconds(200),
                    .between = std::chrono::milliseconds(1100),
                    .taken = std::chrono::milliseconds(100)};
  CHECK(!input.storage_limits());
  CHECK(!input.workers_needed());
  CHECK(contains(describe(input), "1 worker gives a rank a batch every 1.10 s"));
  CHECK(contains(describe(input), "more would help until storage"));
  input.between = std::chrono::milliseconds(200);
  CHECK(input.storage_limits());
  CHECK(contains(describe(input), "workers would not"));
}

TEST_CASE("workers beyond the cores hide reading, if the cores are fast enough") {
  InputReport input{.workers = 5,
                    .cores = 40,
                    .workers_of_server = 40,
                    .most_workers = 64,
                    .prepare_alone = std::chrono::milliseconds(500),
                    .cores_at_best = std::chrono::milliseconds(100),
                    .read = std::chrono::milliseconds(60),
                    .taken = std::chrono::milliseconds(110)};
  CHECK(input.workers_needed() == 6);
  input.taken = std::chrono::milliseconds(100);
  CHECK(!input.workers_needed());
  input.taken = std::chrono::milliseconds(120);
  CHECK(input.workers_needed() == 5);
}

TEST_CASE("what workers prepare ahead is in the memory of their server") {
  Job one = job(2);
  InputPipeline input = instant(3);
  input.prefetch = 5;
  input.prepared_sample = Bytes(1000);
  one.recipe.input = input;
  const StepReport report = summarize(one, *simulate_step(one));
  REQUIRE(report.host_memory);
  CHECK(report.host_memory->server_memory == Bytes(2 * 3 * 5 * kSamples * 1000));
}
