// What no simulation of a job can do better than, told from its layers alone: a search leaves out
// what cannot fit and what cannot win, and loses nothing by it.
//
//   time     of every stage: the kernels of all its micro-batches, with the collectives inside a
//            layer where kernels wait for them; before them the forward passes of the stages that
//            its first micro-batch comes through, after them the backward passes that its last one
//            goes back through, or its optimizer
//   memory   of every stage: parameters and optimizer state, gradients where they stay, and the
//            activations of the micro-batches that its schedule keeps at once, with the context,
//            the library's workspace and fragmentation
//
// Each holds whatever kernels and messages meet: neighbours on the same links, multiprocessors that
// communication takes, hosts that are late only make the step longer. Where a schedule says less
// (split backwards, no flush, ranks at their own pace) less is counted, down to 0.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "sim/simulate/step_maker.h"

namespace trainyard::simulate {

struct JobBound {
  Bytes memory;    // of the GPU whose lack is greatest, with allowances
  Bytes capacity;  // of that GPU; 0: unlimited
  // Seconds of the stage that takes longest: its kernels, of these what runs again, the waits for
  // collectives inside layers, other stages' passes before and after, the optimizer.
  double kernels = 0, repeated = 0, waits = 0, fill = 0, update = 0;

  bool may_fit() const { return capacity == Bytes(0) || memory <= capacity; }
  // A little less than their sum, as the engine rounds every kernel to a picosecond.
  double seconds() const { return (1 - 1e-6) * (kernels + waits + fill + update); }
};

class KnownLayers;

// Bounds of jobs on one cluster, which differ in recipe and plan. May be used from several threads
// at once.
class JobBounds {
 public:
  // Requires: a job of the cluster, which outlives this.
  explicit JobBounds(const Job& job);
  ~JobBounds();

  // Throws OutOfRange. Requires: a job of the same cluster and prices that sim/scenario accepts.
  JobBound of(const Job& job) const;

 private:
  models::Network network_;
  Costs costs_;
  std::optional<Duration> launch_time_;  // that they are of
  bool is_mixed_;                        // GPUs of several kinds are in use
  std::vector<int> players_;             // by server
  std::unique_ptr<KnownLayers> layers_;  // of the network
};

}  // namespace trainyard::simulate
