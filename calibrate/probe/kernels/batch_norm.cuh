// Batch norm in training. A channel's mean needs all of it before any of it can be normalised, so x
// crosses HBM twice forward, and x and dy twice backward: sums of parts, their sum, and the result.
// Parameters and statistics are fp32, as in the frameworks.
#pragma once

#include <stdexcept>

#include "element.cuh"

namespace trainyard::probe {

// The tensor is [outer][channels][inner]: NHWC has inner 1 and an outer of all pixels, NCHW has an
// inner of the pixels of one image.
template <typename T>
struct BatchNorm {
  const T* x;
  const T* dy;  // backward only
  T* out;       // y forward, dx backward
  const float* gamma;
  const float* beta;  // forward only
  float* mean;        // written forward, read backward
  float* inverse;
  float* dgamma;  // backward only
  float* dbeta;
  float* parts;  // [kNormParts][2][channels]
  std::int64_t outer;
  int channels;
  std::int64_t inner;
  float epsilon;
};

inline constexpr int kNormParts = 128;

// What is summed over a channel: x and its square forward, dy and dy times normalised x backward.
template <bool kBackward>
__device__ __forceinline__ void add_terms(float x, float dy, float mean, float inverse,
                                          float& first, float& second) {
  first += kBackward ? dy : x;
  second += kBackward ? dy * (x - mean) * inverse : x * x;
}

// NHWC: a block holds `lanes` packs of channels side by side and kBlock / lanes rows of them.
template <typename T, bool kBackward>
__global__ void __launch_bounds__(kBlock) channel_parts_nhwc(BatchNorm<T> n, int lanes) {
  __shared__ float sums[kBlock][2 * kPack<T> + 1];  // + 1: columns of it in different banks
  const int row_packs = n.channels / kPack<T>;
  const int lane = static_cast<int>(threadIdx.x) % lanes;
  const int line = static_cast<int>(threadIdx.x) / lanes;
  const int lines = kBlock / lanes;
  const int pack = static_cast<int>(blockIdx.x) * lanes + lane;
  float first[kPack<T>] = {};
  float second[kPack<T>] = {};
  float mean[kPack<T>] = {};
  float inverse[kPack<T>] = {};
  float x[kPack<T>];
  float dy[kPack<T>] = {};
  if (kBackward) load_floats(n.mean, pack, mean);
  if (kBackward) load_floats(n.inverse, pack, inverse);
  for (std::int64_t row = std::int64_t{blockIdx.y} * lines + line; row < n.outer;
       row += std::int64_t{gridDim.y} * lines) {
    load_pack(n.x, row * row_packs + pack, x);
    if (kBackward) load_pack(n.dy, row * row_packs + pack, dy);
#pragma unroll
    for (int e = 0; e < kPack<T>; ++e) {
      add_terms<kBackward>(x[e], dy[e], mean[e], inverse[e], first[e], second[e]);
    }
  }
#pragma unroll
  for (int e = 0; e < kPack<T>; ++e) {
    sums[threadIdx.x][e] = first[e];
    sums[threadIdx.x][kPack<T> + e] = second[e];
  }
  __syncthreads();
  if (line != 0) return;
  for (int other = 1; other < lines; ++other) {
#pragma unroll
    for (int e = 0; e < kPack<T>; ++e) {
      first[e] += sums[other * lanes + lane][e];
      second[e] += sums[other * lanes + lane][kPack<T> + e];
    }
  }
  float* part = n.parts + std::int64_t{blockIdx.y} * 2 * n.channels;
  store_floats(part, pack, first);
  store_floats(part + n.channels, pack, second);
}

// NCHW: one block per channel and part of the images. kWidth elements at a time: a pack if the
// image is a whole number of packs, else 1.
template <typename T, bool kBackward, int kWidth>
__global__ void __launch_bounds__(kBlock) channel_parts_nchw(BatchNorm<T> n) {
  const int channel = static_cast<int>(blockIdx.x);
  const float mean = kBackward ? n.mean[channel] : 0.0f;
  const float inverse = kBackward ? n.inverse[channel] : 0.0f;
  float first = 0;
  float second = 0;
  for (std::int64_t image = blockIdx.y; image < n.outer; image += gridDim.y) {
    const std::int64_t plane = (image * n.channels + channel) * n.inner;
    for (std::int64_t i = threadIdx.x; i < n.inner / kWidth; i += blockDim.x) {
      if constexpr (kWidth == 1) {
        add_terms<kBackward>(to_float(n.x[plane + i]), kBackward ? to_float(n.dy[plane + i]) : 0.0f,
                             mean, inverse, first, second);
      } else {
        float x[kPack<T>];
        float dy[kPack<T>] = {};
        load_pack(n.x + plane, i, x);
        if (kBackward) load_pack(n.dy + plane, i, dy);
#pragma unroll
        for (int e = 0; e < kPack<T>; ++e) {
          add_terms<kBackward>(x[e], dy[e], mean, inverse, first, second);
        }
      }
    }
  }
  first = block_sum(first);
  second = block_sum(second);
  if (threadIdx.x != 0) return;
  n.parts[std::int64_t{blockIdx.y} * 2 * n.channels + channel] = first;
  n.parts[(std::int64_t{blockIdx.y} * 2 + 1) * n.channels + channel] = second;
}

// Mean and 1 / deviation of each channel forward, gradients of beta and gamma backward.
template <typename T, bool kBackward>
__global__ void __launch_bounds__(kBlock) channel_sums(BatchNorm<T> n, int parts) {
  const int channel = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (channel >= n.channels) return;
  float first = 0;
  float second = 0;
  for (int part = 0; part < parts; ++part) {
    first += n.parts[std::int64_t{part} * 2 * n.channels + channel];
    second += n.parts[(std::int64_t{part} * 2 + 1) * n.channels + channel];
  }
  if (kBackward) {
    n.dbeta[channel] = first;
    n.dgamma[channel] = second;
    return;
  }
  const float share = 1.0f / static_cast<float>(n.outer * n.inner);
  const float mean = first * share;
  n.mean[channel] = mean;
  n.inverse[channel] = 1.0f / sqrtf(fmaxf(second * share - mean * mean, 0.0f) + n.epsilon);
}

// What one channel's elements go through: forward y = slope x + shift; backward
//   dx = gamma inverse (dy - mean(dy) - normalised x mean(dy normalised x)).
template <bool kBackward>
struct ChannelLaw {
  float mean, inverse, gamma, beta, dgamma, dbeta;  // the last two divided by the count
  __device__ __forceinline__ float operator()(float x, float dy) const {
    const float normalised = (x - mean) * inverse;
    if (kBackward) return gamma * inverse * (dy - dbeta - normalised * dgamma);
    return normalised * gamma + beta;
  }
};

template <bool kBackward, typename T>
__device__ __forceinline__ ChannelLaw<kBackward> law_of(const BatchNorm<T>& n, int channel) {
  const float share = 1.0f / static_cast<float>(n.outer * n.inner);
  return {n.mean[channel],
          n.inverse[channel],
          n.gamma[channel],
          kBackward ? 0.0f : n.beta[channel],
          kBackward ? n.dgamma[channel] * share : 0.0f,
          kBackward ? n.dbeta[channel] * share : 0.0f};
}

// NHWC: blocks as in channel_parts_nhwc, so that a thread keeps its channels' laws in registers.
template <typename T, bool kBackward>
__global__ void __launch_bounds__(kBlock) channel_apply_nhwc(BatchNorm<T> n, int lanes) {
  const int row_packs = n.channels / kPack<T>;
  const int lines = kBlock / lanes;
  const int pack = static_cast<int>(blockIdx.x) * lanes + static_cast<int>(threadIdx.x) % lanes;
  ChannelLaw<kBackward> laws[kPack<T>];
#pragma unroll
  for (int e = 0; e < kPack<T>; ++e) {
    laws[e] = law_of<kBackward>(n, pack * kPack<T> + e);
  }
  for (std::int64_t row = std::int64_t{blockIdx.y} * lines + static_cast<int>(threadIdx.x) / lanes;
       row < n.outer; row += std::int64_t{gridDim.y} * lines) {
    float x[kPack<T>];
    float dy[kPack<T>] = {};
    load_pack(n.x, row * row_packs + pack, x);
    if (kBackward) load_pack(n.dy, row * row_packs + pack, dy);
#pragma unroll
    for (int e = 0; e < kPack<T>; ++e) {
      x[e] = laws[e](x[e], dy[e]);
    }
    store_pack(n.out, row * row_packs + pack, x);
  }
}

template <typename T, bool kBackward, int kWidth>
__global__ void __launch_bounds__(kBlock) channel_apply_nchw(BatchNorm<T> n) {
  for (std::int64_t p = blockIdx.x; p < n.outer * n.channels; p += gridDim.x) {
    const ChannelLaw<kBackward> law = law_of<kBackward>(n, static_cast<int>(p % n.channels));
    const std::int64_t plane = p * n.inner;
    for (std::int64_t i = threadIdx.x; i < n.inner / kWidth; i += blockDim.x) {
      if constexpr (kWidth == 1) {
        n.out[plane + i] = from_float<T>(
            law(to_float(n.x[plane + i]), kBackward ? to_float(n.dy[plane + i]) : 0.0f));
      } else {
        float x[kPack<T>];
        float dy[kPack<T>] = {};
        load_pack(n.x + plane, i, x);
        if (kBackward) load_pack(n.dy + plane, i, dy);
#pragma unroll
        for (int e = 0; e < kPack<T>; ++e) {
          x[e] = law(x[e], dy[e]);
        }
        store_pack(n.out + plane, i, x);
      }
    }
  }
}

inline int least(std::int64_t a, std::int64_t b) {
  return static_cast<int>(a < b ? a : b);
}

template <typename T, bool kBackward, int kWidth>
void launch_batch_norm_nchw(const BatchNorm<T>& n, cudaStream_t stream) {
  const int parts = least(n.outer, kNormParts);
  const dim3 grid(static_cast<unsigned>(n.channels), static_cast<unsigned>(parts));
  launch(channel_parts_nchw<T, kBackward, kWidth>, grid, kBlock, 0, stream, n);
  launch(channel_sums<T, kBackward>, dim3((n.channels + kBlock - 1) / kBlock), kBlock, 0, stream, n,
         parts);
  launch(channel_apply_nchw<T, kBackward, kWidth>, dim3(least(n.outer * n.channels, 144 * 64)),
         kBlock, 0, stream, n);
}

template <typename T, bool kBackward>
void launch_batch_norm_nhwc(const BatchNorm<T>& n, cudaStream_t stream) {
  const int row_packs = n.channels / kPack<T>;
  int lanes = 32;
  while (row_packs % lanes != 0) {
    lanes /= 2;  // ends at 1
  }
  const std::int64_t rows_at_once = kBlock / lanes;
  const std::int64_t turns = (n.outer + rows_at_once - 1) / rows_at_once;
  const int parts = least(turns, kNormParts);
  const unsigned across = static_cast<unsigned>(row_packs / lanes);
  launch(channel_parts_nhwc<T, kBackward>, dim3(across, static_cast<unsigned>(parts)), kBlock, 0,
         stream, n, lanes);
  launch(channel_sums<T, kBackward>, dim3((n.channels + kBlock - 1) / kBlock), kBlock, 0, stream, n,
         parts);
  launch(channel_apply_nhwc<T, kBackward>,
         dim3(across, static_cast<unsigned>(least(turns, 4096 / across + 1))), kBlock, 0, stream, n,
         lanes);
}

template <typename T, bool kBackward>
void launch_batch_norm(const BatchNorm<T>& n, cudaStream_t stream) {
  if (n.inner == 1) {
    if (n.channels % kPack<T> != 0) throw std::invalid_argument("channels must be whole packs");
    launch_batch_norm_nhwc<T, kBackward>(n, stream);
  } else if (n.inner % kPack<T> == 0) {
    launch_batch_norm_nchw<T, kBackward, kPack<T>>(n, stream);
  } else {
    launch_batch_norm_nchw<T, kBackward, 1>(n, stream);
  }
}

}  // namespace trainyard::probe
