#include "sim/plan/replicas/parts/cycles/fuse_by_cycles.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>

#include "sim/base/check.h"

namespace trainyard::plan {

namespace {

// That the first rank takes to read a request, find its entry and count it. Assumed.
constexpr double kRequest = 1e-6;

}  // namespace

void add_agreement(CycleTerms& terms, int ranks, double latency, bool remembered) {
  const auto rounds = static_cast<double>(std::bit_width(static_cast<unsigned>(ranks - 1)));
  terms.agreement = (remembered ? 1 : 4) * rounds * latency;
  terms.agreement_each = remembered ? 0 : ranks * kRequest;
}

std::vector<FusedGradients> fuse_by_cycles(std::span<const CalledGradient> gradients,
                                           const CycleTerms& terms) {
  TRAINYARD_CHECK(terms.cycle > 0, "a cycle of {} s", terms.cycle);
  std::vector<FusedGradients> fused;
  if (gradients.empty()) return fused;
  const double idle = std::max(terms.cycle, terms.agreement);
  double left = 0;  // when the group before did
  double look = gradients.front().called + terms.cycle / 2;
  for (std::size_t next = 0; next < gradients.size();) {
    if (const double behind = gradients[next].called - look; behind > 0)
      look += std::ceil(behind / idle) * idle;
    std::size_t found = next;
    while (found < gradients.size() && gradients[found].called <= look)
      ++found;
    double now = look + terms.agreement + terms.agreement_each * static_cast<double>(found - next);
    while (next < found) {
      FusedGradients group;
      Bytes bytes;
      double made = 0;
      do {
        bytes = bytes + gradients[next].bytes;
        made = std::max(made, gradients[next].made);
        ++group.tensors;
        ++next;
      } while (next < found && bytes + gradients[next].bytes <= terms.buffer);
      now = std::max(now, made);
      group.late = now - std::max(made, left);
      left = now;
      fused.push_back(group);
    }
    look = std::max(now, look + terms.cycle);
  }
  return fused;
}

}  // namespace trainyard::plan
