// The kernel of the rings, as code for one block. Includes nothing of CUDA and expects its words,
// and those of message.h, before it: tests run it with threads of the CPU instead.
#pragma once

#include <cstdint>

#include "ring_memory.h"

namespace trainyard::probe {

inline constexpr int kRingUnroll = 4;  // loads of 16 bytes that a thread has in flight

__device__ inline std::int64_t flag_index(int peer, int channel) {
  return static_cast<std::int64_t>(peer * kRingMostChannels + channel) * kRingFlagStride;
}

__device__ inline float* slot_of(const RingShape& shape, const RingRank& receiver, int sender,
                                 int channel, std::uint64_t message) {
  const std::int64_t connection = sender * kRingMostChannels + channel;
  const auto slot = static_cast<std::int64_t>(message % kRingSlots);
  return receiver.slots + (connection * kRingSlots + slot) * shape.slot_elements;
}

__device__ inline float4 sum(float4 a, float4 b) {
  return {a.x + b.x, a.y + b.y, a.z + b.z, a.w + b.w};
}

struct Piece {
  const float* received;
  const float* own;
  float* stored;
  float* sent;
  std::int64_t count;
};

// value = received + own; stored and sent. What was received is read past the L1 cache.
template <int kThreads, bool Receive, bool Own, bool Store, bool Send>
__device__ void move(const Piece& piece) {
  const auto value_at = [&](std::int64_t i) {
    float4 value = {0, 0, 0, 0};
    if constexpr (Receive) value = __ldcg(reinterpret_cast<const float4*>(piece.received) + i);
    if constexpr (Own) {
      const float4 own = reinterpret_cast<const float4*>(piece.own)[i];
      value = Receive ? sum(value, own) : own;
    }
    return value;
  };
  const auto put = [&](std::int64_t i, const float4& value) {
    if constexpr (Store) reinterpret_cast<float4*>(piece.stored)[i] = value;
    if constexpr (Send) reinterpret_cast<float4*>(piece.sent)[i] = value;
  };
  const std::int64_t vectors = piece.count / 4;
  std::int64_t i = static_cast<int>(threadIdx.x);
  for (; i + (kRingUnroll - 1) * kThreads < vectors; i += kRingUnroll * kThreads) {
    float4 values[kRingUnroll];
#pragma unroll
    for (int u = 0; u < kRingUnroll; ++u)
      values[u] = value_at(i + u * kThreads);
#pragma unroll
    for (int u = 0; u < kRingUnroll; ++u)
      put(i + u * kThreads, values[u]);
  }
  for (; i < vectors; i += kThreads)
    put(i, value_at(i));
  const std::int64_t last = vectors * 4 + static_cast<int>(threadIdx.x);
  if (last < piece.count) {
    float value = 0;
    if constexpr (Receive) value = __ldcg(piece.received + last);
    if constexpr (Own) value += piece.own[last];
    if constexpr (Store) piece.stored[last] = value;
    if constexpr (Send) piece.sent[last] = value;
  }
}

template <int kThreads>
__device__ void move(const RingStep& step, const Piece& piece) {
  const int what =
      (step.from >= 0 ? 8 : 0) + (step.own ? 4 : 0) + (step.store ? 2 : 0) + (step.to >= 0 ? 1 : 0);
  switch (what) {
    case 5: return move<kThreads, false, true, false, true>(piece);
    case 6: return move<kThreads, false, true, true, false>(piece);
    case 7: return move<kThreads, false, true, true, true>(piece);
    case 10: return move<kThreads, true, false, true, false>(piece);
    case 11: return move<kThreads, true, false, true, true>(piece);
    case 13: return move<kThreads, true, true, false, true>(piece);
    case 14: return move<kThreads, true, true, true, false>(piece);
    case 15: return move<kThreads, true, true, true, true>(piece);
    default: return;  // the schedule has no other steps
  }
}

// Messages sent to and received from each peer, by one channel of one rank. In shared memory.
struct RingCounts {
  std::uint64_t sent[kRingMostRanks];
  std::uint64_t received[kRingMostRanks];
};

// A block is a channel of a rank. All threads know the counts of the connections; thread 0 speaks
// for the block. Blocks of one rank share nothing but the failure.
template <int kThreads>
__device__ void run_channel(const RingArguments& a, int rank, int channel, RingCounts& counts) {
  std::uint64_t* const sent = counts.sent;
  std::uint64_t* const received = counts.received;
  const RingShape& shape = a.shape;
  const RingRank& mine = a.ranks[rank];
  const unsigned long long deadline = nanoseconds() + a.time_limit_ns;
  const auto first_peer = static_cast<int>(threadIdx.x);
  for (int peer = first_peer; peer < shape.ranks; peer += kThreads) {
    sent[peer] = mine.sent[flag_index(peer, channel)];
    received[peer] = mine.received[flag_index(peer, channel)];
  }
  // What follows a failure must not wait for the dead again.
  bool late = threadIdx.x == 0 && *static_cast<volatile unsigned*>(mine.failed) != 0;
  if (__syncthreads_or(late)) return;

  const std::int64_t piece_count = pieces(shape, channel);
  const int step_count = steps(shape.kind, shape.ranks);
  for (std::int64_t piece = 0; piece < piece_count; ++piece)
    for (int s = 0; s < step_count; ++s) {
      const RingStep step = step_of(shape.kind, shape.ranks, rank, s);
      if (threadIdx.x == 0) {
        if (step.from >= 0)
          late = !wait_for_flag(
              mine.filled + flag_index(step.from, channel), deadline,
              [&](std::uint64_t filled) { return may_drain(received[step.from], filled); });
        if (step.to >= 0 && !late)
          late = !wait_for_flag(
              mine.drained + flag_index(step.to, channel), deadline,
              [&](std::uint64_t drained) { return may_fill(sent[step.to], drained, kRingSlots); });
      }
      if (__syncthreads_or(late)) {
        if (threadIdx.x == 0) *mine.failed = 1;
        return;
      }
      const ElementRange range = piece_range(shape, step.shard, channel, piece);
      move<kThreads>(
          step,
          {step.from >= 0 ? slot_of(shape, mine, step.from, channel, received[step.from]) : nullptr,
           mine.input + range.first, mine.output + range.first,
           step.to >= 0 ? slot_of(shape, a.ranks[step.to], rank, channel, sent[step.to]) : nullptr,
           range.count});
      // All threads have written what is announced, and have read what is given back.
      __syncthreads();
      if (threadIdx.x == 0) {
        if (step.to >= 0)
          release_flag(a.ranks[step.to].filled + flag_index(rank, channel), ++sent[step.to]);
        if (step.from >= 0)
          release_flag(a.ranks[step.from].drained + flag_index(rank, channel),
                       ++received[step.from]);
      }
    }
  // Thread 0 has counted last; the others read its counts behind a barrier.
  __syncthreads();
  for (int peer = first_peer; peer < shape.ranks; peer += kThreads) {
    mine.sent[flag_index(peer, channel)] = sent[peer];
    mine.received[flag_index(peer, channel)] = received[peer];
  }
}

}  // namespace trainyard::probe
