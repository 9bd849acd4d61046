#include "nvml.h"

#include <dlfcn.h>

#include <cctype>

namespace trainyard::probe {
namespace {

// What of nvml.h is used here. Its numbers are part of the library's binary interface.
using Return = int;  // 0: success
constexpr int kClockSm = 1, kClockMemory = 2;
constexpr unsigned kMostLinks = 18;  // NVML_NVLINK_MAX_LINKS up to NVLink 5
constexpr int kRemoteSwitch = 2;     // NVML_NVLINK_DEVICE_TYPE_SWITCH
struct PciInfo {
  char legacy_bus_id[16];
  unsigned domain, bus, device, device_id, subsystem_id;
  char bus_id[32];
};

std::string address(const PciInfo& info) {
  // NVML writes eight digits of domain, sysfs and CUDA four.
  std::string text(info.bus_id);
  if (text.size() > 12) text = text.substr(text.size() - 12);
  for (char& c : text)
    c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return text;
}

}  // namespace

template <class Function>
Function Nvml::symbol(const char* name) const {
  return library_ == nullptr ? nullptr : reinterpret_cast<Function>(::dlsym(library_, name));
}

Nvml::Nvml() : library_(::dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL)) {
  const auto start = symbol<Return (*)()>("nvmlInit_v2");
  loaded_ = start != nullptr && start() == 0;
}

Nvml::~Nvml() {
  if (loaded_)
    if (const auto stop = symbol<Return (*)()>("nvmlShutdown")) stop();
  if (library_ != nullptr) ::dlclose(library_);
}

std::string Nvml::driver() const {
  char text[96] = {};
  const auto ask = symbol<Return (*)(char*, unsigned)>("nvmlSystemGetDriverVersion");
  return loaded_ && ask != nullptr && ask(text, sizeof text) == 0 ? text : "";
}

Nvml::Device Nvml::device(const std::string& pci) const {
  Device device = nullptr;
  const auto ask = symbol<Return (*)(const char*, Device*)>("nvmlDeviceGetHandleByPciBusId_v2");
  return loaded_ && ask != nullptr && ask(pci.c_str(), &device) == 0 ? device : nullptr;
}

std::optional<double> Nvml::clock(const char* function, Device device, int which) const {
  unsigned mhz = 0;
  const auto ask = symbol<Return (*)(Device, int, unsigned*)>(function);
  if (device == nullptr || ask == nullptr || ask(device, which, &mhz) != 0) return std::nullopt;
  return mhz;
}

std::optional<double> Nvml::number(const char* function, Device device) const {
  unsigned value = 0;
  const auto ask = symbol<Return (*)(Device, unsigned*)>(function);
  if (device == nullptr || ask == nullptr || ask(device, &value) != 0) return std::nullopt;
  return value;
}

std::optional<double> Nvml::clock_mhz(Device device) const {
  return clock("nvmlDeviceGetClockInfo", device, kClockSm);
}
std::optional<double> Nvml::max_clock_mhz(Device device) const {
  return clock("nvmlDeviceGetMaxClockInfo", device, kClockSm);
}
std::optional<double> Nvml::memory_clock_mhz(Device device) const {
  return clock("nvmlDeviceGetMaxClockInfo", device, kClockMemory);
}

std::optional<double> Nvml::power_w(Device device) const {
  const std::optional<double> milliwatts = number("nvmlDeviceGetPowerUsage", device);
  if (!milliwatts) return std::nullopt;
  return *milliwatts * 1e-3;
}

std::optional<int> Nvml::pcie_generation(Device device) const {
  const std::optional<double> value = number("nvmlDeviceGetCurrPcieLinkGeneration", device);
  return value ? std::optional<int>(static_cast<int>(*value)) : std::nullopt;
}
std::optional<int> Nvml::pcie_width(Device device) const {
  const std::optional<double> value = number("nvmlDeviceGetCurrPcieLinkWidth", device);
  return value ? std::optional<int>(static_cast<int>(*value)) : std::nullopt;
}

std::optional<std::vector<std::string>> Nvml::nvlinks(Device device) const {
  const auto state = symbol<Return (*)(Device, unsigned, int*)>("nvmlDeviceGetNvLinkState");
  const auto remote =
      symbol<Return (*)(Device, unsigned, PciInfo*)>("nvmlDeviceGetNvLinkRemotePciInfo_v2");
  const auto kind =
      symbol<Return (*)(Device, unsigned, int*)>("nvmlDeviceGetNvLinkRemoteDeviceType");
  if (device == nullptr || state == nullptr) return std::nullopt;
  std::vector<std::string> ends;
  for (unsigned link = 0; link < kMostLinks; ++link) {
    int up = 0;
    if (state(device, link, &up) != 0 || up == 0) continue;
    int type = -1;
    if (kind != nullptr && kind(device, link, &type) == 0 && type == kRemoteSwitch) {
      ends.emplace_back();
      continue;
    }
    PciInfo info = {};
    const bool known = remote != nullptr && remote(device, link, &info) == 0;
    ends.push_back(known ? address(info) : "");
  }
  return ends;
}

std::string Nvml::path(Device a, Device b) const {
  int level = -1;
  const auto ask = symbol<Return (*)(Device, Device, int*)>("nvmlDeviceGetTopologyCommonAncestor");
  if (a == nullptr || b == nullptr || ask == nullptr || ask(a, b, &level) != 0) return "";
  switch (level) {
    case 0:  // two GPUs of one board
    case 10: return "PIX";
    case 20: return "PXB";
    case 30: return "PHB";
    case 40: return "NODE";
    case 50: return "SYS";
    default: return "";
  }
}

}  // namespace trainyard::probe
