// Where a rank's data and flags lie, as the ring kernels see it.
#pragma once

#include <cstdint>

#include "ring_schedule.h"

namespace trainyard::probe {

inline constexpr int kRingMostRanks = 16;
inline constexpr int kRingMostChannels = 24;
inline constexpr int kRingSlots = 4;
inline constexpr std::int64_t kRingSlotElements = 32 * 1024;  // 128 KiB of floats

// A rank's memory as kernels see it. Flags stand kRingFlagStride apart, in
// [peer * kRingMostChannels + channel].
inline constexpr int kRingFlagStride = 16;  // of 8 bytes: one cache line per flag
struct RingRank {
  float* input = nullptr;
  float* output = nullptr;
  float* slots = nullptr;            // what peers sent: [peer][channel][slot]
  std::uint64_t* filled = nullptr;   // written by the peer that sends
  std::uint64_t* drained = nullptr;  // written by the peer that receives
  std::uint64_t* sent = nullptr;     // own counts, kept from operation to operation
  std::uint64_t* received = nullptr;
  unsigned* failed = nullptr;
};

// What a launch is given, for all channels of one or more ranks.
struct RingArguments {
  RingShape shape;
  int first_rank = 0;  // of this grid
  unsigned long long time_limit_ns = 0;
  RingRank ranks[kRingMostRanks];
};

}  // namespace trainyard::probe
