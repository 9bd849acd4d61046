// A network whose every pass takes a given time, costs that say so, and a step of it through plan,
// lowering and engine: what closed forms are tested on.
#pragma once

#include <cstdint>
#include <memory>

#include "sim/engine/engine.h"
#include "sim/lower/lower.h"
#include "sim/plan/step_plan.h"
#include "tests/support/cast.h"
#include "tests/support/rooms.h"

namespace toy {

using namespace trainyard;

// Times in nanoseconds. Layers hold one byte of activations each.
struct Times {
  std::int64_t forward = 1, backward = 2, hop = 0;
  std::int64_t weight = 0;  // of backward: the part that may be deferred
};

// A kernel's bytes are its nanoseconds.
class Compute final : public ComputeCost {
 public:
  Estimate time(const Kernel& kernel) const override {
    return {Seconds(static_cast<double>(memory_traffic(kernel).count()) * 1e-9), Basis::analytic};
  }
};

// Messages take `hop`; collectives a nanosecond a byte.
class Messages final : public MessageCost {
 public:
  explicit Messages(std::int64_t hop) : hop_(hop) {}
  MessageTerms collective(CollectiveKind, Bytes bytes, const GroupShape&) const override {
    MessageTerms terms;
    terms.latency = Seconds(static_cast<double>(bytes.count()) * 1e-9);
    return terms;
  }
  MessageTerms point_to_point(Bytes, const GroupShape&) const override {
    MessageTerms terms;
    terms.latency = Seconds(static_cast<double>(hop_) * 1e-9);
    return terms;
  }

 private:
  std::int64_t hop_;
};

inline NamedKernel kernel(std::int64_t nanoseconds) {
  return {"pass", MemoryBound{MemoryOp::elementwise, Bytes(nanoseconds), Bytes(0)}};
}

// `layers` equal layers.
inline NetworkWork network(int layers, const Times& times) {
  NetworkWork work;
  LayerWork layer;
  layer.name = "toy";
  layer.forward = {kernel(times.forward)};
  layer.backward = {kernel(times.backward - times.weight)};
  if (times.weight > 0) {
    NamedKernel deferred = kernel(times.weight);
    deferred.weight_gradient = true;
    layer.backward.push_back(deferred);
  }
  layer.kept.add(Module::features, Bytes(1));
  layer.output = Bytes(1);
  layer.forward_model_flops = Flops(1);
  work.kinds = {layer};
  work.chain.assign(static_cast<std::size_t>(layers), 0);
  work.divisible.assign(static_cast<std::size_t>(layers), true);
  return work;
}

// A network with one layer per virtual stage, layer k taking forward[k] and backward[k].
inline NetworkWork uneven_network(const std::vector<Times>& layers) {
  NetworkWork work;
  for (const Times& times : layers) {
    const NetworkWork one = network(1, times);
    work.kinds.push_back(one.kinds[0]);
    work.kinds.back().name = "toy " + std::to_string(work.kinds.size());
    work.chain.push_back(static_cast<int>(work.kinds.size()) - 1);
    work.divisible.push_back(true);
  }
  return work;
}

inline ClusterSpec cluster(int gpus_per_server, int servers) {
  ClusterSpec spec;
  spec.servers = servers;
  spec.server.name = "toy";
  spec.server.gpu.name = "toy";
  spec.server.gpu.multiprocessors = 100;
  spec.server.gpu.memory = Bytes(std::int64_t{1} << 50);
  spec.server.gpu.memory_bandwidth = BytesPerSecond(1e12);
  spec.server.gpu.fp16 = spec.server.gpu.bf16 = spec.server.gpu.fp32 = FlopsPerSecond(1e14);
  spec.server.gpus = gpus_per_server;
  spec.server.intra = IntraKind::nvswitch;
  spec.server.intra_bandwidth = BytesPerSecond(3e11);
  spec.server.intra_latency = std::chrono::microseconds(1);
  spec.server.pcie_bandwidth = BytesPerSecond(25e9);
  spec.server.socket_bandwidth = BytesPerSecond(20e9);
  spec.server.host_memory_bandwidth = BytesPerSecond(1e11);
  spec.server.nics = gpus_per_server;
  spec.server.nic_bandwidth = BytesPerSecond(25e9);
  spec.server.nic_latency = std::chrono::microseconds(1);
  return spec;
}

// Optimizer kernels of a network without parameters move no bytes, so they take no time.
struct Result {
  StepPlan plan;
  Lowered lowered;
  Outcome outcome;
  Duration end() const { return std::get<Trace>(outcome).end; }
};

inline std::unique_ptr<Result> step(const NetworkWork& work, const std::string& schedule,
                                    int stages, int microbatches, int chunks, const Times& times) {
  TrainingRecipe recipe;
  recipe.global_batch = microbatches;
  ParallelPlan plan;
  plan.degrees.pipeline = stages;
  plan.pipeline.schedule = schedule;
  plan.pipeline.chunks = chunks;
  auto result = std::make_unique<Result>();
  result->plan = plan_step(work, recipe, plan);
  const ClusterSpec spec = cluster(stages, 1);
  result->lowered =
      lower_in_order(result->plan.cast, spec, nullptr, Compute(), Messages(times.hop), {});
  result->outcome = run(result->lowered.machine);
  return result;
}

}  // namespace toy
