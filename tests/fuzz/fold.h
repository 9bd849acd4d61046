// Folded against unfolded, span by span.
#pragma once

#include <string>

#include "sim/simulate/step.h"

namespace trainyard::fuzz {

// Simulates every rank and one per class: the first difference between a rank's trace and that of
// its representative, in words; empty if all integers agree.
std::string fold_difference(const simulate::Job& job);

}  // namespace trainyard::fuzz
