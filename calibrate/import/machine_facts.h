// What a description of one server says of its links, whatever its format; it becomes the machine
// line of samples (docs/samples.md), from which presets are made.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "calibrate/import/line_diagnostics.h"

namespace trainyard::imports {

struct GpuFacts {
  std::string name;
  std::string compute_capability;           // "9.0"; empty: not said
  int numa = -1;                            // -1: not said
  int pcie_generation = 0, pcie_width = 0;  // 0: not said
  int pcie_switch = -1;                     // equal: below one switch; -1: not said
  int switch_links = 0;                     // NVLinks into switches
};

struct NicFacts {
  std::string name;
  std::int64_t megabits = 0;  // per second; 0: not said
  int numa = -1;
  std::vector<int> gpus;  // those that have no nearer NIC
};

struct MachineFacts {
  std::string probe;
  std::vector<GpuFacts> gpus;
  std::vector<NicFacts> nics;
  std::vector<std::vector<int>> nvlinks;        // of each GPU to each other; empty: not said
  std::vector<std::vector<std::string>> words;  // NV#, PIX, ... of each GPU to each other
  int sockets = 0;                              // NUMA nodes that hold devices; 0: not said
};

json::Value machine_line(const MachineFacts& facts);

// A preset spreads GPUs over NUMA nodes, PCIe switches and NICs evenly and in order, and all its
// NICs are equal. Warns of what this server does otherwise.
void warn_of_uneven(const MachineFacts& facts, Notes& notes);

}  // namespace trainyard::imports
