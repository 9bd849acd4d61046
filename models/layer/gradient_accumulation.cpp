#include "models/layer/gradient_accumulation.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

namespace trainyard::models {
namespace {

// What runs beside the products.
class Sums {
 public:
  explicit Sums(const GradientAccumulation& accumulation)
      : how_(accumulation), from_(size_of(how_.produced)), to_(size_of(how_.dtype)) {}

  void add(const std::string& name, std::int64_t parameters, bool routed) {
    const std::int64_t numbers = std::llround(how_.share * static_cast<double>(parameters));
    if (numbers == 0) return;
    if (how_.kind == AccumulationKind::converted && from_ != to_) {
      kernel("conversion of " + name, numbers * from_, numbers * to_, numbers, routed);
      kernel("sum of " + name, numbers * (to_ + to_), numbers * to_, 0, routed);
      return;
    }
    kernel("sum of " + name, numbers * (from_ + to_), numbers * to_, from_ == to_ ? 0 : numbers,
           routed);
  }

  std::vector<WorkItem> take() { return std::move(items_); }

 private:
  void kernel(std::string name, Bytes read, Bytes written, std::int64_t one_by_one, bool routed) {
    items_.emplace_back(
        NamedKernel{.name = std::move(name),
                    .kernel = MemoryBound{MemoryOp::elementwise, read, written, true, one_by_one},
                    .weight_gradient = true,
                    .routed = routed});
  }

  const GradientAccumulation& how_;
  Bytes from_, to_;
  std::vector<WorkItem> items_;
};

bool makes_gradients(const WorkItem& item) {
  const auto* named = std::get_if<NamedKernel>(&item);
  return named != nullptr && named->weight_gradient;
}

void add_in_products(std::vector<WorkItem>& backward, Dtype dtype) {
  for (WorkItem& item : backward) {
    auto* named = std::get_if<NamedKernel>(&item);
    if (named == nullptr || !named->weight_gradient) continue;
    if (auto* gemm = std::get_if<Gemm>(&named->kernel)) gemm->adds_to = dtype;
  }
}

}  // namespace

void accumulate_gradients(LayerWork& work, const GradientAccumulation& accumulation) {
  if (accumulation.kind == AccumulationKind::none) return;
  if (accumulation.kind == AccumulationKind::product)
    return add_in_products(work.backward, accumulation.dtype);
  Sums sums(accumulation);
  std::int64_t vectors = work.parameters + work.expert_parameters;
  for (const WeightMatrix& matrix : work.matrices) {
    sums.add("gradients of a matrix", matrix.elements(), matrix.routed);
    vectors -= matrix.elements();
  }
  sums.add("gradients of vectors", vectors, false);
  const auto last = std::find_if(work.backward.rbegin(), work.backward.rend(), makes_gradients);
  const auto place = last != work.backward.rend() ? last.base() : work.backward.end();
  std::vector<WorkItem> items = sums.take();
  work.backward.insert(place, std::make_move_iterator(items.begin()),
                       std::make_move_iterator(items.end()));
}

}  // namespace trainyard::models
