// How a micro-batch's gradients of weights come to those of the step.
#pragma once

#include "models/layer/execution.h"
#include "models/layer/layer_work.h"

namespace trainyard::models {

// Adds the work of `accumulation` to a layer's backward pass. P parameters, gradients of s bytes
// from products and of g bytes where they are summed:
//
//   none                nothing
//   product             a product adds to the sum: C is read and written in g bytes
//   kernel, autograd    a kernel for each matrix, and one for the vectors: reads (s + g) P, writes
//                       g P; numbers of two types one by one
//   converted           a kernel converts, reading s P and writing g P, another adds g P to g P
//
// Times `share`, of autograd (n - 1)/n for n micro-batches, as the first one's gradients are the
// sum.
// Source: Megatron-LM, model/distributed.py (main_grad), tensor_parallel/layers.py
// (gradient_accumulation_fusion); PyTorch, csrc/autograd/functions/accumulate_grad.h; DeepSpeed,
// runtime/bf16_optimizer.py (update_hp_grads).
void accumulate_gradients(LayerWork& work, const GradientAccumulation& accumulation);

}  // namespace trainyard::models
