// The driver's management library, loaded when the program runs: where it is absent, what it would
// have said is left out. Never linked, and its header is not needed.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace trainyard::probe {

class Nvml {
 public:
  Nvml();  // loads libnvidia-ml.so.1; without it every answer is empty
  ~Nvml();
  Nvml(const Nvml&) = delete;
  Nvml& operator=(const Nvml&) = delete;

  using Device = void*;
  bool loaded() const { return loaded_; }
  std::string driver() const;                         // "" if not said
  Device device(const std::string& pci) const;        // null if unknown
  std::optional<double> clock_mhz(Device) const;      // of the multiprocessors, now
  std::optional<double> max_clock_mhz(Device) const;  // highest
  std::optional<double> memory_clock_mhz(Device) const;
  std::optional<double> power_w(Device) const;       // the driver's average of about a second
  std::optional<int> pcie_generation(Device) const;  // now: less than the most while idle
  std::optional<int> pcie_width(Device) const;
  // NVLinks that are up, each with the PCI address of its other end in lower case ("" if the other
  // end is a switch).
  std::optional<std::vector<std::string>> nvlinks(Device) const;
  // "PIX", "PXB", "PHB", "NODE" or "SYS" as nvidia-smi says it; "" if not said.
  std::string path(Device a, Device b) const;

 private:
  template <class Function>
  Function symbol(const char* name) const;
  std::optional<double> clock(const char* function, Device device, int which) const;
  std::optional<double> number(const char* function, Device device) const;

  void* library_ = nullptr;
  bool loaded_ = false;
};

}  // namespace trainyard::probe
