// CUDA's words for a C++ compiler: enough of them to run the probes' kernels on the CPU, block
// after block, each thread as a fiber. Include it before the kernels.
//
// What it proves: indices (sanitizers watch every access), barriers (a thread that misses one is
// found), races that an order of execution shows (threads run upwards or downwards), copies that
// were not waited for (they are done at the wait, not before), and results. Warp-wide instructions
// follow the PTX manual. What it cannot: speed, alignment faults of the hardware, memory models.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <vector>

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __shared__ static
#define __align__(n) __attribute__((aligned(n)))
#define TRAINYARD_DYNAMIC_SHARED(name) unsigned char* name = ::emulated::dynamic_shared()

struct dim3 {
  unsigned x = 1, y = 1, z = 1;
  dim3() = default;
  explicit dim3(std::int64_t a, std::int64_t b = 1, std::int64_t c = 1)
      : x(static_cast<unsigned>(a)), y(static_cast<unsigned>(b)), z(static_cast<unsigned>(c)) {}
};
struct alignas(16) uint4 {
  std::uint32_t x, y, z, w;
};
struct alignas(16) float4 {
  float x, y, z, w;
};
using cudaStream_t = void*;

inline dim3 threadIdx, blockIdx, blockDim, gridDim;

struct __half {
  std::uint16_t bits;
};
struct __nv_bfloat16 {
  std::uint16_t bits;
};

namespace emulated {

// Warps of a block, and threads of a warp, run in this order between two barriers; results must not
// depend on it.
inline bool downwards = false;

void run(dim3 grid, int block, std::size_t shared, const std::function<void()>& kernel);
unsigned char* dynamic_shared();
void block_barrier();

// Waits until all lanes of the warp have come with the same tag; the last one calls `all` on what
// they brought, by lane. Lanes of a warp must come together.
void warp_collective(int tag, void* mine, void (*all)(void* const* lanes));

void start_copy(void* to, const void* from);
void close_copies();
void finish_copies(int pending);

// Rounded to the nearest, ties to even, as the hardware does.
std::uint16_t to_half(float x);
float from_half(std::uint16_t bits);
std::uint16_t to_bfloat16(float x);
float from_bfloat16(std::uint16_t bits);

}  // namespace emulated

inline void __syncthreads() {
  emulated::block_barrier();
}

inline float __shfl_xor_sync(unsigned, float x, int mask) {
  struct Lane {
    float in, out;
    int mask;
  } lane{x, 0, mask};
  emulated::warp_collective(1, &lane, [](void* const* lanes) {
    for (int i = 0; i < 32; ++i) {
      auto* to = static_cast<Lane*>(lanes[i]);
      to->out = static_cast<const Lane*>(lanes[i ^ to->mask])->in;
    }
  });
  return lane.out;
}

inline float atomicAdd(float* to, float x) {
  const float before = *to;
  *to += x;
  return before;
}

namespace trainyard::probe {

inline float to_float(float x) {
  return x;
}
inline float to_float(__half x) {
  return emulated::from_half(x.bits);
}
inline float to_float(__nv_bfloat16 x) {
  return emulated::from_bfloat16(x.bits);
}

template <typename T>
T from_float(float x);
template <>
inline float from_float<float>(float x) {
  return x;
}
template <>
inline __half from_float<__half>(float x) {
  return {emulated::to_half(x)};
}
template <>
inline __nv_bfloat16 from_float<__nv_bfloat16>(float x) {
  return {emulated::to_bfloat16(x)};
}

template <typename... Parameters, typename... Arguments>
void launch(void (*kernel)(Parameters...), dim3 grid, int block, std::size_t shared, cudaStream_t,
            Arguments... arguments) {
  emulated::run(grid, block, shared, [&] { kernel(static_cast<Parameters>(arguments)...); });
}

template <typename... Parameters>
void allow_shared(void (*)(Parameters...), std::size_t) {}

inline void start_copy(void* shared, const void* global) {
  emulated::start_copy(shared, global);
}
inline void close_copies() {
  emulated::close_copies();
}
template <int kPending>
void finish_copies() {
  emulated::finish_copies(kPending);
}

void load_matrices(std::uint32_t (&words)[4], const void* row);
void load_transposed(std::uint32_t (&words)[4], const void* row);
void multiply_add(float (&c)[4], const std::uint32_t (&a)[4], std::uint32_t b0, std::uint32_t b1,
                  __half);
void multiply_add(float (&c)[4], const std::uint32_t (&a)[4], std::uint32_t b0, std::uint32_t b1,
                  __nv_bfloat16);

}  // namespace trainyard::probe
