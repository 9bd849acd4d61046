// What a framework does where a scenario says nothing: files of configs/software, one habit a row.
#pragma once

#include <string>
#include <vector>

#include "sim/base/diagnostic.h"
#include "sim/json/value.h"
#include "sim/scenario/assumption.h"
#include "sim/scenario/sources.h"

namespace trainyard::scenario {

// Sets what the software that `scenario` names does by habit and the scenario does not say itself.
// A habit may hold under conditions on other keys; they see what is said and the habits before it.
// Requires: presets are expanded. A name that is not known is reported and sets nothing.
void apply_software(json::Value& scenario, const Places& places,
                    std::vector<Diagnostic>& diagnostics);

// The path of the file of software in a configs folder, by its own name or another that it has;
// empty: there is none.
std::string software_file(const std::string& name, const std::string& configs);

// Takes away what apply_software has set, so that it can be decided again.
void forget_software(json::Value& scenario, const Places& places);

// What apply_software has set, as assumptions with the source of each.
std::vector<Assumption> habits_in_force(const json::Value& scenario, const Places& places);

}  // namespace trainyard::scenario
