#include "sim/cost/residuals.h"

#include <algorithm>
#include <cmath>

#include "sim/base/power.h"

namespace trainyard::cost {
namespace {

// Neighbours that are heard, and the distance (in doublings of a size) at which none is any more.
// A choice of method, tested on families of shapes that were left out: docs/cost-gemm.md.
constexpr std::size_t kNeighbours = 16;
constexpr double kReach = 2;

std::array<double, 4> logs(std::int64_t m, std::int64_t n, std::int64_t k, std::int64_t batch) {
  return {binary_log(static_cast<double>(m)), binary_log(static_cast<double>(n)),
          binary_log(static_cast<double>(k)), binary_log(static_cast<double>(batch))};
}

}  // namespace

GemmResiduals::GemmResiduals(const std::vector<GemmResidual>& rows) {
  for (const GemmResidual& row : rows)
    (row.batch > 1 ? batched_ : single_)
        .push_back({logs(row.m, row.n, row.k, row.batch), row.factor});
}

Residual GemmResiduals::at(const models::Gemm& gemm) const {
  const std::vector<Row>& rows = gemm.batch > 1 ? batched_ : single_;
  if (rows.empty()) return {};
  const std::array<double, 4> here = logs(gemm.m, gemm.n, gemm.k, gemm.batch);
  std::vector<Near> near;  // the nearest so far, sorted; of equal ones the first rows
  near.reserve(kNeighbours + 2);
  for (const Row& row : rows) {
    double squared = 0;
    for (std::size_t i = 0; i < here.size(); ++i)
      squared += (row.at[i] - here[i]) * (row.at[i] - here[i]);
    if (near.size() > kNeighbours && squared >= near.back().squared) continue;
    const auto after = std::upper_bound(near.begin(), near.end(), squared,
                                        [](double d, const Near& n) { return d < n.squared; });
    near.insert(after, {squared, row.factor});
    if (near.size() > kNeighbours + 1) near.pop_back();
  }
  return between(near);
}

Residual GemmResiduals::between(const std::vector<Near>& near) {
  const double nearest = near.front().squared;
  if (nearest == 0) return {near.front().factor, true};
  if (nearest >= kReach * kReach) return {};
  // 1/d - 1/r with r the distance of the first that is not heard. More rows at one distance than
  // are heard count alike.
  const bool all_heard = near.size() <= kNeighbours;
  const bool alike = !all_heard && near.back().squared <= nearest;
  const double less = all_heard || alike ? 0 : 1 / std::sqrt(near.back().squared);
  double weights = 0, sum = 0;
  for (const Near& row : near) {
    const double weight = 1 / std::sqrt(row.squared) - less;
    weights += weight;
    sum += weight * row.factor;
  }
  const double heard = 1 - nearest / (kReach * kReach);
  return {1 + heard * (sum / weights - 1), false};
}

std::optional<BatchResidual> find_residual(const std::vector<ConvolutionResidual>& rows,
                                           const models::Convolution& convolution) {
  const ConvolutionResidual* below = nullptr;  // the largest batch up to this one
  const ConvolutionResidual* above = nullptr;
  for (const ConvolutionResidual& row : rows) {
    models::Convolution shape = row.shape;
    shape.batch = convolution.batch;
    shape.dtype = convolution.dtype;
    if (!(shape == convolution)) continue;
    const std::int64_t batch = row.shape.batch;
    if (batch <= convolution.batch && (!below || batch > below->shape.batch)) below = &row;
    if (batch >= convolution.batch && (!above || batch < above->shape.batch)) above = &row;
  }
  if (!below && !above) return std::nullopt;
  if (!below || !above) return BatchResidual{(below ? below : above)->factor, false, true};
  if (below->shape.batch == above->shape.batch) return BatchResidual{below->factor, true, false};
  const auto doublings = [](std::int64_t batch) { return binary_log(static_cast<double>(batch)); };
  const double along = (doublings(convolution.batch) - doublings(below->shape.batch)) /
                       (doublings(above->shape.batch) - doublings(below->shape.batch));
  return BatchResidual{below->factor + along * (above->factor - below->factor), false, false};
}

}  // namespace trainyard::cost
