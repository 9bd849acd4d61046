// Whether two plans of one step are the same.
#pragma once

#include <algorithm>
#include <cstddef>
#include <string>

#include "sim/plan/step_plan.h"

namespace trainyard::testing {

// What the first role that differs differs in; empty: none does.
inline std::string role_difference(const plan::Role& a, const plan::Role& b) {
  const engine::Program &one = a.program, &other = b.program;
  const bool same_calls =
      std::equal(one.calls.begin(), one.calls.end(), other.calls.begin(), other.calls.end(),
                 [](const engine::Call& x, const engine::Call& y) {
                   return x.block == y.block && x.tag == y.tag;
                 });
  if (!engine::same_code(one, other)) return "blocks";
  if (one.labels != other.labels) return "labels";
  for (const std::string& label : one.labels.all())
    if (label.find('\x01') != std::string::npos)
      return "a label without the name of its place: " + label;
  if (one.streams != other.streams) return "streams";
  if (one.resident != other.resident) return "resident memory";
  if (!same_calls || a.round_calls != b.round_calls) return "calls";
  if (a.parameters != b.parameters || a.frozen != b.frozen) return "parameters";
  if (a.host.memory() != b.host.memory() || a.host.nvme != b.host.nvme) return "host memory";
  return {};
}
inline std::string role_difference(const plan::StepPlan& a, const plan::StepPlan& b) {
  if (a.cast.roles.size() != b.cast.roles.size()) return "roles";
  if (a.cast.kernels != b.cast.kernels) return "kernels";
  for (std::size_t i = 0; i < a.cast.roles.size(); ++i) {
    const std::string difference = role_difference(a.cast.roles[i], b.cast.roles[i]);
    if (!difference.empty()) return difference + " of role " + std::to_string(i);
  }
  return {};
}

}  // namespace trainyard::testing
