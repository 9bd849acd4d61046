// What PyTorch's allocator reserves because collectives run on a stream of their own: a block that
// one of them reads or writes can be taken again when the GPU has passed the collective
// (Tensor.record_stream), not when the script frees it, and the host is ahead of the GPU.
//
//   The host's launches are counted in the order of the script. When it has made h of them, the
//   GPU is at h - n, so that the blocks of the tensor-parallel group's collectives whose launch is
//   among the last n are not back yet. What is held at h and those blocks are reserved together.
//
//   closed form  collectives of S bytes, one every p launches, and a level that stays:
//                ceil(n / p) S
//   counts       all-gathers, reduce-scatters and all-reduces, each by its whole buffer; the shard
//                at the other end is left out. Gathered inputs that are kept for the backward pass
//                are activations, and come back long after their collective.
//   after        a wait of the host for the GPU (Op::drained) nothing is late
//
// Source: c10/cuda/CUDACachingAllocator.cpp, insert_events and process_events;
// torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp.
#pragma once

#include <cstdint>

#include "sim/base/units.h"
#include "sim/plan/cast.h"

namespace trainyard::simulate {

// How far ahead of the GPU a host gets that does not wait for it: of the program's launches those
// that the GPU has before it when the last one is made, if every part of the step takes as long per
// launch. `launch`: host time of one; `end`: of the step. 0 where the GPU waits for the host.
std::int64_t launches_ahead(const engine::Program& program, Duration launch, Duration end);

// How much more is reserved at most than without late blocks, with so many launches ahead (n).
// Requires: the role is of the cast.
Bytes late_blocks(const plan::Cast& cast, const plan::Role& role, std::int64_t ahead,
                  bool keeps_gathered_inputs);

}  // namespace trainyard::simulate
