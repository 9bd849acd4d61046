// The best configurations of a search, without simulating those that cannot be among them.
//
//   All are judged by their bounds first (judge.h). What is left is simulated in the order of its
//   bounds, a few at a time, until the next one's bound is above the results of as many as are
//   wanted; of two objectives, until a result is as small in both as every bound that is left. As a
//   bound is never above the truth, nothing that would have been among the best is left out.
//
//   What is told of a search does not depend on what happened to be simulated: canonical() forgets
//   what lies beyond the last of the best, so that any number of threads and of shards, and a
//   search that was stopped and resumed, tell the same.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <vector>

#include "sim/scenario/search_spec.h"
#include "sim/search/judge.h"
#include "sim/search/space.h"
#include "sim/search/trial.h"

namespace trainyard::search {

// Every `count`-th configuration from number `index` on.
struct Shard {
  std::uint64_t index = 0, count = 1;
};

struct SearchProgress {
  std::uint64_t judged = 0, of = 0;  // configurations
  std::uint64_t simulated = 0;
  std::uint64_t left = 0;  // that may yet be simulated
};

struct SearchOptions {
  int jobs = 1;
  bool exhaustive = false;  // simulate all that may fit
  Shard shard{};
  // Called from several threads, one at a time.
  std::function<void(const SearchProgress&)> progress{};
  // Told of every configuration once, when no more is known of it than now. As above.
  std::function<void(const Trial&)> tell{};
  std::map<std::uint64_t, Trial> known{};  // of an earlier search of the same space, by number
};

// The configurations of the shard, by number. Requires: a space of a size that memory holds.
std::vector<Trial> search(const Judge& judge, const Space& space, const scenario::SearchSpec& spec,
                          const SearchOptions& options);

// What is as small as can be in one objective, or in one of two without more of the other. Of
// configurations with the same result the first counts.
struct Ranking {
  std::vector<std::size_t> best;  // into the trials, the best first; of two the front by the first
  std::vector<double> last;  // of one objective: that of the last wanted; empty: fewer are there
};
Ranking rank(const std::vector<Trial>& trials, const scenario::SearchSpec& spec);

// Whether no result of a configuration with these bounds would change the ranking.
bool is_beaten(const std::vector<double>& least, const Ranking& ranking,
               const std::vector<Trial>& trials);

// Of configurations that are beaten by their bounds only those stay.
void canonical(std::vector<Trial>& trials, const scenario::SearchSpec& spec);

// What most sets a configuration back against the best one.
Cause cause_of(const Trial& trial, const Trial& best);
// Two ways to say the same. Requires: both have been simulated.
bool are_twins(const Trial& a, const Trial& b);

}  // namespace trainyard::search
