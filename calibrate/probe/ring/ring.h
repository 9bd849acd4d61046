// Collectives by kernels of our own, for machines without NCCL: one persistent kernel per
// operation, whose blocks are channels of ranks and hand pieces to each other through slots in
// memory that both devices reach. The order of pieces and flags is ring_schedule.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "device.h"
#include "lanes.h"
#include "ring_memory.h"
#include "ring_schedule.h"

namespace trainyard::probe {

class RingCommunicator {
 public:
  // One rank per entry, a CUDA ordinal. Either all are different, or all are the same: then the
  // ranks are virtual and their blocks share one device. Throws CudaError where memory is short.
  // Requires: possible(devices).
  RingCommunicator(const std::vector<int>& devices, std::int64_t most_elements);

  // At least 2 ranks, all reach each other's memory.
  static bool possible(const std::vector<int>& devices);

  int ranks() const { return static_cast<int>(devices_.size()); }
  // How many devices take part, each in its own lane.
  std::vector<int> lane_devices() const;
  // The most channels whose blocks are certain to run at the same time.
  int most_channels() const { return most_channels_; }
  // As many channels as an operation of this size can use, by the amount of data that each moves.
  int channels_for(Collective kind, std::int64_t elements) const;

  // Enqueues a lane's part of an operation; every lane must get the same operations in the same
  // order. The lane's device must be current.
  void enqueue(std::size_t lane, cudaStream_t stream, Collective kind, std::int64_t elements,
               int channels);

  // After the lanes have been waited for: did all operations end in time? After a failure the
  // communicator is of no more use.
  bool healthy() const;

  float* input(int rank) const { return view_[static_cast<std::size_t>(rank)].input; }
  float* output(int rank) const { return view_[static_cast<std::size_t>(rank)].output; }
  void set_time_limit(double seconds) { time_limit_ns_ = seconds * 1e9; }

 private:
  struct Memory {  // of one rank
    DeviceBuffer input, output, slots, flags;
  };
  void allocate(std::int64_t most_elements);

  std::vector<int> devices_;
  bool is_virtual_ = false;
  int most_channels_ = 1;
  double time_limit_ns_ = 5e9;
  std::vector<Memory> memory_;
  std::vector<RingRank> view_;
};

}  // namespace trainyard::probe
