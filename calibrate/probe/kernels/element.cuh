// What all kernels of the probes share: element types, 16-byte packs of them, sums over a warp and
// a block, and the launch. nvcc takes the words from CUDA; tests/calibrate/emulated_cuda.h gives
// the same words to a C++ compiler, so that every kernel also runs, thread by thread, without a
// device.
#pragma once

#include <cstdint>
#include <cstring>
#include <type_traits>

#include "element_math.h"

#ifdef __CUDACC__
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#define TRAINYARD_DYNAMIC_SHARED(name) extern __shared__ __align__(16) unsigned char name[]
#endif

namespace trainyard::probe {

inline constexpr int kPackBytes = 16;  // the widest load and store of a thread
template <typename T>
inline constexpr int kPack = kPackBytes / static_cast<int>(sizeof(T));

inline constexpr int kBlock = 256;  // threads of a grid-stride kernel

#ifdef __CUDACC__
__device__ __forceinline__ float to_float(float x) {
  return x;
}
__device__ __forceinline__ float to_float(__half x) {
  return __half2float(x);
}
__device__ __forceinline__ float to_float(__nv_bfloat16 x) {
  return __bfloat162float(x);
}

template <typename T>
__device__ __forceinline__ T from_float(float x);
template <>
__device__ __forceinline__ float from_float<float>(float x) {
  return x;
}
template <>
__device__ __forceinline__ __half from_float<__half>(float x) {
  return __float2half_rn(x);
}
template <>
__device__ __forceinline__ __nv_bfloat16 from_float<__nv_bfloat16>(float x) {
  return __float2bfloat16_rn(x);
}

// Starts `kernel`; `cudaGetLastError` tells the caller of a launch that the device refused.
template <typename... Parameters, typename... Arguments>
void launch(void (*kernel)(Parameters...), dim3 grid, int block, std::size_t shared,
            cudaStream_t stream, Arguments... arguments) {
  kernel<<<grid, block, shared, stream>>>(static_cast<Parameters>(arguments)...);
}

// Lets a kernel use more than the 48 KiB of shared memory that it gets unasked.
template <typename... Parameters>
void allow_shared(void (*kernel)(Parameters...), std::size_t bytes) {
  // A refusal shows as a failed launch, which the caller asks for anyway.
  static_cast<void>(cudaFuncSetAttribute(reinterpret_cast<const void*>(kernel),
                                         cudaFuncAttributeMaxDynamicSharedMemorySize,
                                         static_cast<int>(bytes)));
}
#endif

// `pack` counts packs, not elements. The pointer must be aligned to 16 bytes.
template <typename T>
__device__ __forceinline__ void load_pack(const T* from, std::int64_t pack,
                                          float (&values)[kPack<T>]) {
  const uint4 raw = reinterpret_cast<const uint4*>(from)[pack];
  T elements[kPack<T>];
  memcpy(elements, &raw, sizeof raw);
#pragma unroll
  for (int i = 0; i < kPack<T>; ++i) {
    values[i] = to_float(elements[i]);
  }
}

template <typename T>
__device__ __forceinline__ void store_pack(T* to, std::int64_t pack,
                                           const float (&values)[kPack<T>]) {
  T elements[kPack<T>];
#pragma unroll
  for (int i = 0; i < kPack<T>; ++i) {
    elements[i] = from_float<T>(values[i]);
  }
  uint4 raw;
  memcpy(&raw, elements, sizeof raw);
  reinterpret_cast<uint4*>(to)[pack] = raw;
}

// kCount floats beside a pack of 16-bit elements: master weights, statistics.
template <int kCount>
__device__ __forceinline__ void load_floats(const float* from, std::int64_t pack,
                                            float (&values)[kCount]) {
#pragma unroll
  for (int quad = 0; quad < kCount / 4; ++quad) {
    const float4 raw = reinterpret_cast<const float4*>(from)[pack * (kCount / 4) + quad];
    memcpy(&values[4 * quad], &raw, sizeof raw);
  }
}

template <int kCount>
__device__ __forceinline__ void store_floats(float* to, std::int64_t pack,
                                             const float (&values)[kCount]) {
#pragma unroll
  for (int quad = 0; quad < kCount / 4; ++quad) {
    float4 raw;
    memcpy(&raw, &values[4 * quad], sizeof raw);
    reinterpret_cast<float4*>(to)[pack * (kCount / 4) + quad] = raw;
  }
}

struct Add {
  __device__ __forceinline__ float operator()(float a, float b) const { return a + b; }
};
struct Maximum {
  __device__ __forceinline__ float operator()(float a, float b) const { return fmaxf(a, b); }
};
struct MergeSoftmax {
  __device__ __forceinline__ OnlineSoftmax operator()(OnlineSoftmax a, OnlineSoftmax b) const {
    return merge(a, b);
  }
};

__device__ __forceinline__ float shuffle_xor(float x, int lane) {
  return __shfl_xor_sync(0xffffffffu, x, lane);
}
__device__ __forceinline__ OnlineSoftmax shuffle_xor(OnlineSoftmax x, int lane) {
  return {__shfl_xor_sync(0xffffffffu, x.maximum, lane), __shfl_xor_sync(0xffffffffu, x.sum, lane)};
}

template <typename Value, typename Combine>
__device__ __forceinline__ Value warp_combine(Value x, Combine combine) {
#pragma unroll
  for (int lane = 16; lane > 0; lane /= 2) {
    x = combine(x, shuffle_xor(x, lane));
  }
  return x;
}

// The combination over all threads of the block, the same in each. Blocks are whole warps, at
// most 32. The barrier at the end lets a caller come back at once: the next call may overwrite
// `parts`.
template <typename Value, typename Combine>
__device__ Value block_combine(Value x, Value neutral, Combine combine) {
  __shared__ float parts[2][32];  // of type Value, which has at most two floats
  static_assert(sizeof(Value) <= 2 * sizeof(float));
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int warps = static_cast<int>(blockDim.x) / 32;
  float words[2] = {0, 0};
  x = warp_combine(x, combine);
  if (lane == 0) {
    memcpy(words, &x, sizeof x);
    parts[0][warp] = words[0];
    parts[1][warp] = words[1];
  }
  __syncthreads();
  Value all = neutral;
  if (lane < warps) {
    words[0] = parts[0][lane];
    words[1] = parts[1][lane];
    memcpy(&all, words, sizeof all);
  }
  all = warp_combine(all, combine);
  __syncthreads();
  return all;
}

__device__ __forceinline__ float block_sum(float x) {
  return block_combine(x, 0.0f, Add{});
}

// Blocks for a grid-stride loop over `items`: at most a few waves of any device of today (144
// multiprocessors x 8 blocks of 256 threads), so that the tail is short and the loop body is
// amortised.
inline int grid_for(std::int64_t items) {
  constexpr std::int64_t kMost = 144 * 8 * 4;
  const std::int64_t blocks = (items + kBlock - 1) / kBlock;
  return static_cast<int>(blocks < 1 ? 1 : blocks < kMost ? blocks : kMost);
}

}  // namespace trainyard::probe
