// Which gradients leave together where a thread of each rank looks for them in cycles, as Horovod
// does: all that have been asked for since the last look and that all ranks agree on, in buffers of
// a size, one after another, each when the last of its gradients is made.
//
// Source: horovod/common/operations.cc (RunLoopOnce: the rest of a cycle is slept), controller.cc
// (ComputeResponseList, FuseResponses: in the order in which they come, of one type), ops/
// collective_operations.cc (WaitForData: the thread waits for the gradients of a buffer).
#pragma once

#include <span>
#include <vector>

#include "sim/base/units.h"

namespace trainyard::plan {

// Seconds since one origin: the host has called for its exchange; the GPU has made it.
struct CalledGradient {
  Bytes bytes;
  double called = 0, made = 0;
};

struct CycleTerms {
  double cycle = 0;           // s, from one look to the next; above 0
  Bytes buffer;               // of gradients that leave together, but for one that is larger alone
  double agreement = 0;       // s of every look
  double agreement_each = 0;  // s more for each gradient that it finds
};

struct FusedGradients {
  int tensors = 0;
  // s from when the last of them is made, and those before have left, to when they leave
  double late = 0;
};

// The looks go on all the time; the first that finds a gradient comes half a cycle after its call.
// Time: linear in gradients. Requires: `called` does not fall from one to the next.
std::vector<FusedGradients> fuse_by_cycles(std::span<const CalledGradient> gradients,
                                           const CycleTerms& terms);

// Sets the seconds in which `ranks`, two or more, agree, over messages of `latency` seconds.
// Remembered gradients are bits of one all-reduce by recursive doubling. Else names go to the first
// rank and the answers back: two gathers and two broadcasts, and what the first rank does for each
// gradient and rank. Source: horovod/common/mpi/mpi_controller.cc; Thakur, Rabenseifner and Gropp,
// Optimization of Collective Communication Operations in MPICH, 2005, section 4.
void add_agreement(CycleTerms& terms, int ranks, double latency, bool remembered);

}  // namespace trainyard::plan
