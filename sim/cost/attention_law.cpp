// Which attention law prices a kernel, and what that kernel executes beside its useful work.
//
//   T = t0 + F (1 + l / k) (h' / h) / (e P)
//
//   k: keys that a query sees, on average; l: keys' worth of time that each query costs besides;
//   h': the head size that the library was compiled for.
//   Source: docs/cost-attention.md.
#include <algorithm>
#include <cstdlib>
#include <optional>
#include <tuple>

#include "sim/base/divide.h"
#include "sim/cost/compute_laws.h"
#include "sim/cost/profile.h"

namespace trainyard::cost {

using models::Attention;
using models::AttentionKernel;
using models::Dtype;

namespace {

// Kernels that keep their scores say nothing of those that do not. The others stand in
// AttentionKernel from slow to fast: a neighbour is the best substitute.
std::optional<int> apart(const AttentionLaw& law, AttentionKernel kernel) {
  if (!law.kernel) return kernel == AttentionKernel::usual ? 0 : 1;
  if (*law.kernel == kernel) return 0;
  if (*law.kernel == AttentionKernel::sdpa_math || kernel == AttentionKernel::sdpa_math)
    return std::nullopt;
  return 1 + std::abs(static_cast<int>(*law.kernel) - static_cast<int>(kernel));
}

}  // namespace

std::int64_t compiled_head_size(std::int64_t head_size) {
  constexpr std::int64_t kStep = 32;
  return divide_up(head_size, kStep) * kStep;
}

const AttentionLaw* attention_law(const Profile& profile, const Attention& attention) {
  if (profile.attention.empty()) return nullptr;
  const AttentionKernel kernel =
      attention.kernel == AttentionKernel::usual
          ? profile.attention.front().kernel.value_or(AttentionKernel::usual)
          : attention.kernel;
  const std::int64_t head_size = compiled_head_size(attention.head_size);
  const auto rank = [&](const AttentionLaw& law, int of_kernel) {
    const bool other_mask = law.causal && *law.causal != attention.causal;
    const bool other_head = law.head_size > 0 && law.head_size != attention.head_size;
    const auto head = static_cast<double>(std::max(law.head_size, head_size)) /
                      static_cast<double>(std::min(law.head_size, head_size));
    // A law that holds for the kernel first, the more particular of two.
    return std::make_tuple(of_kernel, other_mask || other_head,
                           !law.dtype || *law.dtype != attention.dtype,
                           law.head_size == 0 ? 1.0
                           : other_head       ? head
                                              : 0.0,
                           !law.causal, other_mask, law.head_size < attention.head_size);
  };
  const AttentionLaw* best = nullptr;
  int best_apart = 0;
  for (const AttentionLaw& law : profile.attention) {
    const bool fits = !law.dtype || *law.dtype == attention.dtype ||
                      (is_half(*law.dtype) && is_half(attention.dtype));
    const std::optional<int> of_kernel = apart(law, kernel);
    if (!fits || !of_kernel) continue;
    if (best != nullptr && rank(law, *of_kernel) >= rank(*best, best_apart)) continue;
    best = &law;
    best_apart = *of_kernel;
  }
  return best;
}

double executed_share(const AttentionLaw& law, const Attention& attention) {
  const double keys = attention.backward ? law.backward_keys : law.forward_keys;
  const double starts = 1 + keys / visible_keys(attention);
  if (law.head_size == attention.head_size) return starts;
  return starts * static_cast<double>(compiled_head_size(attention.head_size)) /
         static_cast<double>(attention.head_size);
}

}  // namespace trainyard::cost
