#include "sim/simulate/outlook/interval.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>

#include "sim/base/text.h"

namespace trainyard::simulate {

namespace {

constexpr int kLeastSteps = 10;

std::string with_profile(const EstimateClass& of) {
  return fmt::format("{}, {}", of.network,
                     of.profile ? "a profile of its GPU" : "no profile of its GPU");
}

// Classes that an estimate is in, narrow to wide.
struct Level {
  bool (*holds)(const EstimateClass& of, const EstimateClass& step);
  std::string (*name)(const EstimateClass& of);
  bool is_of_kind = true;
};
constexpr std::array<Level, 4> kLevels = {{
    {[](const EstimateClass& of, const EstimateClass& step) {
       return of.network == step.network && of.profile == step.profile &&
              of.one_server == step.one_server;
     },
     [](const EstimateClass& of) { return describe(of); }},
    {[](const EstimateClass& of, const EstimateClass& step) {
       return of.network == step.network && of.profile == step.profile;
     },
     with_profile},
    {[](const EstimateClass& of, const EstimateClass& step) { return of.network == step.network; },
     [](const EstimateClass& of) { return of.network; }},
    {[](const EstimateClass&, const EstimateClass&) { return true; },
     [](const EstimateClass&) { return std::string("any network"); }, false},
}};

}  // namespace

std::string describe(const EstimateClass& of) {
  return fmt::format("{}, {}", with_profile(of), of.one_server ? "one server" : "several servers");
}

std::string describe(const Interval& interval, Duration step) {
  const std::string_view side = interval.low > step    ? " took longer"
                                : interval.high < step ? " were faster"
                                                       : "";
  return fmt::format("{} to {}: 8 of 10 like it{}", to_text(interval.low), to_text(interval.high),
                     side);
}

std::optional<Interval> interval(const std::vector<StepError>& errors, const EstimateClass& of,
                                 Duration step) {
  for (const Level& level : kLevels) {
    std::vector<double> found;
    for (const StepError& row : errors)
      if (level.holds(of, row.of)) found.push_back(row.error);
    if (static_cast<int>(found.size()) < kLeastSteps) continue;
    std::sort(found.begin(), found.end());
    // Outwards to a step that was compared.
    const std::size_t cut = (found.size() - 1) / 10;
    const auto measured = [&](double error) { return to_duration(Seconds(step) / (1 + error)); };
    Interval out;
    out.low = measured(found[found.size() - 1 - cut]);
    out.high = measured(found[cut]);
    out.steps = static_cast<int>(found.size());
    out.of = level.name(of);
    out.is_of_kind = level.is_of_kind;
    return out;
  }
  return std::nullopt;
}

}  // namespace trainyard::simulate
