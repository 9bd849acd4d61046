// The whole training in words. Source of its numbers: training_total.h.
#pragma once

#include <string>

#include "sim/simulate/report/step_report.h"

namespace trainyard::simulate {

// "15.0 T tokens: 894 k steps, 21.3 days, 1.31 M GPU-hours"; empty if its length is not known.
// Without a step time only how many steps.
std::string describe_training(const StepReport& report);

// "$3.28 M at $2.50 a GPU-hour; 791 MWh in the GPUs (analytic)"; empty if neither is known.
std::string describe_price(const StepReport& report);

std::string days_text(double days);              // "21.3 days", "3.4 hours"
std::string dollars_text(double dollars);        // "$3.28 M"
std::string energy_text(double kilowatt_hours);  // "791 MWh"

}  // namespace trainyard::simulate
