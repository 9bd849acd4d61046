// Ways to fit as text for the terminal.
#pragma once

#include <string>

#include "sim/simulate/report/step_report.h"

namespace trainyard::simulate {

// "recomputation none -> full, micro-batch 4 -> 2": what is changed, in words.
std::string describe(const WayToFit& way);

// A heading and three lines for each way, the last of which can be pasted; what comes closest if
// nothing fits. Empty if no ways were looked for.
std::string ways_to_fit_text(const StepReport& report);

// The same with two lines for each way and no heading, indented, for a list of variants.
std::string short_ways_to_fit_text(const StepReport& report);

}  // namespace trainyard::simulate
