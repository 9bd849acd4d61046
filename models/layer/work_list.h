// Writes down work items in the order in which they are enqueued.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "models/layer/fp8.h"
#include "models/layer/layer_work.h"

namespace trainyard::models {

class WorkList {
 public:
  WorkList() = default;
  // Whose memory-bound kernels are of a backward pass.
  static WorkList of_backward() {
    WorkList list;
    list.backward_ = true;
    return list;
  }

  // From now on operands of products in 8 bits are cast before them.
  void cast_operands(const Fp8Casts& how) { casts_ = how; }

  void kernel(std::string name, Kernel kernel, std::uint32_t launches = 1) {
    add({std::move(name), kernel, false, false, false, launches});
  }

  void weight_gradient(std::string name, Kernel kernel) { add({std::move(name), kernel, true}); }

  // The casts for a product that `cast_product` writes down, in pieces or after a gather.
  // `own_rows`: of its first operand on this rank, before the gather; `by_norm`: it is a norm's
  // output.
  void casts_of(const std::string& name, const Gemm& product, std::int64_t own_rows, bool by_norm);
  void cast_product(std::string name, Gemm product, std::int64_t piece = 0);

  // A kernel of routed experts, or of tables that are dealt to ranks.
  void routed_kernel(std::string name, Kernel kernel, bool weight_gradient = false,
                     std::uint32_t launches = 1) {
    add({std::move(name), kernel, weight_gradient, true, false, launches});
  }

  bool is_backward() const { return backward_; }

  void start(std::string name, CollectiveKind kind, Bytes bytes,
             LayerGroup group = LayerGroup::tensor, const Routing& routing = {}) {
    items_.emplace_back(GroupCollective{std::move(name), kind, bytes, group, routing});
  }

  void wait(LayerGroup group = LayerGroup::tensor) { items_.emplace_back(GroupWait{group}); }

  void append(std::vector<WorkItem> items) {
    for (WorkItem& item : items)
      items_.push_back(std::move(item));
  }

  std::vector<WorkItem> take() { return std::move(items_); }

 private:
  void add(NamedKernel kernel);
  bool casts(const Gemm& product) const { return casts_ && product.dtype == Dtype::fp8; }
  void casts_before(const NamedKernel& kernel, const Gemm& product, std::int64_t own_rows,
                    bool by_norm);

  std::vector<WorkItem> items_;
  std::optional<Fp8Casts> casts_;
  bool backward_ = false;
};

// The same work again: repeated kernels, every name with "recompute " in front.
std::vector<WorkItem> recomputed(std::vector<WorkItem> items);

}  // namespace trainyard::models
