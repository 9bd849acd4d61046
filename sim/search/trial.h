// What is known of one configuration of a search.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "sim/base/units.h"
#include "sim/simulate/report/step_report.h"

namespace trainyard::search {

enum class Verdict : std::uint8_t {
  invalid,       // the scenario would be refused
  same,          // as another, which is judged
  unwanted,      // the constraints of the search leave it out
  does_not_fit,  // in the memory of a GPU, or in what the search allows
  never_ends,    // a deadlock
  slower,        // cannot be among the best: that is known without a simulation
  simulated,
};

// Why a configuration takes its time, by the largest share.
enum class Cause : std::uint8_t { compute, recompute, tensor, bubble, exchange, update, other };

struct TrialResult {
  Duration step{};
  Bytes memory{};  // peak of the fullest GPU
  double mfu = 0;
  simulate::Breakdown breakdown{};  // of the rank that the step waits for
};

struct Trial {
  std::uint64_t number = 0;
  Verdict verdict = Verdict::invalid;
  std::string why;            // words; of a verdict other than slower and simulated
  std::vector<double> least;  // by objective: no less is possible; empty: not told
  Bytes least_memory{};       // the same of what a GPU holds
  Duration least_step{};      // the same of its step, where that is longer than it may be
  // Seconds of the bound by cause: what no step of the configuration can avoid.
  std::vector<double> causes;
  std::optional<TrialResult> result{};
  std::vector<double> objectives{};  // of the result
};

std::string_view name(Verdict verdict);
std::optional<Verdict> find_verdict(std::string_view name);
std::string_view words(Cause cause);
inline constexpr std::size_t kCauses = 7;

}  // namespace trainyard::search
