// The whole training in words. Source of its numbers: training_total.h.
#pragma once

#include <string>
#include <vector>

#include "sim/simulate/report/step_report.h"

namespace trainyard::simulate {

// "15.0 T tokens: 894 k steps, 21.3 days, 1.31 M GPU-hours"; empty if its length is not known.
// Without a step time only how many steps.
std::string describe_training(const StepReport& report);

// "$3.28 M at $2.50 a GPU-hour; 791 MWh in the GPUs (analytic)"; empty if neither is known.
std::string describe_price(const StepReport& report);

// "3.1 kJ a step, 0.42 J a token; 583 W a GPU (analytic)"
std::string describe_energy(const StepEnergy& energy);

// Lines: "own $2.22 a GPU-hour, rented $2.50", what is in it, "own pays after 3.37 years (20.7 k
// hours of training)", from which use on.
std::vector<std::string> describe_cloud_or_own(const CloudOrOwn& found);

std::string years_text(double years);            // "3.37 years", "14.2 months"
std::string days_text(double days);              // "21.3 days", "3.4 hours"
std::string dollars_text(double dollars);        // "$3.28 M"
std::string energy_text(double kilowatt_hours);  // "791 MWh"

}  // namespace trainyard::simulate
