// A GPU over the step as a monitor shows it: equal samples, each the mean of its time.
// Definitions and what nvidia-smi calls them: docs/guide/monitor.md.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "sim/base/units.h"

namespace trainyard::simulate {

struct Traffic {
  std::int64_t in = 0, out = 0;  // bytes
};

// Of [begin, begin + length).
struct MonitorSample {
  Duration begin{}, length{};
  // Shares of the time: a kernel of any stream is on the GPU, be it one that waits for other
  // GPUs; a kernel of the compute stream runs; multiprocessors that either of them holds.
  double busy = 0, kernels = 0, multiprocessors = 0;
  double memory_controller = 0;   // bytes that kernels move over what memory moves at most
  Bytes memory;                   // the most that is live
  Traffic pcie, links;            // links: NVLink and its kin
  std::optional<double> watts;    // empty: the GPU's power is not known
  std::optional<double> celsius;  // when the sample ends; empty: its cooling is not known
};

struct MonitoredRank {
  int rank = 0, count = 1, stage = 0;  // representative, ranks it stands for
  Bytes held, capacity;                // held: as a driver shows it, allocators give nothing back
  std::optional<double> joules;        // in the step
  std::vector<MonitorSample> samples;
};

struct Monitor {
  Duration interval{};  // the last sample may be shorter
  std::string gpu;
  std::vector<MonitoredRank> ranks;  // those of the timeline that are on GPUs
};

// Samples of a monitor whose interval nobody chose, and the most that one may have.
inline constexpr int kMonitorSamples = 240;
inline constexpr std::int64_t kMostMonitorSamples = 100'000;

// As many samples as `rows` at most, each the mean of as many neighbours; bytes are added up.
// Requires: rows >= 1.
MonitoredRank coarser(const MonitoredRank& rank, std::size_t rows);

// {"interval_s", "gpu", "columns": [...], "ranks": [{"rank", ..., "busy": [...], ...}]}
std::string monitor_json(const Monitor& monitor, int indent = -1);

}  // namespace trainyard::simulate
