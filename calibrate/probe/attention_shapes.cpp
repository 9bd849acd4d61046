#include "attention_shapes.h"

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
      {32, 8, 128},   // Llama 3 8B
      {16, 16, 64},   // BERT large, GPT-2 medium
      {64, 8, 128},   // Llama 2 70B
      {12, 12, 64},   // GPT-2 small
      {8, 8, 128},    // a share of the first with tensor parallel 4
      {8, 1, 128},    // of Llama 3 70B with tensor parallel 8
      {12, 12, 128},  // GPT-3 175B with tensor parallel 8
  };
  std::vector<AttentionProblem> problems;
  // Rounds: 8192 tokens, then one sequence, then four times the tokens.
  for (const int tokens : {8192, 0, 32768}) {
    for (const int length : {2048, 8192, 512, 4096, 1024, 16384}) {
      if (tokens != 0 && length > tokens) continue;
      for (const Heads& h : kHeads) {
        for (const bool causal : {true, false}) {
          const int batch = tokens == 0 ? 1 : tokens / length;
          if (tokens != 0 && batch == 1) continue;  // that of the round of one sequence
          problems.push_back({batch, h.heads, h.kv_heads, length, h.head_size, causal});
        }
      }
    }
    if (quick) break;
  }
  return problems;
}

}  // namespace trainyard::probe
