// What `trainyard search` varies in a scenario, and what it looks for: the section /search.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "sim/base/units.h"
#include "sim/json/fields.h"
#include "sim/json/value.h"

namespace trainyard::scenario {

// What is as small as can be.
enum class Objective : std::uint8_t { step_time, training_time, dollars, energy, memory };
inline constexpr std::array<json::Choice<Objective>, 5> kObjectives = {
    {{"step_time", Objective::step_time},
     {"training_time", Objective::training_time},
     {"dollars", Objective::dollars},
     {"energy", Objective::energy},
     {"memory", Objective::memory}}};
std::string_view name(Objective objective);

// A key of the scenario and the values that are tried for it.
struct SearchAxis {
  std::string key;      // as written: "parallelism.tp"
  std::string pointer;  // "/parallelism/tp"
  bool automatic = false;
  std::vector<json::Value> values;  // none if automatic
  json::Place at;
};

struct SearchFixed {
  std::string pointer;
  json::Value value;
};

struct SearchSpec {
  std::vector<Objective> objectives;  // one, or the two of a Pareto front
  std::vector<SearchAxis> axes;       // in the order of the file; none: those that are usual
  std::vector<SearchFixed> fixed;
  std::optional<Bytes> memory;        // of a GPU, at most
  std::optional<Duration> step_time;  // at most
  std::optional<std::int64_t> least_batch, most_batch;
  std::size_t best = 10;  // configurations that are ranked
};

// "parallelism.tp" and "/parallelism/tp" -> "/parallelism/tp".
std::string pointer_of_key(std::string_view key);

// One is the other, or a key below it.
bool overlap(std::string_view a, std::string_view b);

}  // namespace trainyard::scenario
