// A plan made small while it still fails.
#pragma once

#include <string>

#include "tests/fuzz/child.h"
#include "tests/fuzz/examine.h"
#include "tests/fuzz/plan.h"

namespace trainyard::fuzz {

// What a child has found; an empty invariant is no finding.
Finding finding_of(const Ending& ending);
// Examines a plan in a child.
Finding finding_in(const Plan& plan);

// The plan without all that can be left out while the invariant is still found broken.
Plan shrunk(const Plan& plan, const std::string& invariant);

}  // namespace trainyard::fuzz
