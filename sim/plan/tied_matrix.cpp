#include "sim/plan/tied_matrix.h"

#include <algorithm>

#include "sim/schedule/chunk_placement.h"

namespace trainyard::plan {

using models::NetworkWork;
using models::WeightMatrix;

namespace {

std::int64_t tied_at(const NetworkWork& work, int place) {
  const auto kind = static_cast<std::size_t>(work.chain[static_cast<std::size_t>(place)]);
  return work.kinds[kind].tied_parameters;
}

// The stage of a place in one copy of the network.
int stage_of(const StepPlan& step, int place) {
  int at = 0;
  while (place >= step.layers[static_cast<std::size_t>(at)].last)
    ++at;
  return seat(step.shape, at, 0).stage;
}

}  // namespace

namespace {

// Whether an earlier place of the stage uses the matrix that is tied to the embedding.
bool is_shared(const StepPlan& step, const NetworkWork& work, int place) {
  for (int other = 0; other < place; ++other) {
    const auto kind = static_cast<std::size_t>(work.chain[static_cast<std::size_t>(other)]);
    const bool uses = other == 0 || tied_at(work, other) > 0 || work.kinds[kind].frozen.tied > 0;
    if (uses && stage_of(step, other) == stage_of(step, place)) return true;
  }
  return false;
}

}  // namespace

std::int64_t tied_with_earlier(const StepPlan& step, const NetworkWork& work, int place) {
  const std::int64_t tied = tied_at(work, place);
  return tied > 0 && is_shared(step, work, place) ? tied : 0;
}

models::FrozenWeights own_frozen(const StepPlan& step, const NetworkWork& work, int place) {
  const auto kind = static_cast<std::size_t>(work.chain[static_cast<std::size_t>(place)]);
  models::FrozenWeights own = work.kinds[kind].frozen;
  if (own.tied > 0 && is_shared(step, work, place)) own.parameters -= own.tied;
  return own;
}

std::int64_t tied_with_later(const StepPlan& step, const NetworkWork& work, int place) {
  if (place > 0 && tied_at(work, place) == 0) return 0;
  for (int other = place + 1; other < static_cast<int>(work.chain.size()); ++other) {
    const std::int64_t tied = tied_at(work, other);
    if (tied > 0 && stage_of(step, other) == stage_of(step, place)) return tied;
  }
  return 0;
}

std::vector<WeightMatrix> own_matrices(const StepPlan& step, const NetworkWork& work, int place) {
  const auto kind = static_cast<std::size_t>(work.chain[static_cast<std::size_t>(place)]);
  std::vector<WeightMatrix> matrices = work.kinds[kind].matrices;
  const std::int64_t tied = tied_with_earlier(step, work, place);
  if (tied == 0) return matrices;
  const auto found = std::find_if(matrices.begin(), matrices.end(),
                                  [&](const WeightMatrix& own) { return own.elements() == tied; });
  if (found != matrices.end()) matrices.erase(found);
  return matrices;
}

}  // namespace trainyard::plan
