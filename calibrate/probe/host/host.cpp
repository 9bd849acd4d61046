#include "host.h"

#include <unistd.h>

#include <algorithm>
#include <climits>
#include <cstdlib>
#include <ctime>
#include <fstream>
#include <set>
#include <vector>

namespace trainyard::probe {
namespace {

std::string first_line(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

std::optional<int> number_in(const std::string& path) {
  const std::string line = first_line(path);
  char* end = nullptr;
  const long value = std::strtol(line.c_str(), &end, 10);
  if (end == line.c_str()) return std::nullopt;
  return static_cast<int>(value);
}

std::string device_folder(const std::string& pci, const std::string& root) {
  return root + "/sys/bus/pci/devices/" + pci;
}

// "/sys/devices/pci0000:15/0000:15:01.0/0000:17:00.0" as {"pci0000:15", "0000:15:01.0", ...}.
std::vector<std::string> way_to(const std::string& pci, const std::string& root) {
  char resolved[PATH_MAX];
  if (::realpath(device_folder(pci, root).c_str(), resolved) == nullptr) return {};
  const std::string path = resolved;
  std::vector<std::string> way;
  for (std::size_t at = path.find("/pci"); at != std::string::npos && at < path.size();) {
    const std::size_t end = std::min(path.find('/', at + 1), path.size());
    way.push_back(path.substr(at + 1, end - at - 1));
    at = end;
  }
  return way;
}

}  // namespace

std::string cpu_name() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    const std::size_t colon = line.find(": ");
    if (line.rfind("model name", 0) == 0 && colon != std::string::npos)
      return line.substr(colon + 2);
  }
  return "";
}

std::optional<int> sockets() {
  std::set<int> packages;
  for (int cpu = 0;; ++cpu) {
    const std::string folder = "/sys/devices/system/cpu/cpu" + std::to_string(cpu);
    if (::access(folder.c_str(), F_OK) != 0) break;
    const auto package = number_in(folder + "/topology/physical_package_id");
    if (package && *package >= 0) packages.insert(*package);
  }
  if (packages.empty()) return std::nullopt;
  return static_cast<int>(packages.size());
}

std::optional<std::uint64_t> host_memory_bytes() {
  const long pages = ::sysconf(_SC_PHYS_PAGES), size = ::sysconf(_SC_PAGESIZE);
  if (pages <= 0 || size <= 0) return std::nullopt;
  return static_cast<std::uint64_t>(pages) * static_cast<std::uint64_t>(size);
}

std::string driver_version() {
  return first_line("/sys/module/nvidia/version");
}

std::string utc_date() {
  const std::time_t now = std::time(nullptr);
  std::tm parts = {};
  ::gmtime_r(&now, &parts);
  char text[32];
  std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &parts);
  return text;
}

std::optional<int> numa_of(const std::string& pci, const std::string& root) {
  const std::optional<int> node = number_in(device_folder(pci, root) + "/numa_node");
  return node && *node >= 0 ? node : std::nullopt;  // -1: the machine has one node only
}

std::optional<Pcie> pcie_of(const std::string& pci, const std::string& root) {
  const std::string folder = device_folder(pci, root);
  // "16.0 GT/s PCIe"
  const double rate = std::strtod(first_line(folder + "/max_link_speed").c_str(), nullptr);
  const std::optional<int> width = number_in(folder + "/current_link_width");
  Pcie pcie;
  for (const double limit : {2.4, 4.9, 7.9, 15.9, 31.9, 63.9})
    pcie.generation += rate > limit;
  pcie.width = width.value_or(0);
  if (pcie.generation == 0 || pcie.width <= 0) return std::nullopt;
  return pcie;
}

std::string pci_path(const std::string& a, const std::string& b, const std::string& root) {
  const std::vector<std::string> from = way_to(a, root), to = way_to(b, root);
  if (from.empty() || to.empty()) return "";
  if (from.front() != to.front())
    return numa_of(a, root).value_or(0) == numa_of(b, root).value_or(0) ? "NODE" : "SYS";
  std::size_t common = 0;
  while (common < std::min(from.size(), to.size()) && from[common] == to[common])
    ++common;
  if (common == 1) return "PHB";
  // Bridges below the common one: one port of the switch each is a single hop.
  const std::size_t below = std::max(from.size(), to.size()) - common;
  return below <= 2 ? "PIX" : "PXB";
}

}  // namespace trainyard::probe
