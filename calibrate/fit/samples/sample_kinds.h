// The kinds of lines that docs/samples.md lists.
#pragma once

#include <optional>
#include <string>

#include "calibrate/fit/samples/sample_line.h"
#include "calibrate/fit/samples/samples.h"

namespace trainyard::fit {

Machine read_machine(SampleLine& line);

// Mistakes are noted in the line's diagnostics. Nothing for an unknown kind.
std::optional<Sample> read_sample(const std::string& kind, SampleLine& line);

}  // namespace trainyard::fit
