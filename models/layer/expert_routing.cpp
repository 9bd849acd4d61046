// E experts, k of them for a token, M parts of w = E/M experts each.
//
//   without groups   M (1 - C(E - w, k) / C(E, k))
//   T of G groups    M (1 - sum over j of P(j) C(F - x_j, k) / C(F, k)),  F = T E / G
//
// where x_j experts of the part are in chosen groups with probability P(j): every choice of T
// groups and then of k experts in them is equally likely. If parts are the groups this is
// T (1 - C(F - w, k) / C(F, k)), and never more than T.
//
//   Domain: even calls of all experts. Products of ratios instead of binomials, so nothing
//   overflows.
// Source: the counting is elementary (inclusion of none); groups are DeepSeek-V3's node-limited
// routing, DeepSeek-AI, 2024, section 2.1.2, and n_group, topk_group of its config.json.
#include "models/layer/expert_routing.h"

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "sim/base/check.h"

namespace trainyard::models {
namespace {

// C(all - taken, k) / C(all, k): none of k different ones is among `taken`.
double none_of(std::int64_t all, std::int64_t taken, std::int64_t k) {
  double chance = 1;
  for (std::int64_t i = 0; i < k; ++i) {
    if (all - taken <= i) return 0;
    chance *= static_cast<double>(all - taken - i) / static_cast<double>(all - i);
  }
  return chance;
}

// The probability that no expert of a part is called. `shared`: experts that it has of each group,
// zeros left out.
double unvisited(const Routing& routing, const std::vector<std::int64_t>& shared) {
  // Weights by groups chosen so far, and experts of the part in them.
  std::map<std::pair<std::int64_t, std::int64_t>, double> states = {{{0, 0}, 1.0}};
  std::int64_t seen = 0;
  for (const std::int64_t experts : shared) {
    std::map<std::pair<std::int64_t, std::int64_t>, double> next;
    for (const auto& [state, chance] : states) {
      const double chosen = static_cast<double>(routing.top_groups - state.first) /
                            static_cast<double>(routing.groups - seen);
      if (chosen > 0) next[{state.first + 1, state.second + experts}] += chance * chosen;
      if (chosen < 1) next[state] += chance * (1 - chosen);
    }
    states = std::move(next);
    ++seen;
  }
  const std::int64_t offered = routing.top_groups * (routing.experts / routing.groups);
  double sum = 0;
  for (const auto& [state, chance] : states)
    sum += chance * none_of(offered, state.second, routing.top_k);
  return sum;
}

}  // namespace

double parts_visited(const Routing& routing, std::int64_t parts) {
  TRAINYARD_CHECK(routing.groups >= 1 && routing.experts % routing.groups == 0,
                  "{} groups of {} experts", routing.groups, routing.experts);
  const std::int64_t in_group = routing.experts / routing.groups;
  TRAINYARD_CHECK(routing.top_k >= 1 && routing.top_k <= routing.top_groups * in_group,
                  "{} experts of {} groups", routing.top_k, routing.top_groups);
  std::map<std::vector<std::int64_t>, double> known;  // parts that lie alike in the groups
  double visited = 0;
  for (std::int64_t part = 0; part < parts; ++part) {
    const std::int64_t first = routing.experts * part / parts;
    const std::int64_t end = routing.experts * (part + 1) / parts;
    std::vector<std::int64_t> shared;
    for (std::int64_t at = first; at < end;) {
      const std::int64_t next = std::min(end, (at / in_group + 1) * in_group);
      shared.push_back(next - at);
      at = next;
    }
    const auto [at, added] = known.try_emplace(std::move(shared), 0.0);
    if (added) at->second = unvisited(routing, at->first);
    visited += 1 - at->second;
  }
  return visited;
}

}  // namespace trainyard::models
