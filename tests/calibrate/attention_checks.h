// The tiled attention kernels against their reference. `Array` comes from the file that includes
// this.
#pragma once

#include "calibrate/probe/attention_backward.cuh"
#include "tests/calibrate/close.h"

namespace trainyard {

// P and dS are rounded to T before they are multiplied: on sums of `terms` products of random signs
// with factors of at most `size` that comes to a few roundings of the root of their number.
template <typename T>
double attention_slack(double size, int terms) {
  return 3 * roundoff<T>() * size * std::sqrt(static_cast<double>(terms));
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
  check_close<float>(lse.values(), forward.lse, 2e-5);
  // Probabilities are at most 1 and sum to 1, values are at most 2.
  check_close<T>(o.values(), forward.o, attention_slack<T>(2, 1));

  const Array<float> delta(queries), dq_sum(queries * s.size);
  const Array<T> dq(queries * s.size), dk(keys * s.size), dv(keys * s.size);
  probe::launch_attention_backward<T>(
      {at_q.data(), at_k.data(), at_v.data(), o.data(), at_do.data(), lse.data(), delta.data(),
       dq_sum.data(), dq.data(), dk.data(), dv.data(), shape, scale},
      nullptr);
  const auto backward = reference::attention_backward(q, k, v, d_o, s, scale);
  const int members = s.heads / s.kv_heads * s.queries;
  check_close<T>(dv.values(), backward.dv, attention_slack<T>(2, members));
  // dS is scale P (dP - delta): dP and delta are sums of `size` products, a few times its root.
  // delta is made of the rounded O, which shifts all of a row's dS alike.
  const double ds = scale * 4 * std::sqrt(static_cast<double>(s.size));
  check_close<T>(dk.values(), backward.dk, attention_slack<T>(ds, members) / 4);
  check_close<T>(dq.values(), backward.dq, attention_slack<T>(ds, 4));
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
