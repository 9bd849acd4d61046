// Jobs that share the cluster of a scenario.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "sim/json/value.h"
#include "sim/scenario/scenario.h"
#include "sim/scenario/topics/assemble.h"

namespace trainyard::scenario {

// The document of /other_jobs/`at` as if that job were alone: the scenario's without its other jobs
// and without what belongs to its own job alone, with the merge patch. Nothing, with diagnostics,
// where the patch changes what the jobs share. Requires: that section was read without an error.
std::optional<json::Value> document_of_job(const json::Value& scenario, std::size_t at,
                                           std::vector<Diagnostic>& diagnostics);

// Whether the jobs of a scenario can be simulated together, and each has GPUs of its own.
void validate_other_jobs(const Scenario& scenario, Findings& findings);

}  // namespace trainyard::scenario
