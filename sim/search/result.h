// What a search comes to: the best, what limits each of them, and why the others lose.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "sim/search/best.h"

namespace trainyard::search {

struct RankedTrial {
  Trial trial;
  std::vector<std::string> sets;    // the --set options that make it
  std::vector<std::string> values;  // by axis, as written; empty: it means nothing here
};

// So many configurations, and in words what they are or why.
struct Count {
  std::uint64_t count = 0;
  std::string words;
};

struct SearchResult {
  std::string name;
  int gpus = 0;  // of the scenario as it is
  std::string gpu;
  std::vector<scenario::Objective> objectives;
  std::vector<std::string> axes;  // keys
  std::uint64_t configurations = 0, simulated = 0;
  std::vector<RankedTrial> best;  // of two objectives the Pareto front
  // Where there is no best: of what was simulated, fits and takes too long the shortest; else of
  // what may fit that which must take the least; else that which must hold the least.
  enum class Need { simulated_time, time, memory };
  struct Nearest {
    std::vector<std::string> sets;
    std::string why;
    Need need = Need::memory;
  };
  std::optional<Nearest> nearest;
  // Of all that are not the best; each list the largest first.
  std::uint64_t invalid = 0, same = 0, unwanted = 0, does_not_fit = 0, never_ends = 0,
                beaten = 0;  // by a bound
  std::vector<Count> why_invalid, why_unwanted;
  std::vector<Count> why_slower;  // of those beaten and those simulated that are not the best
  // Exhaustive: what bounds would have left out, and of these what is among the best.
  std::uint64_t would_leave_out = 0, would_lose = 0;
  bool exhaustive = false;
};

// Requires: trials of all configurations, by number.
SearchResult result_of(std::vector<Trial> trials, const scenario::ScenarioSet& set,
                       const scenario::SearchSpec& spec, const Space& space, bool exhaustive);

// What a step of it waits for most, with shares: "bubble 12 %, exposed tp 8 %".
std::string limits(const TrialResult& result);

json::Value json_of(const SearchResult& result);

}  // namespace trainyard::search
