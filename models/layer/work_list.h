// Writes down work items in the order in which they are enqueued.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

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

  void kernel(std::string name, Kernel kernel) {
    if (auto* memory = std::get_if<MemoryBound>(&kernel)) memory->backward = backward_;
    items_.emplace_back(NamedKernel{std::move(name), kernel});
  }

  void weight_gradient(std::string name, Kernel kernel) {
    items_.emplace_back(NamedKernel{std::move(name), kernel, true});
  }

  // A kernel of routed experts, or of tables that are dealt to ranks.
  void routed_kernel(std::string name, Kernel kernel, bool weight_gradient = false,
                     std::uint32_t launches = 1) {
    items_.emplace_back(
        NamedKernel{std::move(name), kernel, weight_gradient, true, false, launches});
  }

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
  std::vector<WorkItem> items_;
  bool backward_ = false;
};

// The same work again: repeated kernels, every name with "recompute " in front.
std::vector<WorkItem> recomputed(std::vector<WorkItem> items);

}  // namespace trainyard::models
