// From the machine line of samples (docs/samples.md) to presets that scenarios can name: the server
// with its links, and the GPU where none is shipped.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "sim/base/units.h"

namespace trainyard::fit {

struct MeasuredGpu {
  std::string name;          // as the driver says it
  int major = 0, minor = 0;  // compute capability; 0.0: not said
  int multiprocessors = 0;   // this and the following: 0 is not said
  double memory_bytes = 0, l2_bytes = 0;
  double memory_bus_bits = 0, memory_clock_mhz = 0;
  double clock_mhz = 0;
  int pcie_generation = 0, pcie_width = 0;
  int pcie_switch = -1;    // equal: below one switch; -1: not said
  int nvswitch_links = 0;  // NVLinks into switches
};

struct MeasuredNic {
  double megabits = 0;  // per second; 0: not said
  int gpus = 0;         // that have no nearer NIC
};

struct MeasuredMachine {
  std::vector<MeasuredGpu> gpus;          // at least one
  std::vector<std::vector<int>> nvlinks;  // empty: not said
  std::vector<MeasuredNic> nics;
  int sockets = 0;  // 0: not said
  std::string date;
};

// The last machine line of samples that is whole; lines that are no JSON are passed over (the fit
// reports them).
std::optional<MeasuredMachine> measured_machine(std::string_view samples);

// A GPU as configs/gpus has it, by its architecture's operations per clock and multiprocessor and
// by what the device says of itself.
struct GpuPreset {
  std::string name;  // "nvidia-h100-80gb-hbm3"
  Bytes memory, l2;
  BytesPerSecond memory_bandwidth;
  struct Peak {
    std::string dtype;
    FlopsPerSecond rate;
  };
  std::vector<Peak> peaks;
  int multiprocessors = 0;
};
// Nothing if the architecture is unknown or the device did not say enough.
std::optional<GpuPreset> gpu_preset(const MeasuredGpu& gpu);

struct ServerPreset {
  enum class Links { none, nvswitch, nvlink_mesh, pcie };
  struct Pair {
    int a = 0, b = 0, links = 0;
  };
  std::string name, description, source;
  std::string gpu;                   // a shipped preset; empty: `own_gpu`
  std::optional<GpuPreset> own_gpu;  // written into the server
  int gpus = 1;
  Links links = Links::none;
  BytesPerSecond bandwidth;  // per direction: of a GPU (nvswitch), a link (mesh), a slot (pcie)
  std::string latency;
  std::vector<Pair> mesh;
  int sockets = 0;                // 0: not said
  BytesPerSecond pcie_bandwidth;  // 0: not said
  int gpus_per_pcie_switch = 1;
  int nics = 0;
  BytesPerSecond nic_bandwidth;  // line rate of one; this and the following where there are NICs
  std::string nic_latency;
  double nic_efficiency = 1;
};

// Requires: `shipped_gpu` names a preset, or gpu_preset knows the machine's GPU. Rates of links are
// those of their generation: what was measured of them is in the profile. NICs are not measured;
// the preset has none.
ServerPreset server_preset(const MeasuredMachine& machine, std::string name,
                           std::string shipped_gpu);

// A server that another tool has described, and what that description leaves open.
struct DescribedServer {
  MeasuredMachine machine;
  std::string origin;                        // "nvidia-smi topo -m (topo.txt)"
  std::optional<ServerPreset::Links> links;  // instead of what the machine says
  BytesPerSecond nic_bandwidth;              // of one NIC; 0: as the machine says
  BytesPerSecond pcie_bandwidth;             // 0: as the machine says, else of the GPU's slot
  BytesPerSecond gpu_pcie_bandwidth;         // of its preset; 0: by the GPU's generation
  bool has_peers = true;  // false: over PCIe its GPUs copy through the host's memory
};

// Whether the machine says if NVLink joins its GPUs, and how many of its NICs a GPU has no nearer
// one than, and how many of these say their speed.
bool says_links(const MeasuredMachine& machine);
struct NicCount {
  int used = 0, with_speed = 0;
};
NicCount count_nics(const MeasuredMachine& machine);

// Rates of NVLinks and of unsaid PCIe slots are those of the generation of the GPU's compute
// capability; its `source` says which numbers are the description's, given, and assumed. Requires:
// says_links or links, a speed of every used NIC or nic_bandwidth, and a shipped GPU preset.
ServerPreset described_server(const DescribedServer& server, std::string name,
                              std::string shipped_gpu);

std::string server_preset_json(const ServerPreset& preset);  // a file of configs/servers

}  // namespace trainyard::fit
