// The field table of profile files, for the reader, the schema and the explanation of a scenario.
#pragma once

#include "sim/cost/profile.h"
#include "sim/json/fields.h"

namespace trainyard {

void visit_fields(json::Fields& f, Profile& profile);

}  // namespace trainyard
