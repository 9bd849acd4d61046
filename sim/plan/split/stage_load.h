// What layers come to on a stage: the work of a micro-batch, and the memory.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "models/families/network.h"
#include "sim/base/units.h"
#include "sim/plan/replicas/data_parallel.h"
#include "sim/plan/step_memory.h"
#include "sim/recipe/recipe.h"
#include "sim/schedule/schedule.h"

namespace trainyard::plan {

// Seconds of each work item of a layer; 0 for what is no kernel.
struct LayerTimes {
  std::vector<double> forward, recompute, backward;
};

// What the GPUs of a stage are to its layers: the slowest of them, and the smallest.
struct StageGpus {
  std::vector<double> times;  // of one micro-batch in each of NetworkWork::kinds
  Bytes memory;
  double message_latency = 0, message_byte = 0;  // seconds of a message to another stage
  std::vector<LayerTimes> layers = {};  // of NetworkWork::kinds, where gradients leave in cycles
  double launch = 0;                    // host seconds of one, then
  bool host_computes = false;           // a CPU, which launches nothing before it has time for it
  double replica_latency = 0;           // seconds of a short message to the furthest replica, then
};

// Of places that are added one by one.
struct Load {
  double work = 0;
  std::int64_t parameters = 0, expert_parameters = 0;
  std::array<Bytes, 2> frozen = {};
  Bytes kept;  // of one micro-batch
  Bytes workspace;
  int divisible = 0;
};

class StageLoads {
 public:
  // The first two must outlive it.
  StageLoads(const models::NetworkWork& work, const schedule::PipelineShape& shape,
             const recipe::TrainingRecipe& recipe, const recipe::ParallelPlan& plan);

  // The time of a place, or, of GPUs without times, its FLOPs.
  double work(int place, const StageGpus& gpus) const;
  void add(Load& load, int place, const StageGpus& gpus) const;
  // States, what stays of so many micro-batches at once, and the most that a layer works in.
  Bytes memory(const Load& load, int held) const;

 private:
  const models::LayerWork& layer(int place) const {
    return work_.kinds[static_cast<std::size_t>(work_.chain[static_cast<std::size_t>(place)])];
  }

  const models::NetworkWork& work_;
  const recipe::TrainingRecipe& recipe_;
  // What a rank holds of the parameters of a group of replicas.
  struct Group {
    DataParallelStrategy strategy;
    StateBytes each;  // of one parameter
    Bytes states(std::int64_t parameters) const;
    Bytes weights(Bytes frozen) const;
  };
  Group dense_, experts_;
};

// The most micro-batches that a virtual stage holds at once, by virtual stage; of two copies of the
// network, in the fuller one.
std::vector<int> most_held(const schedule::PipelineShape& shape, const recipe::ParallelPlan& plan);

}  // namespace trainyard::plan
