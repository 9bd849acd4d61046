// Scenarios on clusters of several kinds, written as their tests need them.
#pragma once

#include <fmt/format.h>

#include <string>
#include <vector>

#include "sim/simulate/simulate.h"
#include "tests/scenario/temporary.h"

namespace trainyard::test {

inline scenario::Scenario scenario_of(const std::string& more,
                                      const std::vector<std::string>& sets = {}) {
  Folder folder("mixed");
  const std::string text = R"({"version": 1, "name": "mixed", )" + more + "}";
  return load_scenario(folder.write("s.json", text), sets).base;
}

inline constexpr const char* kGpt =
    R"("model": { "layers": 8, "hidden": 1024, "heads": 16, "vocab": 32000 },
  "training": { "global_batch": 32, "micro_batch": 2, "sequence_length": 1024,
    "precision": { "compute": "fp16" }, "optimizer": { "type": "adam" } })";

}  // namespace trainyard::test
