// What a reader takes away from a report.
#pragma once

#include <string>

#include "sim/simulate/report/step_report.h"

namespace trainyard::simulate {

// Whether it runs, how fast, for how much: "Fits with 12.3 GiB to spare: a step takes 20.1 s, 209 k
// tokens/s at 61.2 % MFU; 15.0 T tokens take 21.3 days and $3.28 M." One sentence.
std::string verdict(const StepReport& report);

// The finding that costs most, and what it costs: "Pipeline bubble: 12.1 % of the step (2.43 s),
// ... That is 2.6 days of the training and $398 k." Empty if no part is worth one.
std::string costliest(const StepReport& report);

}  // namespace trainyard::simulate
