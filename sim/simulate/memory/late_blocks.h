// What PyTorch's allocator reserves because collectives run on a stream of their own: a block that
// one of them reads or writes can be taken again when the GPU has passed the collective
// (Tensor.record_stream), not when the script frees it, and the host is ahead of the GPU.
//
//   The script frees a collective's blocks when it has launched it. At the host's later launch h
//   they are not back if the collective ends after h is made, and is among the last n launches: a
//   host n launches ahead of its GPU waits for it. What is held at h and those blocks are reserved
//   together.
//
//   closed form  collectives of S bytes, one every p launches, a level that stays and a GPU that is
//                behind by n or more: ceil(n / p) S
//   counts       all-gathers, reduce-scatters and all-reduces, each by its whole buffer; the shard
//                at the other end is left out. Gathered inputs that are kept for the backward pass
//                are activations, and come back long after their collective.
//   after        a wait of the host for the GPU (Op::drained, and the end of a step) nothing is
//                late, and the host goes on from there
//
// Source: c10/cuda/CUDACachingAllocator.cpp, insert_events and process_events;
// torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "sim/base/units.h"
#include "sim/engine/engine.h"
#include "sim/lower/lower.h"
#include "sim/plan/cast.h"

namespace trainyard::simulate {

// Follows when the GPUs pass the collectives of a run whose blocks come back late. Has to be told
// of all ops of the actors that stand for classes.
class LateBlocks final : public engine::Observer {
 public:
  // The cast and the machine are kept by reference.
  LateBlocks(const plan::Cast& cast, const lower::Lowered& lowered, bool keeps_gathered_inputs);

  void kernel_ended(const engine::KernelSpan& /*kernel*/) override {}
  void op_ended(const engine::Span& op) override;
  bool may_be_told_late() const override { return true; }
  bool walk(engine::StateWalk& walk) override;

  // How much more a rank of the class reserves at most than without late blocks, with at most so
  // many launches ahead (n). Requires: the run is over.
  Bytes of(std::size_t rank_class, std::int64_t ahead) const;

 private:
  // Ops of a program whose time matters: collectives whose blocks the script frees early, by their
  // end, and those that the host waits at, by their begin.
  struct Noted {
    std::vector<std::vector<std::int64_t>> freed;    // by block and op: bytes; 0: none
    std::vector<std::vector<std::uint32_t>> before;  // by block and op: noted ones; and of all
    std::vector<std::size_t> first;                  // by call: noted ones; and of all
  };
  // What it was told of a noted op.
  struct Told {
    std::uint32_t call = 0, place = 0;  // the op's among the noted ones of the call
    Duration time{};
  };
  struct Watched {
    const plan::Role* role = nullptr;
    const Noted* noted = nullptr;
    std::uint32_t actor = 0;
    std::vector<Duration> times;   // of the noted ops, in the order of the program
    std::vector<Duration> rounds;  // when all of each has ended
    std::uint32_t call = 0;        // of the op that it was last told of
    std::int64_t told = 0;         // of noted ops, with those of skipped periods
    std::vector<Told> recent;      // the last of these, back to the last period that was skipped
    Duration* end_of_round();      // of that call's; null: it has none
    // The last ops come so often again, each so many calls and so long after the time before.
    void repeat(std::int64_t ops, std::int64_t times_again, std::uint32_t calls, Duration after);
  };

  const Noted& noted_of(const plan::Role& role);

  const plan::Cast& cast_;
  const lower::Lowered& lowered_;
  bool keeps_gathered_inputs_;
  std::map<const plan::Role*, Noted> noted_;
  std::vector<std::size_t> watched_of_;  // by actor, 1 more than into watched_; 0: none
  std::vector<Watched> watched_;         // by class
};

}  // namespace trainyard::simulate
