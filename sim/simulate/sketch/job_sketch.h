// What a change of a job should do to its memory and its time, told from its layers alone: without
// a plan, without programs, without a run. Two sketches are compared with each other, not with
// reports: of many changes they say which are worth a simulation.
//
//   layers   the kernels of each kind of layer one after another, with the collectives inside it
//            beside them until it waits for them; what the host launches, if that is longer
//   step     m passes of the slowest stage and the others' while the pipeline fills, or the orders
//            of a schedule that fills otherwise; gathers and reductions of parameters where they
//            are longer than the passes that hide them, the last bucket, the optimizer
//   memory   of the fullest stage: states, what stays of the micro-batches that are there at once,
//            the most that a layer works in, the largest layers that are gathered
//
// Left out: jitter and stragglers, servers that differ, links that kinds of traffic share.
#pragma once

#include <array>
#include <vector>

#include "sim/plan/memory_kind.h"
#include "sim/simulate/step_maker.h"

namespace trainyard::simulate {

struct JobSketch {
  std::array<double, plan::kMemoryKinds> bytes{};  // of what programs hold
  // Of a step: its passes, what of gradients and parameters on their way they do not hide, and the
  // optimizer.
  std::array<double, 3> seconds{};
};

// Sketches of jobs that differ in network, recipe and plan.
class JobSketches {
 public:
  // Requires: a job on GPUs of one kind's prices; it outlives this.
  explicit JobSketches(const Job& job);

  // Throws OutOfRange. Requires: a job of the same cluster.
  JobSketch of(const Job& changed) const;

 private:
  Costs costs_;
  std::vector<int> players_;  // by server
  std::vector<int> gpu_of_rank_;
};

}  // namespace trainyard::simulate
