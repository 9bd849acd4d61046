// Fused attention by cuDNN 9's backend API (the graph of operations; the C++ frontend is not
// needed).
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <memory>
#include <string>

#include "attention_shapes.h"
#include "type.h"

namespace trainyard::probe {

// Tensors of one call, [batch][heads][length][head size]; lse is fp32, one per query.
struct AttentionTensors {
  void *q, *k, *v, *o, *lse, *d_o, *dq, *dk, *dv;
};

// A plan that cuDNN made for one problem.
class CudnnAttention {
 public:
  virtual ~CudnnAttention() = default;
  virtual std::size_t workspace_bytes() const = 0;
  virtual void enqueue(const AttentionTensors& tensors, void* workspace) const = 0;
};

// Why there is no cuDNN at all, or nothing.
std::string cudnn_attention_absent();

// Null if cuDNN has no engine for this problem; `refused` then says what it said.
std::unique_ptr<CudnnAttention> cudnn_attention(const AttentionProblem& problem, Type type,
                                                bool backward, cudaStream_t stream,
                                                std::string& refused);

}  // namespace trainyard::probe
