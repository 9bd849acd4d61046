// Passes of layers by themselves, as bounds count them. They depend on little of a plan, so jobs
// that differ in more share them.
#pragma once

#include <memory>
#include <vector>

#include "models/families/network.h"
#include "models/layer/execution.h"
#include "sim/base/threads/made_once.h"
#include "sim/collective/algorithm.h"
#include "sim/simulate/step_maker.h"

namespace trainyard::simulate {

// Passes of a layer, or of the layers of a part of a stage, in seconds.
struct Passes {
  double kernels = 0, repeated = 0;  // `repeated`: of the kernels
  double waits = 0;                  // beside kernels
  double launches = 0;               // of the host
  double repeated_launches = 0;      // of these

  double all() const { return kernels + waits; }
  void operator+=(const Passes& other) {
    kernels += other.kernels;
    repeated += other.repeated;
    waits += other.waits;
    launches += other.launches;
    repeated_launches += other.repeated_launches;
  }
};

struct LayerPasses {
  Passes forward, backward;  // `backward`: with what runs again before it
};

// All that passes depend on, of jobs of one network on one cluster.
struct LayerTerms {
  models::Execution execution;
  bool trains = true;
  double slowdown = 1;  // of kernels
  // GPUs of the groups for whose collectives kernels wait, as GroupShapes numbers them; empty: such
  // waits do not count. Nor do those for collectives whose algorithm or protocol was chosen, which
  // may be faster than the library's own choice, or whose rows share their way.
  std::vector<int> tensor{}, context{}, expert{};
  collective::Choices choices{};
  friend bool operator==(const LayerTerms&, const LayerTerms&) = default;
};

// By kind of the work; of those that stand in its chain. `players`: by server, how many GPUs are in
// use.
std::vector<LayerPasses> passes_of(const models::NetworkWork& work, const LayerTerms& terms,
                                   const Job& job, const Costs& costs,
                                   const std::vector<int>& players);

struct TimedLayers {
  std::shared_ptr<const models::NetworkWork> work;
  std::vector<LayerPasses> passes;  // by kind; of those in the chain
};

// Of jobs of one network on one cluster, each timed once. May be used from several threads at once.
class KnownLayers {
 public:
  // `costs` and `players` as of passes_of(). Requires: `terms` has the execution of the job.
  std::shared_ptr<const TimedLayers> of(const LayerTerms& terms, const Job& job, const Costs& costs,
                                        const std::vector<int>& players);

 private:
  MadeOnce<LayerTerms, TimedLayers> layers_;
};

}  // namespace trainyard::simulate
