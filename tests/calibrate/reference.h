// What the probes' kernels must compute, in double precision and in the plainest way. Tests hold
// the references themselves against finite differences and facts; then the kernels against the
// references.
#pragma once

#include <cstdint>
#include <vector>

namespace trainyard::reference {

using Values = std::vector<double>;

double gelu(double x);
double silu(double x);
double slope(double (*function)(double), double x);  // by central difference

struct Norm {
  Values y, mean, inverse;
};
Norm norm(const Values& x, const Values& gamma, const Values& beta, double epsilon, bool centre);
struct NormGradients {
  Values dx, dgamma, dbeta;
};
NormGradients norm_backward(const Values& x, const Values& dy, const Values& gamma, double epsilon,
                            bool centre);

// Causal: row r sees columns 0 .. r % queries; 0 queries: it sees all.
Values softmax(const Values& x, int columns, double scale, int queries);
Values softmax_backward(const Values& y, const Values& dy, int columns, double scale);

struct Loss {
  Values loss, gradient;
};
Loss cross_entropy(const Values& logits, const std::vector<std::int32_t>& labels, int columns,
                   double scale);

struct AdamState {
  double weight, first, second;
};
struct AdamRates {
  double learning_rate, beta1, beta2, epsilon, weight_decay;
};
AdamState adam(AdamState state, double gradient, const AdamRates& rates, int step);

// [tokens][heads][size]; the angle of pair i at position p is p / 10000^(2 i / size).
Values rope(const Values& x, int length, int heads, int size, bool backward);

// [outer][channels][inner]
struct ChannelShape {
  int outer, channels, inner;
};
struct BatchNorm {
  Values y, mean, inverse;
};
BatchNorm batch_norm(const Values& x, const Values& gamma, const Values& beta,
                     const ChannelShape& shape, double epsilon);
NormGradients batch_norm_backward(const Values& x, const Values& dy, const Values& gamma,
                                  const ChannelShape& shape, double epsilon);

// NHWC, square windows; a window that reaches over the border counts only what is inside.
struct Pool {
  int batch, in_height, in_width, out_height, out_width, channels, window, stride, padding;
};
Values pool(const Values& x, const Pool& shape, bool maximum);
Values pool_backward(const Values& x, const Values& dy, const Pool& shape, bool maximum);

// [batch][heads][length][size], keys and values with kv_heads.
struct AttentionShape {
  int batch, heads, kv_heads, queries, keys, size;
  bool causal;
};
struct Attention {
  Values o, lse;
};
Attention attention(const Values& q, const Values& k, const Values& v, const AttentionShape& shape,
                    double scale);
struct AttentionGradients {
  Values dq, dk, dv;
};
AttentionGradients attention_backward(const Values& q, const Values& k, const Values& v,
                                      const Values& d_o, const AttentionShape& shape, double scale);

}  // namespace trainyard::reference
