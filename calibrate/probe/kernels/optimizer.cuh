// Fused optimizer updates over flat parameters, and reductions over them: each operand crosses HBM
// once.
#pragma once

#include <type_traits>

#include "element.cuh"

namespace trainyard::probe {

// fp32 master weights and moments; the gradient and the copy that the next forward pass reads are
// of type T. With T float the master is the weight itself, and `copy` is null.
template <typename T>
struct Parameters {
  const T* gradient;
  float* master;
  float* first;   // Adam's m, the momentum of SGD
  float* second;  // Adam's v
  T* copy;
  std::int64_t packs;
};

template <typename T>
__global__ void __launch_bounds__(kBlock) adam_kernel(Parameters<T> q, AdamRates rates) {
  const std::int64_t stride = std::int64_t{gridDim.x} * blockDim.x;
  for (std::int64_t p = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x; p < q.packs;
       p += stride) {
    float gradient[kPack<T>];
    float weight[kPack<T>];
    float first[kPack<T>];
    float second[kPack<T>];
    load_pack(q.gradient, p, gradient);
    load_floats(q.master, p, weight);
    load_floats(q.first, p, first);
    load_floats(q.second, p, second);
#pragma unroll
    for (int e = 0; e < kPack<T>; ++e) {
      adam_step(rates, gradient[e], weight[e], first[e], second[e]);
    }
    store_floats(q.master, p, weight);
    store_floats(q.first, p, first);
    store_floats(q.second, p, second);
    if constexpr (!std::is_same_v<T, float>) store_pack(q.copy, p, weight);
  }
}

template <typename T>
void launch_adam(const Parameters<T>& parameters, const AdamRates& rates, cudaStream_t stream) {
  launch(adam_kernel<T>, dim3(grid_for(parameters.packs)), kBlock, 0, stream, parameters, rates);
}

template <typename T>
__global__ void __launch_bounds__(kBlock) momentum_kernel(Parameters<T> q, MomentumRates rates) {
  const std::int64_t stride = std::int64_t{gridDim.x} * blockDim.x;
  for (std::int64_t p = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x; p < q.packs;
       p += stride) {
    float gradient[kPack<T>];
    float weight[kPack<T>];
    float velocity[kPack<T>];
    load_pack(q.gradient, p, gradient);
    load_floats(q.master, p, weight);
    load_floats(q.first, p, velocity);
#pragma unroll
    for (int e = 0; e < kPack<T>; ++e) {
      momentum_step(rates, gradient[e], weight[e], velocity[e]);
    }
    store_floats(q.master, p, weight);
    store_floats(q.first, p, velocity);
    if constexpr (!std::is_same_v<T, float>) store_pack(q.copy, p, weight);
  }
}

template <typename T>
void launch_momentum(const Parameters<T>& parameters, const MomentumRates& rates,
                     cudaStream_t stream) {
  launch(momentum_kernel<T>, dim3(grid_for(parameters.packs)), kBlock, 0, stream, parameters,
         rates);
}

inline constexpr int kSumParts = 1024;  // floats that `parts` of a reduction must hold

// One part per block: the sum, or the sum of squares, of the packs that the block read.
template <typename T, bool kSquares>
__global__ void __launch_bounds__(kBlock)
    sum_parts_kernel(const T* x, std::int64_t packs, float* parts) {
  const std::int64_t stride = std::int64_t{gridDim.x} * blockDim.x;
  float sum = 0;
  for (std::int64_t p = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x; p < packs;
       p += stride) {
    float values[kPack<T>];
    load_pack(x, p, values);
#pragma unroll
    for (int e = 0; e < kPack<T>; ++e) {
      sum += kSquares ? values[e] * values[e] : values[e];
    }
  }
  sum = block_sum(sum);
  if (threadIdx.x == 0) parts[blockIdx.x] = sum;
}

template <bool kSquares>
__global__ void __launch_bounds__(kBlock) sum_kernel(const float* parts, int count, float* result) {
  float sum = 0;
  for (int i = static_cast<int>(threadIdx.x); i < count; i += static_cast<int>(blockDim.x)) {
    sum += parts[i];
  }
  sum = block_sum(sum);
  if (threadIdx.x == 0) *result = kSquares ? sqrtf(sum) : sum;
}

// *result = sum of x, or its Euclidean norm, as gradient clipping wants it.
template <typename T>
void launch_sum(const T* x, std::int64_t count, bool norm, float* parts, float* result,
                cudaStream_t stream) {
  const std::int64_t packs = count / kPack<T>;
  const int wanted = grid_for(packs);
  const int blocks = wanted < kSumParts ? wanted : kSumParts;
  launch(norm ? sum_parts_kernel<T, true> : sum_parts_kernel<T, false>, dim3(blocks), kBlock, 0,
         stream, x, packs, parts);
  launch(norm ? sum_kernel<true> : sum_kernel<false>, dim3(1), kBlock, 0, stream,
         static_cast<const float*>(parts), blocks, result);
}

}  // namespace trainyard::probe
