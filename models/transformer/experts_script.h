// The kernels of routed experts, as Megatron-LM fuses them, and as PyTorch runs them one by one.
// What each reads and writes: experts.cpp and experts_eager.cpp. Private to the room.
#pragma once

#include <cstdint>
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
  // Of the product with which the router scores.
  void router_gradients();
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

// What PyTorch's operators on rows of experts have in common.
class RowOperators : public ExpertsScript {
 protected:
  using ExpertsScript::ExpertsScript;

  // Whose rows a kernel is on: as many as tokens send, or as arrive at experts. `weights`: of
  // experts, a gradient of their weights.
  enum class Of : std::uint8_t { senders, experts, weights };

  // Experts are called one after the other, and where no row travels, rows are copied for each.
  bool loops() const { return s_.kernels.separate_experts && !s_.expert_parallel; }
  std::int64_t calls(Of of) const {
    const bool each = of == Of::senders ? loops() : s_.kernels.separate_experts;
    return each ? s_.local_experts : 1;
  }
  bool share_their_way() const { return s_.routing.experts > 0; }
  // Linear layers of their own, as in transformers' modules before 5.
  bool halves_apart() const {
    return s_.kernels.separate_experts && s_.kernels.separate_gate && gated(s_);
  }

  Bytes tokens() const { return rows(s_.shard_tokens, s_.hidden); }
  Bytes sent() const { return rows(s_.routed_rows, s_.hidden); }
  Bytes number_of_each() const { return s_.routed_rows * Bytes(8); }  // its index
  Bytes probabilities() const { return s_.shard_tokens * s_.moe.experts * size_of(Dtype::fp32); }

  // Kernels on a number for each row or fewer, as many again for each expert of a loop.
  struct Small {
    std::int64_t kernels = 0, operators = 0;  // that the host calls
  };
  static constexpr Small kIndexGradient{.kernels = 9, .operators = 1};
  void small(const std::string& name, const Small& each, Of of = Of::senders);
  // A kernel on rows, or one for each expert; `one_by_one`: numbers handled so.
  void on_rows(const std::string& name, MemoryOp op, Bytes read, Bytes written, Of of = Of::senders,
               std::int64_t one_by_one = 0);
  // The gradient of rows that an index chose, of `chosen` bytes, added up in `into`: tokens, or
  // biases of experts.
  void index_gradient(const std::string& name, Bytes chosen, Bytes into, Of of = Of::senders);

 private:
  void write(const std::string& name, const MemoryBound& kernel, std::int64_t launches, Of of);
};

// Experts by PyTorch's operators.
class EagerExperts final : public RowOperators {
 public:
  using RowOperators::RowOperators;

  void route();
  void route_gradient();
  void dispatch();
  void dispatch_gradient();
  void fc1();
  void fc1_gradient();
  void activation();
  void activation_gradient();
  void fc2();
  void fc2_gradient();
  void combine();
  void combine_gradient();

 private:
  Bytes half() const { return rows(s_.expert_rows(), s_.expert_ffn); }
  void copies();
  void weights();
  void weights_gradient();
  void limited_gate(bool backward);
  void gelu(bool backward);
  void biases(const std::string& name, std::int64_t width, bool backward);
};

}  // namespace trainyard::models
