// What Linux says of the machine around the GPUs. Needs no CUDA. Nothing said: empty.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace trainyard::probe {

struct Pcie {
  int generation = 0;
  int width = 0;
};

std::string cpu_name();
std::optional<int> sockets();
std::optional<std::uint64_t> host_memory_bytes();
std::string driver_version();  // of the kernel module
std::string utc_date();        // "2025-01-31T12:00:00Z"

// Of the PCI device at an address such as "0000:17:00.0". `root` is "" but in tests.
std::optional<int> numa_of(const std::string& pci, const std::string& root = "");
std::optional<Pcie> pcie_of(const std::string& pci, const std::string& root = "");
// How nvidia-smi names the way between two devices: PIX (one bridge), PXB (several), PHB (the host
// bridge), NODE (two host bridges of one NUMA node), SYS (two nodes).
std::string pci_path(const std::string& a, const std::string& b, const std::string& root = "");

}  // namespace trainyard::probe
