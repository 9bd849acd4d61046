#include <algorithm>
#include <set>

#include "message.h"
#include "ring.h"

namespace trainyard::probe {
namespace {

constexpr int kThreads = 512;
constexpr int kUnroll = 4;  // loads of 16 bytes that a thread has in flight
// Below this a channel has too little to do to be worth its flags.
constexpr std::int64_t kElementsPerChannel = 8 * 1024;

struct RingArguments {
  RingShape shape;
  int first_rank = 0;  // of this grid
  unsigned long long time_limit_ns = 0;
  RingRank ranks[kRingMostRanks];
};

__device__ std::int64_t flag_index(int peer, int channel) {
  return static_cast<std::int64_t>(peer * kRingMostChannels + channel) * kRingFlagStride;
}

__device__ float* slot_of(const RingRank& receiver, int sender, int channel,
                          std::uint64_t message) {
  const std::int64_t connection = sender * kRingMostChannels + channel;
  const auto slot = static_cast<std::int64_t>(message % kRingSlots);
  return receiver.slots + (connection * kRingSlots + slot) * kRingSlotElements;
}

__device__ float4 sum(float4 a, float4 b) {
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
template <bool Receive, bool Own, bool Store, bool Send>
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
  for (; i + (kUnroll - 1) * kThreads < vectors; i += kUnroll * kThreads) {
    float4 values[kUnroll];
#pragma unroll
    for (int u = 0; u < kUnroll; ++u)
      values[u] = value_at(i + u * kThreads);
#pragma unroll
    for (int u = 0; u < kUnroll; ++u)
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

__device__ void move(const RingStep& step, const Piece& piece) {
  const int what =
      (step.from >= 0 ? 8 : 0) + (step.own ? 4 : 0) + (step.store ? 2 : 0) + (step.to >= 0 ? 1 : 0);
  switch (what) {
    case 5: return move<false, true, false, true>(piece);
    case 6: return move<false, true, true, false>(piece);
    case 7: return move<false, true, true, true>(piece);
    case 10: return move<true, false, true, false>(piece);
    case 11: return move<true, false, true, true>(piece);
    case 13: return move<true, true, false, true>(piece);
    case 14: return move<true, true, true, false>(piece);
    case 15: return move<true, true, true, true>(piece);
    default: return;  // the schedule has no other steps
  }
}

// A block is a channel of a rank. All threads know the counts of the connections; thread 0 speaks
// for the block. Blocks of one rank share nothing but the failure.
__global__ void __launch_bounds__(kThreads) ring_kernel(const __grid_constant__ RingArguments a) {
  __shared__ std::uint64_t sent[kRingMostRanks];
  __shared__ std::uint64_t received[kRingMostRanks];
  const RingShape& shape = a.shape;
  const int rank = a.first_rank + static_cast<int>(blockIdx.x) / shape.channels;
  const int channel = static_cast<int>(blockIdx.x) % shape.channels;
  const RingRank& mine = a.ranks[rank];
  const unsigned long long deadline = nanoseconds() + a.time_limit_ns;
  const auto peer = static_cast<int>(threadIdx.x);
  if (peer < shape.ranks) {
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
      move(step, {step.from >= 0 ? slot_of(mine, step.from, channel, received[step.from]) : nullptr,
                  mine.input + range.first, mine.output + range.first,
                  step.to >= 0 ? slot_of(a.ranks[step.to], rank, channel, sent[step.to]) : nullptr,
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
  if (peer < shape.ranks) {
    mine.sent[flag_index(peer, channel)] = sent[peer];
    mine.received[flag_index(peer, channel)] = received[peer];
  }
}

constexpr std::size_t flag_bytes(int ranks) {
  return static_cast<std::size_t>(ranks) * kRingMostChannels * kRingFlagStride *
         sizeof(std::uint64_t);
}

}  // namespace

bool RingCommunicator::possible(const std::vector<int>& devices) {
  if (devices.size() < 2 || devices.size() > kRingMostRanks) return false;
  const std::set<int> different(devices.begin(), devices.end());
  if (different.size() != 1 && different.size() != devices.size()) return false;
  bool all = true;
  for (const int device : different)
    for (const int other : different)
      all = enable_peer_access(device, other) && all;
  for (const int device : different) {
    int cooperative = 0;
    PROBE_CUDA(cudaDeviceGetAttribute(&cooperative, cudaDevAttrCooperativeLaunch, device));
    all = all && cooperative != 0;
  }
  return all;
}

RingCommunicator::RingCommunicator(const std::vector<int>& devices, std::int64_t most_elements)
    : devices_(devices), is_virtual_(devices[0] == devices[1]) {
  most_channels_ = kRingMostChannels;
  for (const int device : lane_devices()) {
    const OnDevice current(device);
    int blocks = 0, multiprocessors = 0;
    // Also loads the kernel, which must not happen while another device waits in it.
    PROBE_CUDA(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, ring_kernel, kThreads, 0));
    PROBE_CUDA(cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, device));
    const int ranks_here = is_virtual_ ? ranks() : 1;
    most_channels_ = std::min(most_channels_, blocks * multiprocessors / ranks_here);
  }
  allocate(most_elements);
}

void RingCommunicator::allocate(std::int64_t most_elements) {
  const auto buffer = static_cast<std::size_t>(most_elements) * sizeof(float);
  const std::size_t slots = static_cast<std::size_t>(ranks()) * kRingMostChannels * kRingSlots *
                            kRingSlotElements * sizeof(float);
  const std::size_t flags = flag_bytes(ranks());
  for (int rank = 0; rank < ranks(); ++rank) {
    const int device = devices_[static_cast<std::size_t>(rank)];
    const OnDevice current(device);
    Memory memory{DeviceBuffer(buffer), DeviceBuffer(buffer), DeviceBuffer(slots),
                  DeviceBuffer(4 * flags + 256)};
    Stream stream;
    fill_random(Type::fp32, memory.input.data(), static_cast<std::size_t>(most_elements),
                static_cast<std::uint64_t>(rank) + 1, stream);
    PROBE_CUDA(cudaMemsetAsync(memory.output.data(), 0, memory.output.bytes(), stream));
    PROBE_CUDA(cudaMemsetAsync(memory.flags.data(), 0, memory.flags.bytes(), stream));
    stream.wait();  // before any peer may write a flag
    RingRank view;
    view.input = memory.input.as<float>();
    view.output = memory.output.as<float>();
    view.slots = memory.slots.as<float>();
    view.filled = memory.flags.as<std::uint64_t>(0);
    view.drained = memory.flags.as<std::uint64_t>(flags);
    view.sent = memory.flags.as<std::uint64_t>(2 * flags);
    view.received = memory.flags.as<std::uint64_t>(3 * flags);
    view.failed = memory.flags.as<unsigned>(4 * flags);
    memory_.push_back(std::move(memory));
    view_.push_back(view);
  }
}

std::vector<int> RingCommunicator::lane_devices() const {
  return is_virtual_ ? std::vector<int>{devices_.front()} : devices_;
}

int RingCommunicator::channels_for(Collective kind, std::int64_t elements) const {
  const RingShape shape{kind, ranks(), 1, elements, kRingSlotElements, 4};
  const std::int64_t shard = elements / shards(shape);
  return static_cast<int>(std::clamp<std::int64_t>(shard / kElementsPerChannel, 1, most_channels_));
}

void RingCommunicator::enqueue(std::size_t lane, cudaStream_t stream, Collective kind,
                               std::int64_t elements, int channels) {
  RingArguments arguments;
  arguments.shape = {kind, ranks(), channels, elements, kRingSlotElements, 4};
  arguments.first_rank = static_cast<int>(lane);
  arguments.time_limit_ns = static_cast<unsigned long long>(time_limit_ns_);
  std::copy(view_.begin(), view_.end(), arguments.ranks);
  const auto blocks = static_cast<unsigned>(channels * (is_virtual_ ? ranks() : 1));
  void* parameters[] = {&arguments};
  // A cooperative launch is refused unless all its blocks fit on the device at once: none can wait
  // for one that has not started.
  PROBE_CUDA(cudaLaunchCooperativeKernel(ring_kernel, dim3(blocks), dim3(kThreads), parameters, 0,
                                         stream));
}

bool RingCommunicator::healthy() const {
  bool all = true;
  for (const RingRank& rank : view_) {
    unsigned failed = 0;
    PROBE_CUDA(cudaMemcpy(&failed, rank.failed, sizeof failed, cudaMemcpyDeviceToHost));
    all = all && failed == 0;
  }
  return all;
}

}  // namespace trainyard::probe
