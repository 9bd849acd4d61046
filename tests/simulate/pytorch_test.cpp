// A step as PyTorch runs it on one GPU: gradients that come and go, and a host that launches.
#include <doctest/doctest.h>

#include "sim/simulate/report/summarize.h"
#include "tests/simulate/toy.h"
#include "tests/support/networks.h"
#include "tests/support/rooms.h"

using namespace trainyard;

namespace {

Job job(Fusion fusion, int microbatches) {
  Transformer network = gpt(4, 256, 4, 512);
  network.dropout = false;
  Job result;
  result.network = network;
  result.cluster = toy::cluster(1, 1);
  result.recipe.global_batch = microbatches;
  result.recipe.micro_batch.sequence_length = 64;
  result.recipe.kernels.attention = AttentionKernel::fa2;
  result.recipe.kernels.fusion = fusion;
  result.plan.degrees = {1, 1, 1};
  return result;
}

std::int64_t resident_gradients(const Job& job) {
  std::int64_t bytes = 0;
  const std::unique_ptr<Step> step = simulate_step(job, {.unfold = false, .run = false});
  for (const MemoryEffect& effect : step->plan.cast.roles[0].program.resident) {
    if (effect.category == static_cast<std::uint8_t>(MemoryKind::gradients)) bytes += effect.bytes;
  }
  return bytes;
}

void allocates_and_gives_back(const Job& job, std::int64_t gradients) {
  const std::unique_ptr<Step> step = simulate_step(job);
  std::int64_t held = 0, given_back = 0;
  for (const MemoryEffect& effect : step->plan.cast.roles[0].program.effects) {
    if (effect.category != static_cast<std::uint8_t>(MemoryKind::gradients)) continue;
    (effect.bytes > 0 ? held : given_back) += effect.bytes;
  }
  CHECK(held == gradients);
  CHECK(given_back == -gradients);
}

std::int64_t kernels(const Job& job) {
  const std::unique_ptr<Step> step = simulate_step(job, {.unfold = false, .run = false});
  std::int64_t count = 0;
  const Program& program = step->plan.cast.roles[0].program;
  for (const auto& call : program.calls) {
    for (const Op& op : program.blocks[call.block].ops)
      count += op.launches;
  }
  return count;
}

// In layers that two ranks share.
std::int64_t collectives(const Step& step) {
  std::int64_t count = 0;
  const Program& program = step.plan.cast.roles[0].program;
  for (const auto& call : program.calls) {
    for (const Op& op : program.blocks[call.block].ops)
      count += op.kind == OpKind::collective &&
               op.stream == static_cast<std::uint8_t>(StreamKind::tensor);
  }
  return count;
}

}  // namespace

TEST_CASE("with one micro-batch gradients are allocated in the backward pass and all given back") {
  const std::int64_t parameters = parameter_count(job(Fusion::eager, 1).network, 64);
  CHECK(resident_gradients(job(Fusion::by_hand, 1)) == 2 * parameters);
  CHECK(resident_gradients(job(Fusion::eager, 2)) == 2 * parameters);
  CHECK(resident_gradients(job(Fusion::eager, 1)) == 0);

  allocates_and_gives_back(job(Fusion::eager, 1), 2 * parameters);
}

// Of routed experts, too, which other replicas may sum.
TEST_CASE("gradients of experts come and go, and are added up, as others are") {
  const auto with_experts = [](int microbatches) {
    Job result = job(Fusion::eager, microbatches);
    Transformer network = llama(4, 256, 4, 4, 512, 512);
    network.moe = {.experts = 4, .top_k = 2, .ffn_hidden = 128};
    result.network = network;
    return result;
  };
  const std::int64_t parameters = parameter_count(with_experts(1).network, 64);
  allocates_and_gives_back(with_experts(1), 2 * parameters);

  // A kernel for the sums of a layer reads what the pass has made and what there was of all.
  const std::int64_t of_layer =
      (parameters - 2 * 512 * 256 - 256) / 4;  // without both ends' matrices and the last norm
  const auto sums = [&](Accumulation how) {
    Job summed = with_experts(2);
    summed.recipe.accumulation = how;
    const std::unique_ptr<Step> planned = simulate_step(summed, {.unfold = false, .run = false});
    std::int64_t found = 0;
    for (const Kernel& kernel : planned->plan.cast.kernels)
      if (const auto* pass = std::get_if<MemoryBound>(&kernel))
        found += pass->read == Bytes(4 * of_layer) && pass->written == Bytes(2 * of_layer) ? 1 : 0;
    return found;
  };
  CHECK(sums(Accumulation::kernel) == 1);
  CHECK(sums(Accumulation::product) == 0);
}

// The optimizer's peak: weights 2, gradients 2 and their fp32 copy 4, states 12 bytes.
TEST_CASE("a network with few activations peaks at the optimizer's fp32 gradients") {
  const Job eager = job(Fusion::eager, 1);
  const StepReport report = summarize(eager, *simulate_step(eager));
  CHECK(report.memory.peak == Bytes(20 * parameter_count(eager.network, 64)));
}

TEST_CASE("a step with slow launches takes the host's time for its kernels") {
  Job slow = job(Fusion::eager, 1);
  slow.recipe.launch_time = std::chrono::milliseconds(1);
  const Duration end = std::get<Trace>(simulate_step(slow)->outcome).end;
  const Duration host = kernels(slow) * Duration(*slow.recipe.launch_time);
  CHECK(end > host);
  CHECK(end < host + Duration(std::chrono::milliseconds(1)));
  slow.recipe.launch_time = std::chrono::milliseconds(4);
  slow.cluster.server.host_launch_factor = 0.25;  // a host that is quicker than others
  CHECK(std::get<Trace>(simulate_step(slow)->outcome).end == end);
  slow.recipe.launch_time = Duration(0);
  CHECK(std::get<Trace>(simulate_step(slow)->outcome).end < host / 10);
  CHECK(kernels(job(Fusion::compiled, 1)) < kernels(slow));
}

TEST_CASE("a step with slow calls takes the host's time for the collectives of its layers") {
  Job quick = job(Fusion::eager, 2);
  quick.cluster = toy::cluster(1, 2);
  quick.plan.degrees = {2, 1, 1};
  quick.recipe.launch_time = Duration(0);
  const std::unique_ptr<Step> step = simulate_step(quick);
  const Duration end = std::get<Trace>(step->outcome).end;

  Job slow = quick;
  slow.recipe.collective_call.time = std::chrono::milliseconds(10);
  const Duration host = collectives(*step) * slow.recipe.collective_call.time.value();
  const Duration late = std::get<Trace>(simulate_step(slow)->outcome).end;
  CHECK(collectives(*step) >= 2 * 4 * 4);
  CHECK(late >= host);
  CHECK(late <= host + end);

  Job by_rank = quick;
  by_rank.recipe.collective_call.per_rank = std::chrono::milliseconds(5);
  CHECK(std::get<Trace>(simulate_step(by_rank)->outcome).end == late);
}

// DDP's buckets are called one by one, those of ZeRO together.
TEST_CASE("slow calls are those of gradients that all replicas reduce, not of shards") {
  const auto slowdown = [](const char* kind) {
    Job replicas = job(Fusion::eager, 2);
    replicas.cluster = toy::cluster(1, 2);
    replicas.plan.degrees = {1, 1, 2};
    replicas.plan.data_parallel.kind = kind;
    const Duration quick = std::get<Trace>(simulate_step(replicas)->outcome).end;
    replicas.recipe.collective_call.per_rank = std::chrono::milliseconds(10);
    return std::get<Trace>(simulate_step(replicas)->outcome).end - quick;
  };
  CHECK(slowdown("allreduce") > Duration(std::chrono::milliseconds(15)));
  CHECK(slowdown("zero1") == Duration(0));
}

TEST_CASE("with jitter all GPUs are as slow as the slowest that is expected of them") {
  Job even = job(Fusion::eager, 4);
  even.cluster = toy::cluster(1, 4);
  even.plan.degrees = {1, 1, 4};
  const auto end = [](const Job& of) { return std::get<Trace>(simulate_step(of)->outcome).end; };
  Job jittered = even;
  jittered.compute_jitter = 0.05;
  Job slow = even;
  for (int rank = 0; rank < 4; ++rank)
    slow.stragglers.push_back({rank, 1 + 0.05 * 1.0294});
  CHECK(end(jittered) == end(slow));
  CHECK(end(jittered) > end(even));
  CHECK(slowest_gpu(jittered).gpus == 4);
  jittered.cluster = toy::cluster(4, 1);
  CHECK(slowest_gpu(jittered).slowdown == slowest_gpu(slow).slowdown + 0.05 * 1.0294);

  // Replicas at their own pace wait for nobody, nor does one GPU.
  jittered.plan.data_parallel.kind = "parameter_server";
  jittered.plan.data_parallel.parameter_servers.updates = recipe::ServerUpdates::asynchronous;
  CHECK(slowest_gpu(jittered).gpus == 1);
  jittered.plan.degrees.tensor = 2;
  CHECK(slowest_gpu(jittered).gpus == 2);
  jittered.plan = {};
  CHECK(slowest_gpu(jittered).slowdown == 1);
}
