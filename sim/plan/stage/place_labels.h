// Programs of stages that differ in nothing but which places of the network they hold are alike but
// for names: labels are written with a sign for each place, and named when the program is done.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "sim/engine/labels.h"

namespace trainyard::plan {

struct StepPlan;

// What stands in a label for StepPlan::name_of(place).
std::string place_sign(int place);

// The place of the sign that begins at `at`, which is then behind it; -1: none does.
int sign_at(const std::string& label, std::size_t& at);
bool tells_of_place(const std::string& label);

// The labels with a name for each sign, which stand in their `where`. `moved`: by place, of which
// one it is the sign; empty: of itself.
engine::Labels with_names(const engine::Labels& labels, const StepPlan& step,
                          std::span<const int> moved = {});

}  // namespace trainyard::plan
