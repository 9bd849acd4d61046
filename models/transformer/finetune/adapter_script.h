// What one adapter runs, forward and backward, and what it reads. Sizes and sources: adapters.cpp.
#pragma once

#include <cstdint>
#include <string>

#include "models/layer/work_list.h"
#include "models/transformer/finetune/adapters.h"

namespace trainyard::models {

// One adapter of a rank: its two matrices, and how many numbers of a token it reads and adds to.
struct Adapter {
  std::string name;
  bool columns = true;
  std::int64_t inputs = 0, narrow = 0;  // A: narrow x inputs
  std::int64_t outputs = 0, rank = 0;   // B: outputs x rank
};

// Whether an adapter's product reads a 16-bit copy of what is fp32. peft brings it to fp32 first,
// but for linears of 4 bits under autocast.
bool narrows_inputs(bool columns, const TransformerSlice& s, const Finetune& how);

class AdapterScript {
 public:
  AdapterScript(WorkList& list, const TransformerSlice& slice, const Finetune& how)
      : list_(list), s_(slice), how_(how) {}

  void forward(const Adapter& a);
  // `passes_on`: somebody needs the gradient of what the adapter reads.
  void backward(const Adapter& a, bool passes_on);

 private:
  Bytes of(std::int64_t width) const { return s_.tokens * width * s_.element(); }
  Bytes mask(std::int64_t width) const { return Bytes(s_.tokens * width); }
  // What dropout reads and writes.
  Bytes dropped(const Adapter& a) const {
    return s_.tokens * a.inputs * (narrows(a) ? size_of(Dtype::fp32) : s_.element());
  }
  // What the adapter adds to, as this rank has it.
  Bytes sum(const Adapter& a) const {
    return a.columns ? of(a.outputs) : s_.shard_tokens * s_.hidden * s_.element();
  }
  bool narrows(const Adapter& a) const { return narrows_inputs(a.columns, s_, how_); }
  bool widens(const Adapter& a) const;
  MemoryBound widened(std::int64_t numbers) const {
    return {.read = numbers * s_.element(),
            .written = numbers * size_of(Dtype::fp32),
            .elements = numbers};
  }
  void widen(const std::string& name, std::int64_t numbers) {
    list_.kernel(name, widened(numbers));
  }
  void narrow(const std::string& name, std::int64_t numbers) {
    pass(name, MemoryOp::elementwise, numbers * size_of(Dtype::fp32), numbers * s_.element());
  }
  Gemm product(std::int64_t n, std::int64_t k) const { return {s_.tokens, n, k, 1, s_.stored}; }
  Gemm weights(std::int64_t rows, std::int64_t columns) const {
    return {rows, columns, s_.tokens, 1, s_.stored};
  }
  void pass(const std::string& name, MemoryOp op, Bytes read, Bytes written) {
    list_.kernel(name, MemoryBound{.op = op, .read = read, .written = written});
  }
  void exchange(const std::string& name, CollectiveKind kind, Bytes bytes) {
    if (!s_.tensor_parallel) return;
    list_.start(name, kind, bytes);
    list_.wait();
  }

  WorkList& list_;
  const TransformerSlice& s_;
  const Finetune& how_;
};

}  // namespace trainyard::models
