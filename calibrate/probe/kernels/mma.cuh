// Tensor-core words for 16-bit types, one warp each: loading fragments from shared memory and
// multiplying them. Layouts are those of the PTX manual (mma.m16n8k16, ldmatrix). With g = lane / 4
// and t = lane % 4 a lane holds, as pairs of neighbouring columns of a row:
//   A 16x16: a[0] (g, 2t), a[1] (g + 8, 2t), a[2] (g, 2t + 8), a[3] (g + 8, 2t + 8)
//   B 16x8:  b[0] (2t.., g), b[1] (2t + 8.., g), pairs along k
//   C 16x8:  c[0] c[1] (g, 2t..), c[2] c[3] (g + 8, 2t..), fp32
#pragma once

#include "element.cuh"

#ifdef __CUDACC__
namespace trainyard::probe {

// Four 8x8 matrices; lane 8 i + r gives the address of row r of matrix i (16 bytes, aligned to 16).
__device__ __forceinline__ void load_matrices(std::uint32_t (&words)[4], const void* row) {
  const unsigned address = static_cast<unsigned>(__cvta_generic_to_shared(row));
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(words[0]), "=r"(words[1]), "=r"(words[2]), "=r"(words[3])
               : "r"(address)
               : "memory");
}

// The same, each matrix transposed.
__device__ __forceinline__ void load_transposed(std::uint32_t (&words)[4], const void* row) {
  const unsigned address = static_cast<unsigned>(__cvta_generic_to_shared(row));
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(words[0]), "=r"(words[1]), "=r"(words[2]), "=r"(words[3])
               : "r"(address)
               : "memory");
}

// c += a b.
__device__ __forceinline__ void multiply_add(float (&c)[4], const std::uint32_t (&a)[4],
                                             std::uint32_t b0, std::uint32_t b1, __half) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
      "{%8, %9}, {%0, %1, %2, %3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

__device__ __forceinline__ void multiply_add(float (&c)[4], const std::uint32_t (&a)[4],
                                             std::uint32_t b0, std::uint32_t b1, __nv_bfloat16) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
      "{%8, %9}, {%0, %1, %2, %3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// A copy of 16 bytes from global to shared memory that goes on while the thread does; finish_copies
// waits for all but the newest `kPending` groups of this thread's copies.
__device__ __forceinline__ void start_copy(void* shared, const void* global) {
  const unsigned address = static_cast<unsigned>(__cvta_generic_to_shared(shared));
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(address), "l"(global) : "memory");
}
__device__ __forceinline__ void close_copies() {
  asm volatile("cp.async.commit_group;" ::: "memory");
}
template <int kPending>
__device__ __forceinline__ void finish_copies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
}

}  // namespace trainyard::probe
#endif

namespace trainyard::probe {

// Two neighbours of a row as one word, the first in the lower half.
template <typename T>
__device__ __forceinline__ std::uint32_t pair(float first, float second) {
  const T both[2] = {from_float<T>(first), from_float<T>(second)};
  std::uint32_t word;
  memcpy(&word, both, sizeof word);
  return word;
}

// `to` is aligned to 4 bytes. A memcpy would not know that, and nvcc would store byte by byte.
template <typename T>
__device__ __forceinline__ void store_pair(T* to, std::uint32_t word) {
  *reinterpret_cast<std::uint32_t*>(to) = word;
}

}  // namespace trainyard::probe
