#include "attention_shapes.h"

#include <algorithm>

namespace trainyard::probe {

double AttentionProblem::flops(bool backward) const {
  const double products = backward ? 5 : 2;
  const double scores = static_cast<double>(length) * length / (causal ? 2 : 1);
  return products * 2 * batch * static_cast<double>(heads) * scores * head_size;
}

std::size_t AttentionProblem::query_elements() const {
  return static_cast<std::size_t>(batch) * static_cast<std::size_t>(heads) *
         static_cast<std::size_t>(length) * static_cast<std::size_t>(head_size);
}

std::size_t AttentionProblem::key_elements() const {
  return query_elements() / static_cast<std::size_t>(heads) * static_cast<std::size_t>(kv_heads);
}

std::vector<AttentionProblem> attention_problems(bool quick) {
  struct Heads {
    int heads, kv_heads, head_size;
  };
  constexpr Heads kHeads[] = {
      {32, 32, 128},  // Llama 2 7B
      {16, 16, 64},   // BERT large, GPT-2 medium
      {32, 8, 128},   // Llama 3 8B
      {8, 8, 128},    // a share of the first with tensor parallel 4
      {12, 12, 64},   // GPT-2 small
      {64, 8, 128},   // Llama 2 70B
      {8, 1, 128},    // of Llama 3 70B with tensor parallel 8
      {12, 12, 128},  // GPT-3 175B with tensor parallel 8
  };
  std::vector<AttentionProblem> problems;
  // Rounds: 8192 tokens or one sequence that is longer, then four times the tokens, then one
  // sequence alone. In each all lengths before the next heads.
  for (const int tokens : {8192, 32768, 1}) {
    for (const Heads& h : kHeads) {
      for (const int length : {2048, 8192, 512, 4096, 1024, 16384}) {
        const int batch = std::max(1, tokens / length);
        if (tokens == 1 && length >= 8192) continue;  // the first round has had it
        for (const bool causal : {true, false})
          problems.push_back({batch, h.heads, h.kv_heads, length, h.head_size, causal});
      }
    }
    if (quick) break;
  }
  return problems;
}

}  // namespace trainyard::probe
