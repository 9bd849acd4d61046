#include "models/layer/work_list.h"

namespace trainyard::models {
namespace {

// The layer whose output's gradient the product reads: "fc1" of "fc1 input gradient".
std::string layer_of(const std::string& name, std::string_view gradient) {
  return name.ends_with(gradient) ? name.substr(0, name.size() - gradient.size()) : name;
}

}  // namespace

void WorkList::add(NamedKernel kernel) {
  if (auto* memory = std::get_if<MemoryBound>(&kernel.kernel)) memory->backward = backward_;
  if (auto* product = std::get_if<Gemm>(&kernel.kernel); product && kernel.weight_gradient)
    product->over_rows = true;
  if (auto* product = std::get_if<Gemm>(&kernel.kernel); product && casts(*product)) {
    casts_before(kernel, *product, product->m, false);
    product->scaling = scaling_of(casts_->recipe);
  }
  items_.emplace_back(std::move(kernel));
}

void WorkList::casts_before(const NamedKernel& kernel, const Gemm& product, std::int64_t own_rows,
                            bool by_norm) {
  OperandCasts operands(*this, *casts_, kernel.routed, kernel.launches);
  if (kernel.weight_gradient) {
    const std::string layer = layer_of(kernel.name, " weight gradient");
    return operands.input_again(layer, product.batch * product.n * product.k);
  }
  const std::string layer = layer_of(kernel.name, " input gradient");
  const std::int64_t own = product.batch * own_rows * product.k;
  const std::int64_t all = product.batch * product.m * product.k;
  backward_ ? operands.output_gradient(layer, own, all) : operands.input(layer, own, all, by_norm);
  operands.weight(layer, product.batch * product.n * product.k, backward_);
}

void WorkList::casts_of(const std::string& name, const Gemm& product, std::int64_t own_rows,
                        bool by_norm) {
  if (casts(product)) casts_before({name, product}, product, own_rows, by_norm);
}

void WorkList::cast_product(std::string name, Gemm product, std::int64_t piece) {
  if (casts(product)) product.scaling = scaling_of(casts_->recipe);
  items_.emplace_back(NamedKernel{.name = std::move(name), .kernel = product, .piece = piece});
}

}  // namespace trainyard::models
