// The tiled attention kernels against their reference. `Array` comes from the file that includes
// this.
#pragma once

#include "calibrate/probe/kernels/attention_backward.cuh"
#include "tests/calibrate/close.h"
#include "tests/support/rooms.h"

namespace trainyard {

// O: P is rounded to T before it is multiplied. Probabilities sum to 1 and values are at most 2.
template <typename T>
double output_slack() {
  return 3 * roundoff<T>() * 2;
}

// Gradients: P and dS are rounded to T before they are multiplied, so that the error of a sum is to
// one rounding as the root of its squared terms, which is about the sum's own size: of one element
// four deviations, 0.6 roundings each. Causal: the first keys and queries have terms up to ten
// times the mean of all. A wrong mask, factor or tile is wrong by about the mean.
template <typename T>
double gradient_slack(const reference::Values& expected) {
  double squares = 0;
  for (const double value : expected)
    squares += value * value;
  return 32 * roundoff<T>() * std::sqrt(squares / static_cast<double>(expected.size()));
}

template <typename T>
void check_attention(const reference::AttentionShape& s) {
  CAPTURE(s.causal);
  CAPTURE(s.size);
  const std::size_t queries = static_cast<std::size_t>(s.batch) * s.heads * s.queries;
  const std::size_t keys = static_cast<std::size_t>(s.batch) * s.kv_heads * s.keys;
  const reference::Values q = inputs<T>(queries * s.size, 1), k = inputs<T>(keys * s.size, 2);
  const reference::Values v = inputs<T>(keys * s.size, 3), d_o = inputs<T>(queries * s.size, 4);
  const float scale = 0.125f;
  const probe::AttentionShape shape{s.batch, s.heads, s.kv_heads, s.queries,
                                    s.keys,  s.size,  s.causal};
  const Array<T> at_q(q), at_k(k), at_v(v), at_do(d_o), o(queries * s.size);
  const Array<float> lse(queries);
  probe::launch_attention<T>(
      {at_q.data(), at_k.data(), at_v.data(), o.data(), lse.data(), shape, scale}, nullptr);
  const auto forward = reference::attention(q, k, v, s, scale);
  // Tensor cores cut sums off below 2^-22 of their largest term: of scores up to 64 before `scale`
  // and 8 products one after the other that is 1.5e-5.
  check_close<float>(lse.values(), forward.lse, 5e-5);
  check_close<T>(o.values(), forward.o, output_slack<T>());

  const Array<float> delta(queries), dq_sum(queries * s.size);
  const Array<T> dq(queries * s.size), dk(keys * s.size), dv(keys * s.size);
  probe::launch_attention_backward<T>(
      {at_q.data(), at_k.data(), at_v.data(), o.data(), at_do.data(), lse.data(), delta.data(),
       dq_sum.data(), dq.data(), dk.data(), dv.data(), shape, scale},
      nullptr);
  const auto backward = reference::attention_backward(q, k, v, d_o, s, scale);
  check_close<T>(dv.values(), backward.dv, gradient_slack<T>(backward.dv));
  check_close<T>(dk.values(), backward.dk, gradient_slack<T>(backward.dk));
  check_close<T>(dq.values(), backward.dq, gradient_slack<T>(backward.dq));
}

// All that the kernels distinguish: both head sizes, causal or not, groups, oblong, one and more
// tiles.
template <typename T>
void check_attentions() {
  check_attention<T>({1, 1, 1, 64, 64, 64, false});
  check_attention<T>({1, 1, 1, 64, 64, 128, true});
  check_attention<T>({1, 2, 1, 128, 128, 64, true});
  check_attention<T>({2, 1, 1, 64, 192, 64, false});
  if (kEmulated) return;
  check_attention<T>({2, 4, 2, 512, 512, 128, true});
  check_attention<T>({1, 8, 8, 256, 1024, 128, false});
  check_attention<T>({3, 6, 2, 320, 320, 64, true});
}

}  // namespace trainyard
