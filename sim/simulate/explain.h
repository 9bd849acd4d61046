// The values between a scenario and its result, as text for `trainyard explain --stage`.
#pragma once

#include <array>
#include <string>
#include <string_view>

#include "sim/scenario/scenario.h"

namespace trainyard::simulate {

struct ExplainStage {
  std::string_view name;
  std::string_view summary;
};
inline constexpr std::array<ExplainStage, 7> kExplainStages = {{
    {"ranks", "which rank has which coordinates, on which server"},
    {"layers", "which layers are on which stage and chunk"},
    {"memory", "what a rank of each stage holds, before and during the step"},
    {"kernels", "every kernel with its predicted time and the basis of it"},
    {"transfers", "every message and collective with its predicted time"},
    {"classes", "which ranks are simulated for all, and their programs"},
    {"links", "every link of the cluster: bytes a second, picoseconds, its ends"},
}};

// Requires: a name of kExplainStages. Ends with a newline. Simulates the step where the stage needs
// it.
std::string explain_stage(const scenario::Scenario& scenario, std::string_view stage);

}  // namespace trainyard::simulate
