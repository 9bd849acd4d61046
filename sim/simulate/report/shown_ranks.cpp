#include "sim/simulate/report/shown_ranks.h"

#include <algorithm>
#include <map>

#include "sim/base/ends_first.h"

namespace trainyard::simulate {
namespace {

// At most `limit`.
std::vector<std::size_t> in_turn(const lower::Lowered& lowered, int limit) {
  std::map<int, std::vector<std::size_t>> of_role;
  for (std::size_t c = 0; c < lowered.classes.size(); ++c)
    of_role[lowered.classes[c].role].push_back(c);
  std::vector<const std::vector<std::size_t>*> in_order, by_role;
  for (const auto& [role, classes] : of_role)
    in_order.push_back(&classes);
  for (const std::size_t at : ends_first(in_order.size()))
    by_role.push_back(in_order[at]);
  std::vector<std::size_t> chosen;
  for (std::size_t turn = 0; static_cast<int>(chosen.size()) < limit; ++turn) {
    const std::size_t before = chosen.size();
    for (const std::vector<std::size_t>* classes : by_role)
      if (turn < classes->size() && static_cast<int>(chosen.size()) < limit)
        chosen.push_back((*classes)[turn]);
    if (chosen.size() == before) break;
  }
  return chosen;
}

std::uint64_t ops_of(const engine::Program& program) {
  std::uint64_t ops = 0;
  for (const engine::Call& call : program.calls)
    ops += program.blocks[call.block].ops.size();
  return ops;
}

}  // namespace

ShownClasses shown_classes(const lower::Lowered& lowered, const plan::Cast& cast,
                           const TimelineLimits& limits) {
  ShownClasses classes;
  std::uint64_t left = limits.ops;
  for (const std::size_t c : in_turn(lowered, limits.ranks)) {
    const auto role = static_cast<std::size_t>(lowered.classes[c].role);
    const std::uint64_t ops = ops_of(cast.roles[role].program);
    const bool is_shown = classes.shown.empty() || (classes.left_out.empty() && ops <= left);
    left -= std::min(left, ops);
    (is_shown ? classes.shown : classes.left_out).push_back(c);
    if (!is_shown) classes.ops_left_out += ops;
  }
  std::sort(classes.shown.begin(), classes.shown.end());
  std::sort(classes.left_out.begin(), classes.left_out.end());
  return classes;
}

}  // namespace trainyard::simulate
