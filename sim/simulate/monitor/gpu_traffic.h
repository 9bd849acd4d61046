// Which of a GPU's links its transfers cross.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "sim/simulate/monitor/kernel_loads.h"
#include "sim/simulate/step.h"

namespace trainyard::simulate {

// Bytes that one member sends, and as many that it receives.
struct LinkBytes {
  std::int64_t links = 0, pcie = 0;  // NVLink and its kin; PCIe
};

// Of a collective, those that cross the busiest edge of its ring: from server to server over PCIe
// to the NIC, the same share of every member's as of the ring's edges (of an all-to-all, of its
// peers); inside a server over the links that join its GPUs.
LinkBytes link_bytes(const lower::TransferEstimate& transfer, topologies::IntraKind intra);

// A transfer as a GPU sees it.
struct Crossing {
  Stretch time{};    // while it moves
  Stretch kernel{};  // while its kernel is on the GPU, to wait or to move; of copies, none, empty
  int units = 0;     // multiprocessors that the kernel holds while it moves
  LinkBytes in{}, out{};
};

// All transfers of the simulated ranks, by class.
class GpuTraffic {
 public:
  GpuTraffic(const Job& job, const Step& step);
  const std::vector<Crossing>& of(std::size_t rank_class) const { return crossings_[rank_class]; }

 private:
  std::vector<std::vector<Crossing>> crossings_;
};

}  // namespace trainyard::simulate
