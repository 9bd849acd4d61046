// What steps came to, for whoever asks for the same scenario again: variants of a grid are ways to
// fit of each other.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

#include "sim/simulate/report/step_report.h"

namespace trainyard::search {

// Of several threads, and of scenarios of one set.
class KnownSteps {
 public:
  struct Step {
    std::uint64_t entries = 0;                      // of its plan: kernels and ops
    bool may_fit = false;                           // by the ledger of memory
    bool simulated = false;                         // or else the ledger was enough
    std::optional<simulate::StepReport> outline{};  // nothing: it was not, or it cannot be
  };

  std::optional<Step> find(const std::string& scenario) const {
    const std::lock_guard lock(mutex_);
    const auto known = steps_.find(scenario);
    if (known == steps_.end()) return std::nullopt;
    return known->second;
  }
  // Whoever was first or simulated it.
  void add(std::string scenario, const Step& step) {
    const std::lock_guard lock(mutex_);
    const auto [known, is_new] = steps_.try_emplace(std::move(scenario), step);
    if (!is_new && step.simulated) known->second = step;
  }

 private:
  mutable std::mutex mutex_;
  std::map<std::string, Step> steps_;
};

}  // namespace trainyard::search
