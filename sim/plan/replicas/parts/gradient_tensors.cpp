#include "sim/plan/replicas/parts/gradient_tensors.h"

#include <utility>
#include <variant>

#include "sim/plan/tied_matrix.h"

namespace trainyard::plan {

namespace {

// Parameters whose gradient a kernel makes.
std::int64_t gradient_made_by(const models::NamedKernel& named) {
  if (!named.weight_gradient) return 0;
  if (const auto* gemm = std::get_if<models::Gemm>(&named.kernel))
    return gemm->m * gemm->n * gemm->batch;
  if (const auto* conv = std::get_if<models::Convolution>(&named.kernel))
    return conv->out_channels * (conv->in_channels / conv->groups) * conv->kernel_height *
           conv->kernel_width;
  return 0;
}

}  // namespace

Tensors GradientTensors::of(const std::vector<models::WeightMatrix>& matrices,
                            std::int64_t parameters, std::size_t group) const {
  Tensors tensors;
  const std::vector<models::WeightMatrix> own = context_.groups[group].matrices(matrices);
  for (auto matrix = own.rbegin(); matrix != own.rend(); ++matrix) {
    tensors.insert(tensors.end(), static_cast<std::size_t>(matrix->count), matrix->each());
    parameters -= matrix->elements();
  }
  if (parameters > 0) tensors.push_back(parameters);
  return tensors;
}

const std::array<Tensors, 2>& GradientTensors::at(int place) const {
  if (std::exchange(known_place_, place) == place) return known_;
  const std::vector<models::WeightMatrix> matrices =
      own_matrices(context_.step, context_.work, place);
  for (std::size_t group = 0; group < known_.size(); ++group)
    known_[group] = of(matrices, context_.updated_at(context_.groups[group], place), group);
  return known_;
}

std::vector<MadeTensor> GradientTensors::made(const std::array<Tensors, 2>& tensors,
                                              const std::vector<models::WorkItem>& backward) {
  std::vector<MadeTensor> found;
  ByGroup numbers = {}, next = {};
  for (std::size_t at = 0; at + 1 < backward.size(); ++at) {
    const auto* named = std::get_if<models::NamedKernel>(&backward[at]);
    if (named == nullptr) continue;
    const std::size_t group = named->routed ? 1 : 0;
    numbers[group] += gradient_made_by(*named);
    for (; static_cast<std::size_t>(next[group]) + 1 < tensors[group].size(); ++next[group]) {
      const std::int64_t own = tensors[group][static_cast<std::size_t>(next[group])];
      if (numbers[group] < own) break;
      numbers[group] -= own;
      found.push_back({at + 1, group});
    }
  }
  return found;
}

}  // namespace trainyard::plan
