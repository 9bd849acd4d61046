// Variants as a table for spreadsheets and scripts: RFC 4180, one row each, fastest first.
#pragma once

#include <span>
#include <string>

#include "sim/simulate/report/step_report.h"

namespace trainyard::report {

// Columns are those of summary.json by name, in SI units; what a variant does not have is empty.
// Requires: baseline < reports.size().
std::string compare_csv(std::span<const simulate::StepReport> reports, std::size_t baseline);

}  // namespace trainyard::report
