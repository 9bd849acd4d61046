// The collectives of NCCL on devices of this process, timed as nccl-tests does. Only with
// TRAINYARD_PROBE_NCCL.
#pragma once

#ifdef TRAINYARD_PROBE_NCCL

#include <nccl.h>

#include <cstdint>
#include <vector>

#include "device.h"
#include "lanes.h"
#include "ring_schedule.h"
#include "sample.h"

namespace trainyard::probe {

class NcclGroup {
 public:
  // One rank per device (CUDA ordinals, all different). Throws std::runtime_error.
  NcclGroup(const std::vector<int>& devices, std::int64_t most_elements);
  ~NcclGroup();
  NcclGroup(const NcclGroup&) = delete;
  NcclGroup& operator=(const NcclGroup&) = delete;

  // The time of one operation of many in a row, by the host's clock: launches are in it where they
  // take longer than the operation, as they are in the figures of nccl-tests.
  Timing measure(Collective kind, std::int64_t elements, double interval_us, int repeats);

 private:
  void enqueue(Collective kind, std::int64_t elements);
  void enqueue_rank(std::size_t rank, Collective kind, std::size_t elements);
  double interval(Collective kind, std::int64_t elements, int operations);
  void wait();

  std::vector<int> devices_;
  std::vector<DeviceBuffer> input_, output_;
  std::vector<Stream> streams_;
  std::vector<ncclComm_t> communicators_;
};

}  // namespace trainyard::probe

#endif  // TRAINYARD_PROBE_NCCL
