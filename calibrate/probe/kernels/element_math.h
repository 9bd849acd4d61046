// The arithmetic of one element or one thread of the probes' kernels, without CUDA: nvcc compiles
// it into the kernels, and the tests compile the same text for the CPU and hold it against
// references.
#pragma once

#include <cmath>
#include <cstdint>

#ifdef __CUDACC__
#define TRAINYARD_BOTH __host__ __device__ __forceinline__
#else
#define TRAINYARD_BOTH inline
#endif

namespace trainyard::probe {

// Four random words of one counter. Philox4x32-10: Salmon et al., Parallel random numbers: as easy
// as 1, 2, 3, SC 2011; the generator of the frameworks' dropout.
struct RandomWords {
  std::uint32_t word[4];
};

TRAINYARD_BOTH RandomWords philox(std::uint64_t counter, std::uint64_t stream, std::uint64_t seed) {
  std::uint32_t c0 = static_cast<std::uint32_t>(counter);
  std::uint32_t c1 = static_cast<std::uint32_t>(counter >> 32);
  std::uint32_t c2 = static_cast<std::uint32_t>(stream);
  std::uint32_t c3 = static_cast<std::uint32_t>(stream >> 32);
  std::uint32_t k0 = static_cast<std::uint32_t>(seed);
  std::uint32_t k1 = static_cast<std::uint32_t>(seed >> 32);
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t a = std::uint64_t{0xD2511F53u} * c0;
    const std::uint64_t b = std::uint64_t{0xCD9E8D57u} * c2;
    c0 = static_cast<std::uint32_t>(b >> 32) ^ c1 ^ k0;
    c2 = static_cast<std::uint32_t>(a >> 32) ^ c3 ^ k1;
    c1 = static_cast<std::uint32_t>(b);
    c3 = static_cast<std::uint32_t>(a);
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  return {{c0, c1, c2, c3}};
}

// The threshold that a random word must reach for an element to be kept: words below are dropped.
TRAINYARD_BOTH std::uint32_t drop_threshold(double probability) {
  return static_cast<std::uint32_t>(probability * 4294967296.0);
}

// GELU, the tanh form of the transformers: Hendrycks and Gimpel, Gaussian error linear units, 2016.
TRAINYARD_BOTH float gelu(float x) {
  const float inner = 0.7978845608f * (x + 0.044715f * x * x * x);  // sqrt(2 / pi)
  return 0.5f * x * (1.0f + tanhf(inner));
}

TRAINYARD_BOTH float gelu_slope(float x) {
  const float inner = 0.7978845608f * (x + 0.044715f * x * x * x);
  const float t = tanhf(inner);
  const float inner_slope = 0.7978845608f * (1.0f + 3.0f * 0.044715f * x * x);
  return 0.5f * (1.0f + t) + 0.5f * x * (1.0f - t * t) * inner_slope;
}

TRAINYARD_BOTH float sigmoid(float x) {
  return 1.0f / (1.0f + expf(-x));
}

TRAINYARD_BOTH float silu(float x) {
  return x * sigmoid(x);
}

TRAINYARD_BOTH float silu_slope(float x) {
  const float s = sigmoid(x);
  return s * (1.0f + x * (1.0f - s));
}

// One step of AdamW: Loshchilov and Hutter, Decoupled weight decay regularization, 2019. The bias
// corrections 1 / (1 - beta^t) are the same for all elements and come from the host.
struct AdamRates {
  float learning_rate, beta1, beta2, epsilon, weight_decay, correction1, correction2;
};

TRAINYARD_BOTH void adam_step(const AdamRates& rates, float gradient, float& weight, float& first,
                              float& second) {
  first = rates.beta1 * first + (1.0f - rates.beta1) * gradient;
  second = rates.beta2 * second + (1.0f - rates.beta2) * gradient * gradient;
  const float step =
      first * rates.correction1 / (sqrtf(second * rates.correction2) + rates.epsilon);
  weight -= rates.learning_rate * (step + rates.weight_decay * weight);
}

struct MomentumRates {
  float learning_rate, momentum, weight_decay;
};

TRAINYARD_BOTH void momentum_step(const MomentumRates& rates, float gradient, float& weight,
                                  float& velocity) {
  velocity = rates.momentum * velocity + gradient + rates.weight_decay * weight;
  weight -= rates.learning_rate * velocity;
}

// Maximum and sum of exponentials of what was seen so far, relative to that maximum: softmax in one
// pass. Milakov and Gimelshein, Online normalizer calculation for softmax, 2018.
struct OnlineSoftmax {
  float maximum = -INFINITY;
  float sum = 0;
};

TRAINYARD_BOTH OnlineSoftmax merge(const OnlineSoftmax& a, const OnlineSoftmax& b) {
  const float maximum = fmaxf(a.maximum, b.maximum);
  if (maximum == -INFINITY) return {};  // both empty: exp(-inf + inf) would be no number
  return {maximum, a.sum * expf(a.maximum - maximum) + b.sum * expf(b.maximum - maximum)};
}

// x is finite.
TRAINYARD_BOTH OnlineSoftmax with(const OnlineSoftmax& seen, float x) {
  if (x <= seen.maximum) return {seen.maximum, seen.sum + expf(x - seen.maximum)};
  return {x, seen.sum * expf(seen.maximum - x) + 1.0f};
}

// Rotary embedding of one pair: Su et al., RoFormer, 2021. The backward pass turns back (-sine).
TRAINYARD_BOTH void rotate(float cosine, float sine, float& x, float& y) {
  const float turned = x * cosine - y * sine;
  y = x * sine + y * cosine;
  x = turned;
}

// A square window of a pooling layer over a square or oblong image.
struct PoolShape {
  int batch, in_height, in_width, out_height, out_width, channels, window, stride, padding;
};

// The input positions [begin, end) that window `index` covers along a side of `size`.
struct WindowRange {
  int begin, end;
};

TRAINYARD_BOTH WindowRange window_range(int index, int size, int window, int stride, int padding) {
  const int begin = index * stride - padding;
  const int end = begin + window;
  return {begin < 0 ? 0 : begin, end > size ? size : end};
}

// The windows [begin, end) of `count` that cover input position `at`.
TRAINYARD_BOTH WindowRange windows_of(int at, int count, int window, int stride, int padding) {
  const int last = (at + padding) / stride;
  const int before =
      at + padding - window;  // the last position that a window not covering starts at
  const int first = before < 0 ? 0 : before / stride + 1;
  return {first, last + 1 < count ? last + 1 : count};
}

}  // namespace trainyard::probe
