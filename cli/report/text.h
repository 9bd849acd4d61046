// The same results for a terminal of 80 columns.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "sim/simulate/report/step_report.h"

namespace trainyard::report {

struct TextOptions {
  bool colour = false;  // ANSI colours; the caller knows whether a terminal reads it
  bool ascii = false;   // bars of '#' instead of block characters
};

// One screen: step time, throughput, MFU, memory, where the time goes, what the numbers rest on.
std::string to_text(const simulate::StepReport& report, const TextOptions& options = {});

// What the report's monitor saw of the GPU that the step waits for, in the columns of nvidia-smi
// dmon (docs/guide/monitor.md), at most `most_rows` of them; empty without one.
std::string monitor_text(const simulate::StepReport& report, std::size_t most_rows);

// What owning costs by use, and what was spent over the years; empty if it was not asked.
std::string cloud_or_own_text(const simulate::StepReport& report);

// One row per variant, fastest first, with the speed-up over the baseline, and what is to be taken
// away.
// Requires: baseline < reports.size().
std::string compare_text(std::string_view title, std::span<const simulate::StepReport> reports,
                         std::size_t baseline, const TextOptions& options = {});

}  // namespace trainyard::report
