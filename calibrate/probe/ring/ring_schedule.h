// Who sends which piece of a collective to whom, and when: pure functions of the rank.
//
// The same functions drive the kernels of ring_kernel.cu and the simulation of their protocol in
// tests/calibrate, so this header needs neither CUDA nor anything else of the probes.
//
// A buffer of `elements` is cut into shards (one per rank; broadcast and send-recv have one shard),
// a shard into one part per channel, a part into pieces that fit a slot. A channel goes through its
// pieces; for each it takes all steps of the schedule below. Every connection (sender, receiver,
// channel) numbers its messages from 0 on and never starts again: message m lies in slot m % slots.
#pragma once

#include <cstdint>

#ifdef __CUDACC__
#define TRAINYARD_BOTH_SIDES __host__ __device__
#else
#define TRAINYARD_BOTH_SIDES
#endif

namespace trainyard::probe {

enum class Collective : std::uint8_t {
  all_reduce,
  all_gather,
  reduce_scatter,
  all_to_all,
  broadcast,  // from rank 0, along a chain
  send_recv,  // every rank sends to the next one and receives from the one before
};
inline constexpr int kCollectives = 6;

// As samples.jsonl spells it.
constexpr const char* name(Collective kind) {
  constexpr const char* kNames[kCollectives] = {"all-reduce", "all-gather", "reduce-scatter",
                                                "all-to-all", "broadcast",  "send-recv"};
  return kNames[static_cast<int>(kind)];
}

struct RingShape {
  Collective kind = Collective::all_reduce;
  int ranks = 2;  // at least 2
  int channels = 1;
  std::int64_t elements = 0;       // of the whole buffer, as nccl-tests counts
  std::int64_t slot_elements = 1;  // a multiple of `alignment`
  int alignment = 4;               // parts begin at multiples of it, for accesses of 16 bytes
};

struct ElementRange {
  std::int64_t first = 0;
  std::int64_t count = 0;
};

// One step: value = (received, if `from`) + (own input, if `own`); the value is stored in the
// output if `store`, and sent if `to`. Ranks are -1 where nothing is received or sent.
struct RingStep {
  int shard = 0;
  int from = -1;
  int to = -1;
  bool own = false;
  bool store = false;
};

TRAINYARD_BOTH_SIDES constexpr std::int64_t smaller(std::int64_t a, std::int64_t b) {
  return a < b ? a : b;
}

// Part `index` of `parts` of `count` elements; parts begin at multiples of `alignment`, and differ
// by no more than that.
TRAINYARD_BOTH_SIDES constexpr ElementRange part_of(std::int64_t count, int parts, int index,
                                                    int alignment) {
  const std::int64_t units = (count + alignment - 1) / alignment;
  const std::int64_t first = smaller(units * index / parts * alignment, count);
  const std::int64_t last = smaller(units * (index + 1) / parts * alignment, count);
  return {first, last - first};
}

TRAINYARD_BOTH_SIDES constexpr int shards(const RingShape& shape) {
  return shape.kind == Collective::broadcast || shape.kind == Collective::send_recv ? 1
                                                                                    : shape.ranks;
}

// The elements of a shard. All-to-all needs shards of equal size, so elements at the end of a
// buffer that is not a multiple of ranks x alignment are not sent; nccl-tests rounds down likewise.
TRAINYARD_BOTH_SIDES constexpr ElementRange shard_range(const RingShape& shape, int shard) {
  if (shape.kind == Collective::all_to_all) {
    const std::int64_t each = shape.elements / shape.ranks / shape.alignment * shape.alignment;
    return {each * shard, each};
  }
  return part_of(shape.elements, shards(shape), shard, shape.alignment);
}

// What a channel handles of a shard, and piece `piece` of that (empty after the last).
TRAINYARD_BOTH_SIDES constexpr ElementRange channel_range(const RingShape& shape, int shard,
                                                          int channel) {
  const ElementRange whole = shard_range(shape, shard);
  const ElementRange part = part_of(whole.count, shape.channels, channel, shape.alignment);
  return {whole.first + part.first, part.count};
}
TRAINYARD_BOTH_SIDES constexpr ElementRange piece_range(const RingShape& shape, int shard,
                                                        int channel, std::int64_t piece) {
  const ElementRange part = channel_range(shape, shard, channel);
  const std::int64_t before = smaller(piece * shape.slot_elements, part.count);
  return {part.first + before, smaller(part.count - before, shape.slot_elements)};
}

// How many pieces a channel goes through: those of its largest shard, so that all ranks agree.
// Where a shard has fewer, its last messages are empty.
TRAINYARD_BOTH_SIDES constexpr std::int64_t pieces(const RingShape& shape, int channel) {
  std::int64_t most = 1;
  for (int shard = 0; shard < shards(shape); ++shard) {
    const std::int64_t count = channel_range(shape, shard, channel).count;
    const std::int64_t needed = (count + shape.slot_elements - 1) / shape.slot_elements;
    most = needed > most ? needed : most;
  }
  return most;
}

TRAINYARD_BOTH_SIDES constexpr int steps(Collective kind, int ranks) {
  switch (kind) {
    case Collective::all_reduce:
    case Collective::all_to_all: return 2 * ranks - 1;
    case Collective::all_gather:
    case Collective::reduce_scatter: return ranks;
    case Collective::broadcast: return 1;
    case Collective::send_recv: return 2;
  }
  return 0;
}

namespace ring_detail {

// `value` modulo ranks, for values down to -2 * ranks.
TRAINYARD_BOTH_SIDES constexpr int around(int value, int ranks) {
  return (value + 2 * ranks) % ranks;
}

// Reduce-scatter: a shard starts at the rank after its owner, and each rank adds its own.
// All-reduce goes on with the finished shards, which travel once more around.
TRAINYARD_BOTH_SIDES constexpr RingStep reducing_step(bool gather_too, int ranks, int rank,
                                                      int step) {
  const int last = gather_too ? 2 * ranks - 2 : ranks - 1;
  RingStep result;
  result.shard = around(rank - 1 - step, ranks);
  result.from = step > 0 ? around(rank - 1, ranks) : -1;
  result.to = step < last ? around(rank + 1, ranks) : -1;
  result.own = step <= ranks - 1;
  result.store = step >= ranks - 1;
  return result;
}

TRAINYARD_BOTH_SIDES constexpr RingStep gathering_step(int ranks, int rank, int step) {
  RingStep result;
  result.shard = around(rank - step, ranks);
  result.from = step > 0 ? around(rank - 1, ranks) : -1;
  result.to = step < ranks - 1 ? around(rank + 1, ranks) : -1;
  result.own = step == 0;
  result.store = true;
  return result;
}

// Pairs of a send to the rank `distance` ahead and a receive from the rank as far behind, after a
// copy of the own shard.
TRAINYARD_BOTH_SIDES constexpr RingStep exchanging_step(int ranks, int rank, int step) {
  const int distance = (step + 1) / 2;
  RingStep result;
  if (step % 2 == 1) {
    result.to = around(rank + distance, ranks);
    result.shard = result.to;
    result.own = true;
  } else if (step > 0) {
    result.from = around(rank - distance, ranks);
    result.shard = result.from;
    result.store = true;
  } else {
    result.shard = rank;
    result.own = true;
    result.store = true;
  }
  return result;
}

}  // namespace ring_detail

// Requires: 0 <= rank < ranks, 0 <= step < steps(kind, ranks).
TRAINYARD_BOTH_SIDES constexpr RingStep step_of(Collective kind, int ranks, int rank, int step) {
  RingStep result;
  switch (kind) {
    case Collective::all_reduce: return ring_detail::reducing_step(true, ranks, rank, step);
    case Collective::reduce_scatter: return ring_detail::reducing_step(false, ranks, rank, step);
    case Collective::all_gather: return ring_detail::gathering_step(ranks, rank, step);
    case Collective::all_to_all: return ring_detail::exchanging_step(ranks, rank, step);
    case Collective::broadcast:
      result.from = rank - 1;
      result.to = rank + 1 < ranks ? rank + 1 : -1;
      result.own = rank == 0;
      result.store = true;
      return result;
    case Collective::send_recv:
      result.from = step == 1 ? ring_detail::around(rank - 1, ranks) : -1;
      result.to = step == 0 ? ring_detail::around(rank + 1, ranks) : -1;
      result.own = step == 0;
      result.store = step == 1;
      return result;
  }
  return result;
}

// The protocol of a connection. `filled` counts the messages whose bytes lie in their slots,
// `drained` those that the receiver has read. Both only grow, over all operations of the
// communicator.
TRAINYARD_BOTH_SIDES constexpr bool may_fill(std::uint64_t message, std::uint64_t drained,
                                             int slots) {
  return message - drained < static_cast<std::uint64_t>(slots);
}
TRAINYARD_BOTH_SIDES constexpr bool may_drain(std::uint64_t message, std::uint64_t filled) {
  return filled > message;
}

// Bytes that a rank's busiest direction carries per byte of the buffer, as nccl-tests turns
// algorithm bandwidth into bus bandwidth.
TRAINYARD_BOTH_SIDES constexpr double bus_factor(Collective kind, int ranks) {
  const double share = static_cast<double>(ranks - 1) / ranks;
  if (kind == Collective::all_reduce) return 2 * share;
  return kind == Collective::broadcast || kind == Collective::send_recv ? 1.0 : share;
}

}  // namespace trainyard::probe
