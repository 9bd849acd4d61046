// The kernels of routed experts. What each reads and writes: experts.cpp. Private to the room.
#pragma once

#include <string>
#include <utility>

#include "models/transformer/transformer.h"

namespace trainyard::models {

// Fused kernels.
class ExpertsScript {
 public:
  ExpertsScript(WorkList& list, const TransformerSlice& slice) : list_(list), s_(slice) {}

  void route();
  void route_gradient();
  void travel(const std::string& what, bool away);
  void sort(const std::string& name, bool one_to_many);
  void arrange(const std::string& name, bool to_experts);
  void fc1();
  void fc1_gradient();
  void activation();
  void activation_gradient();
  void fc2();
  void fc2_gradient();

 protected:
  std::uint32_t launches_of_all() const { return static_cast<std::uint32_t>(s_.local_experts); }
  void clamped();
  void clamped_gradient();

  Bytes rows(std::int64_t count, std::int64_t width) const { return count * width * s_.element(); }
  void pass(std::string name, MemoryOp op, Bytes read, Bytes written) {
    list_.kernel(std::move(name), MemoryBound{op, read, written});
  }
  Gemm grouped(std::int64_t n, std::int64_t k) const {
    return {s_.rows_per_expert(), n, k, s_.local_experts, s_.gemm, true};
  }
  Gemm grouped_weights(std::int64_t m, std::int64_t n) const {
    return {m, n, s_.rows_per_expert(), s_.local_experts, s_.gemm, true, true};
  }

  // Of products that are one for each of the rank's experts.
  void products(std::string name, const Gemm& gemm, bool weight_gradient = false) {
    list_.routed_kernel(std::move(name), gemm, weight_gradient,
                        s_.kernels.separate_experts ? launches_of_all() : 1);
  }

  WorkList& list_;
  const TransformerSlice& s_;

 private:
  bool adds_biases() const { return s_.moe.biases && s_.kernels.expert_biases_by_operators; }
  void fc2_biases();
  void fc2_bias_gradients();
  // Of one half, a view of both: its numbers are handled one by one.
  void of_half(const std::string& what, Bytes read_of_each, Bytes written_of_each);
  void halves_joined(const char* what);
};

}  // namespace trainyard::models
