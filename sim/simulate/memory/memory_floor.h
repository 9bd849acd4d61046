// A ledger of memory that is kept without simulating: the least that GPUs hold at their peaks,
// whatever kernels and messages take. What does not fit by it does not fit.
//
//   The ops of the compute stream run one at a time and in order. While one of them runs, all that
//   it and those before it have taken is held, but for what those before it have given back. Ops of
//   other streams count as they must be: what an op must have waited for has taken its memory, and
//   of what may have ended by then the streams' ends are taken that leave least.
//
//   bounds      MemoryPeak::peak of every actor that runs the program, from below; the most of
//               Program::pools comes on top of that peak
//   equals it   where only ops of the compute stream take and give back memory, and none without
//               kernels takes what another without kernels gives back
//   requires    kernels that take a picosecond or more
//   costs       O(calls + ops of blocks) where only the compute stream moves memory, else O(ops of
//               calls)
//
// Overlap is what it leaves out: parameters that are gathered ahead of the kernels that need them,
// gradients and activations that are still on their way.
#pragma once

#include <optional>
#include <vector>

#include "sim/engine/program.h"
#include "sim/plan/step_plan.h"
#include "sim/simulate/step.h"

namespace trainyard::simulate {

// The least that a program holds at its peak. Requires: its compute stream is the first.
Bytes least_held(const engine::Program& program);

// What the GPU of a role's first player holds at least, with allowances (device_memory.h).
struct MemoryFloor {
  Bytes held;       // by the program
  Bytes on_device;  // with allowances; 0: a role without GPUs
  Bytes capacity;   // of the GPU; 0: unlimited
  bool may_fit() const { return capacity == Bytes(0) || on_device <= capacity; }
};

// By Cast::roles; a role without players holds nothing. Requires: `plan` is of the job, alone on
// its cluster.
std::vector<MemoryFloor> memory_floors(const Job& job, const plan::StepPlan& plan);

// Whether all of them may fit, in less time: most ledgers need not be kept to know it. Requires: as
// above.
bool may_fit(const Job& job, const plan::StepPlan& plan);

// That of the role that is furthest over its capacity, or comes closest to it. Plans the job and
// lowers nothing.
MemoryFloor memory_floor(const Job& job);

}  // namespace trainyard::simulate
