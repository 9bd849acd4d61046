// Transfers that one player makes by itself: between the memories of a GPU and its host over PCIe,
// within the host's memory, and between that and NVMe.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace trainyard {

enum class HostTransfer : std::uint8_t { to_host, to_device, host_memory, nvme_read, nvme_write };

inline constexpr std::array<HostTransfer, 5> kHostTransfers = {
    HostTransfer::to_host, HostTransfer::to_device, HostTransfer::host_memory,
    HostTransfer::nvme_read, HostTransfer::nvme_write};

constexpr std::string_view name(HostTransfer transfer) {
  switch (transfer) {
    case HostTransfer::to_host: return "copy to the host";
    case HostTransfer::to_device: return "copy to the device";
    case HostTransfer::host_memory: return "update in host memory";
    case HostTransfer::nvme_read: return "read from NVMe";
    case HostTransfer::nvme_write: return "write to NVMe";
  }
  return "?";
}

}  // namespace trainyard
