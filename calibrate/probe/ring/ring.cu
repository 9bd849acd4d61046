#include <algorithm>
#include <set>

#include "message.h"
#include "ring.h"
#include "ring_kernel.cuh"

namespace trainyard::probe {
namespace {

constexpr int kThreads = 512;
// Below this a channel has too little to do to be worth its flags.
constexpr std::int64_t kElementsPerChannel = 8 * 1024;

__global__ void __launch_bounds__(kThreads) ring_kernel(const __grid_constant__ RingArguments a) {
  __shared__ RingCounts counts;
  const int block = static_cast<int>(blockIdx.x);
  run_channel<kThreads>(a, a.first_rank + block / a.shape.channels, block % a.shape.channels,
                        counts);
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
    // At least one: where not even that fits, the launch says so.
    most_channels_ = std::max(1, std::min(most_channels_, blocks * multiprocessors / ranks_here));
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
