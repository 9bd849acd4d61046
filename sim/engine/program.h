// A program is what the training script of one rank would enqueue in one step: ops on in-order
// streams, in the order of the script. Programs are immutable and shared by all ranks that run the
// same script.
//
// Order is expressed as CUDA does: every stream runs its ops one at a time in the order they were
// enqueued, and an op may wait for the tails of other streams (cudaStreamWaitEvent on an event
// recorded there at the moment the op is enqueued). There is no other edge, so a program is a list
// of blocks of ops that can be repeated: a step of thousands of micro-batches is a short list of
// calls.
//
// The engine knows neither networks nor GPUs: a kernel is an index whose duration the actor
// supplies, a transfer an index whose terms the communicator supplies.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "sim/base/units.h"
#include "sim/engine/labels.h"
#include "sim/engine/shared_table.h"

namespace trainyard::engine {

enum class OpKind : std::uint8_t {
  compute,     // kernels of a segment, one after another
  collective,  // starts when every member of the communicator has reached it
  send,        // starts when it reaches the head of its stream (the receiver's buffer is ready)
  receive,     // ends when the matching send has arrived
  hear,        // ends when so many messages of its round have arrived, from whomever (Inbox)
};

inline constexpr int kMaxStreams = 32;

// Kernels that run back to back with nothing else between them: one event in the engine, single
// kernels in a detailed trace.
struct Segment {
  std::uint32_t first_kernel = 0;  // into Program::kernels
  std::uint32_t kernels = 0;
  friend bool operator==(const Segment&, const Segment&) = default;
};

// Launches of a segment's op that the host has made when it has launched this kernel: one each;
// where there are more of them than kernels, an even share of all.
constexpr std::uint32_t launches_for(std::uint32_t kernel, std::uint32_t kernels,
                                     std::uint32_t launches) {
  const std::uint32_t nth = kernel + 1;
  if (launches <= kernels) return nth < launches ? nth : launches;
  return static_cast<std::uint32_t>((std::uint64_t{nth} * launches + kernels - 1) / kernels);
}

// Bytes taken when an op starts (positive) or given back when it ends (negative).
struct MemoryEffect {
  std::int64_t bytes = 0;
  std::uint32_t owner = 0;    // into Program::labels
  std::uint8_t category = 0;  // the program's owner names the categories
  friend bool operator==(const MemoryEffect&, const MemoryEffect&) = default;
};

struct Op {
  OpKind kind = OpKind::compute;
  std::uint8_t stream = 0;  // < kMaxStreams
  std::uint8_t group = 0;   // the program's owner's word for what it belongs to (tp, dp, ...)
  std::uint8_t part = 0;    // the same for the part of its call, where a call does several things
  std::uint32_t waits = 0;  // bit s: every op enqueued on stream s before this one must have ended
  std::uint32_t subject = 0;  // compute: into segments; else: into its communicator's transfers
  // collective: into Actor::communicators; send, receive: Actor::channels; hear: Actor::inboxes.
  std::uint32_t port = 0;
  std::uint32_t label = 0;     // into labels
  std::uint32_t launches = 0;  // host launches that enqueue it
  Duration call{};             // host time before them
  // Compute: the host waits for what is before it, so that its kernels' launches begin where it
  // does. What follows is enqueued as if the host had not waited.
  bool drained = false;
  std::uint32_t first_effect = 0, effects = 0;  // into Program::effects
  friend bool operator==(const Op&, const Op&) = default;
};

struct Block {
  std::vector<Op> ops;
  friend bool operator==(const Block&, const Block&) = default;
};

// One run of a block; `tag` (the micro-batch) is for whoever reads the trace.
struct Call {
  std::uint32_t block = 0;
  std::uint32_t tag = 0;
};

struct Program {
  SharedTable<std::string> streams;  // names; their number is the number of streams
  Labels labels;
  SharedTable<std::uint32_t> kernels;  // index into Actor::times->kernel, segment after segment
  SharedTable<Segment> segments;
  SharedTable<MemoryEffect> effects;
  std::vector<MemoryEffect> resident;  // taken before the step and kept
  // Bit c: bytes of category c come from a pool of their own, which keeps what it once held.
  std::uint32_t pools = 0;
  SharedTable<Block> blocks;
  std::vector<Call> calls;

  // Op number `number` of a call. Requires: both are of this program.
  const Op& op(std::uint32_t call, std::uint32_t number) const {
    return blocks[calls[call].block].ops[number];
  }
};

// Whether programs do the same in blocks of the same number: they may differ in names, in the order
// of calls, and in what they hold before the step.
inline bool same_code(const Program& a, const Program& b) {
  return a.streams.size() == b.streams.size() && a.pools == b.pools && a.segments == b.segments &&
         a.kernels == b.kernels && a.effects == b.effects && a.blocks == b.blocks;
}

}  // namespace trainyard::engine
