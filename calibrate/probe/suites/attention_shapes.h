// Which attention is measured; needs no CUDA. Head counts and sizes of published language models,
// at lengths from 512 to 16384, with as many sequences as keep the number of tokens of a training
// step.
#pragma once

#include <cstddef>
#include <vector>

namespace trainyard::probe {

struct AttentionProblem {
  int batch, heads, kv_heads, length, head_size;
  bool causal;

  double flops(
      bool backward) const;  // as docs/samples.md's reader counts them: masked ones do not count
  std::size_t query_elements() const;
  std::size_t key_elements() const;
};

// The most telling first: cuDNN takes about a second for the plans of one problem, so that a budget
// may end within the first fifty. `quick` is a beginning of the list.
std::vector<AttentionProblem> attention_problems(bool quick);

}  // namespace trainyard::probe
