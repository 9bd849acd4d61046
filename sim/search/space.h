// The configurations of a search: every combination of the values of its axes, by number. The last
// axis varies fastest.
//
//   A configuration is a merge patch of the scenario. An axis that means nothing beside the others
//   (a schedule without a pipeline, sharding without replicas) is left out of it, and only its
//   first value counts: the others are the same configuration.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "sim/json/value.h"
#include "sim/scenario/scenario.h"

namespace trainyard::search {

struct SpaceAxis {
  std::string key, pointer;
  std::vector<json::Value> values;
};

// A configuration, or why there is none to judge.
struct Configuration {
  std::vector<std::size_t> values;  // by axis
  bool same = false;                // as one that was before it
  std::string impossible;           // not valid whatever else a scenario says; else empty
};

// How many ranks a configuration has along each axis, as far as it says.
struct ChosenDegrees {
  std::int64_t tensor = 1, context = 1, pipeline = 1, expert = 1;
  std::optional<std::int64_t> data{};  // empty: what the others leave
};

class Space {
 public:
  // The axes of the spec, or those that are usual where it has none; their own values, or all that
  // the cluster and the network can take. Throws ScenarioError, at its place, where an axis has no
  // value, or has none that can be found by itself.
  Space(const scenario::ScenarioSet& set, const scenario::SearchSpec& spec);

  const std::vector<SpaceAxis>& axes() const { return axes_; }
  // Saturated: the product may not fit.
  std::uint64_t size() const;
  // "parallelism.tp 4 x training.micro_batch 8"
  std::string sizes() const;

  // Requires: number < size().
  Configuration configuration(std::uint64_t number) const;
  // Requires: a configuration that is possible, and not the same as another.
  json::Value patch(const Configuration& configuration) const;
  // The values as --set options write them, in the order of the axes.
  std::vector<std::string> sets(const Configuration& configuration) const;

 private:
  std::vector<std::size_t> values_of(std::uint64_t number) const;
  ChosenDegrees degrees(const std::vector<std::size_t>& values) const;
  bool is_idle(const std::string& pointer, const json::Value& value,
               const ChosenDegrees& degrees) const;
  // What a configuration says, by pointer; null: not even what the file says.
  std::vector<scenario::SearchFixed> said(const Configuration& configuration) const;

  const scenario::Scenario& base_;
  const json::Value& written_;  // what the file says
  std::vector<SpaceAxis> axes_;
  std::vector<scenario::SearchFixed> fixed_;
  std::int64_t gpus_ = 0;    // 0: an axis changes the cluster
  bool drops_data_ = false;  // the file's dp is none of the configurations'
};

// The values that "auto" stands for; empty: the key has none, or none that is valid. Requires: one
// of automatic_keys().
std::vector<json::Value> automatic_values(const std::string& pointer,
                                          const scenario::Scenario& scenario);
std::vector<std::string> automatic_keys();

}  // namespace trainyard::search
