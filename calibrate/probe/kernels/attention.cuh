// Fused attention in tiles: O = softmax(scale Q K^T) V without the scores in memory, and its
// backward pass. Dao, FlashAttention-2, 2023, with mma.m16n8k16 for fp16 and bf16. Layout
// [batch][heads][length] [head size]; lengths are whole tiles of 64; heads share keys and values in
// groups. Causal attention has as many keys as queries.
//
// A block is four warps over a tile of 64 rows (queries forward, keys backward), 16 rows per warp;
// the other operand comes through shared memory in tiles of 64 rows. Rows of shared tiles are 16
// bytes longer than the data: eight rows of one ldmatrix then start in different banks.
#pragma once

#include <stdexcept>

#include "mma.cuh"

namespace trainyard::probe {

inline constexpr int kTile = 64;
inline constexpr int kAttentionThreads = 128;
inline constexpr float kLog2E = 1.4426950408889634f;

struct AttentionShape {
  int batch, heads, kv_heads, queries, keys, head_size;
  bool causal;
};

template <typename T>
struct AttentionForward {
  const T* q;
  const T* k;
  const T* v;
  T* o;
  float* lse;  // log of the sum of exponentials of each query's scores, for the backward pass
  AttentionShape shape;
  float scale;
};

template <typename T>
struct AttentionBackward {
  const T* q;
  const T* k;
  const T* v;
  const T* o;
  const T* d_o;
  const float* lse;
  float* delta;   // per query: sum of dO O
  float* dq_sum;  // fp32: blocks of different keys add to it
  T* dq;
  T* dk;
  T* dv;
  AttentionShape shape;
  float scale;
};

template <int kHead>
inline constexpr int kTileStride = kHead + 8;  // elements between rows of a shared tile

// Starts the copy of a tile of 64 rows to shared memory.
template <typename T, int kHead>
__device__ __forceinline__ void start_tile(T* tile, const T* rows) {
  constexpr int kRowPacks = kHead / kPack<T>;
#pragma unroll
  for (int i = 0; i < kTile * kRowPacks / kAttentionThreads; ++i) {
    const int p = i * kAttentionThreads + static_cast<int>(threadIdx.x);
    const int row = p / kRowPacks;
    const int column = p % kRowPacks * kPack<T>;
    start_copy(tile + row * kTileStride<kHead> + column, rows + row * kHead + column);
  }
}

// A fragment (16 rows x 16) of a row-major tile, its first element at `corner`.
template <typename T>
__device__ __forceinline__ void load_a(std::uint32_t (&a)[4], const T* corner, int stride) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  load_matrices(a, corner + (lane / 8 % 2 * 8 + lane % 8) * stride + lane / 16 * 8);
}

// A fragment of the transpose: rows of A are columns of the tile.
template <typename T>
__device__ __forceinline__ void load_a_transposed(std::uint32_t (&a)[4], const T* corner,
                                                  int stride) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  load_transposed(a, corner + (lane / 16 * 8 + lane % 8) * stride + lane / 8 % 2 * 8);
}

// Two B fragments (16 x 8 each): columns of B are rows of the tile, 8 for b[0] b[1], 8 for b[2]
// b[3].
template <typename T>
__device__ __forceinline__ void load_b_rows(std::uint32_t (&b)[4], const T* corner, int stride) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  load_matrices(b, corner + (lane / 16 * 8 + lane % 8) * stride + lane / 8 % 2 * 8);
}

// Two B fragments: rows of B are rows of the tile, columns 0-7 for b[0] b[1], 8-15 for b[2] b[3].
template <typename T>
__device__ __forceinline__ void load_b_columns(std::uint32_t (&b)[4], const T* corner, int stride) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  load_transposed(b, corner + (lane / 8 % 2 * 8 + lane % 8) * stride + lane / 16 * 8);
}

// c[16 x 64] = rows of `left` (16, from its corner) times rows of `right` (64), along the head.
template <typename T, int kHead>
__device__ __forceinline__ void multiply_rows(float (&c)[8][4], const T* left, const T* right) {
#pragma unroll
  for (int n = 0; n < 8; ++n) {
    c[n][0] = c[n][1] = c[n][2] = c[n][3] = 0;
  }
#pragma unroll
  for (int k = 0; k < kHead / 16; ++k) {
    std::uint32_t a[4];
    load_a(a, left + k * 16, kTileStride<kHead>);
#pragma unroll
    for (int n = 0; n < 8; n += 2) {
      std::uint32_t b[4];
      load_b_rows(b, right + n * 8 * kTileStride<kHead> + k * 16, kTileStride<kHead>);
      multiply_add(c[n], a, b[0], b[1], T{});
      multiply_add(c[n + 1], a, b[2], b[3], T{});
    }
  }
}

// The 16 x 64 values of a warp as A fragments: what was an accumulator becomes a factor.
template <typename T>
__device__ __forceinline__ void as_factor(std::uint32_t (&a)[4][4], const float (&c)[8][4]) {
#pragma unroll
  for (int k = 0; k < 4; ++k) {
    a[k][0] = pair<T>(c[2 * k][0], c[2 * k][1]);
    a[k][1] = pair<T>(c[2 * k][2], c[2 * k][3]);
    a[k][2] = pair<T>(c[2 * k + 1][0], c[2 * k + 1][1]);
    a[k][3] = pair<T>(c[2 * k + 1][2], c[2 * k + 1][3]);
  }
}

// c[16 x head] += a[16 x 64] times the 64 rows of the tile.
template <typename T, int kHead>
__device__ __forceinline__ void add_product(float (&c)[kHead / 8][4],
                                            const std::uint32_t (&a)[4][4], const T* tile) {
#pragma unroll
  for (int k = 0; k < 4; ++k) {
#pragma unroll
    for (int n = 0; n < kHead / 8; n += 2) {
      std::uint32_t b[4];
      load_b_columns(b, tile + k * 16 * kTileStride<kHead> + n * 8, kTileStride<kHead>);
      multiply_add(c[n], a[k], b[0], b[1], T{});
      multiply_add(c[n + 1], a[k], b[2], b[3], T{});
    }
  }
}

// s[16 x 64] += q[16 x head] times the 64 rows of the tile, along the head.
template <typename T, int kHead>
__device__ __forceinline__ void add_scores(float (&s)[8][4],
                                           const std::uint32_t (&q)[kHead / 16][4], const T* tile) {
#pragma unroll
  for (int k = 0; k < kHead / 16; ++k) {
#pragma unroll
    for (int n = 0; n < 8; n += 2) {
      std::uint32_t b[4];
      load_b_rows(b, tile + n * 8 * kTileStride<kHead> + k * 16, kTileStride<kHead>);
      multiply_add(s[n], q[k], b[0], b[1], T{});
      multiply_add(s[n + 1], q[k], b[2], b[3], T{});
    }
  }
}

// Scores of 64 more keys: maxima and sums of the lane's two rows go on, the scores become
// probabilities relative to the maxima (in powers of 2), and what was summed before shrinks.
template <int kHead>
__device__ __forceinline__ void next_scores(float (&s)[8][4], float scale, float (&maximum)[2],
                                            float (&sum)[2], float (&o)[kHead / 8][4]) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {  // rows g and g + 8
    float highest = maximum[half];
#pragma unroll
    for (int n = 0; n < 8; ++n) {
      highest = fmaxf(highest, fmaxf(s[n][2 * half], s[n][2 * half + 1]));
    }
    highest = fmaxf(highest, shuffle_xor(highest, 1));  // the four lanes of a row
    highest = fmaxf(highest, shuffle_xor(highest, 2));
    const float shrink = exp2f((maximum[half] - highest) * scale);
    float more = 0;
#pragma unroll
    for (int n = 0; n < 8; ++n) {
#pragma unroll
      for (int e = 2 * half; e < 2 * half + 2; ++e) {
        s[n][e] = exp2f((s[n][e] - highest) * scale);
        more += s[n][e];
      }
    }
    sum[half] =
        sum[half] * shrink + more;  // of this lane's columns; the lanes are added at the end
    maximum[half] = highest;
#pragma unroll
    for (int n = 0; n < kHead / 8; ++n) {
      o[n][2 * half] *= shrink;
      o[n][2 * half + 1] *= shrink;
    }
  }
}

// On the diagonal tile a query sees the keys up to itself.
__device__ __forceinline__ void mask_diagonal(float (&s)[8][4], int first_row, float hidden) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
  for (int n = 0; n < 8; ++n) {
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      const int row = first_row + lane / 4 + e / 2 * 8;
      const int column = n * 8 + lane % 4 * 2 + e % 2;
      if (column > row) s[n][e] = hidden;
    }
  }
}

template <typename T, int kHead>
__global__ void __launch_bounds__(kAttentionThreads) attention_kernel(AttentionForward<T> a) {
  __shared__ __align__(16) T k_tile[kTile * kTileStride<kHead>];
  __shared__ __align__(16) T v_tile[kTile * kTileStride<kHead>];
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int warp_row = static_cast<int>(threadIdx.x) / 32 * 16;
  // Causal: late tiles see most keys, so they go first and the short ones fill the tail.
  const int tile = static_cast<int>(gridDim.x - 1 - blockIdx.x);
  const int head = static_cast<int>(blockIdx.y);
  const int batch = static_cast<int>(blockIdx.z);
  const int kv_head = head / (a.shape.heads / a.shape.kv_heads);
  const std::int64_t query =
      (std::int64_t{batch} * a.shape.heads + head) * a.shape.queries + tile * kTile;
  const std::int64_t key = (std::int64_t{batch} * a.shape.kv_heads + kv_head) * a.shape.keys;
  const T* keys = a.k + key * kHead;
  const T* values = a.v + key * kHead;

  // Queries pass through the values' tile into registers, for all keys.
  start_tile<T, kHead>(v_tile, a.q + query * kHead);
  start_tile<T, kHead>(k_tile, keys);
  close_copies();
  finish_copies<0>();
  __syncthreads();
  std::uint32_t q[kHead / 16][4];
#pragma unroll
  for (int k = 0; k < kHead / 16; ++k) {
    load_a(q[k], v_tile + warp_row * kTileStride<kHead> + k * 16, kTileStride<kHead>);
  }

  float o[kHead / 8][4] = {};
  float maximum[2] = {-INFINITY, -INFINITY};
  float sum[2] = {0, 0};
  const int tiles = a.shape.causal ? tile + 1 : a.shape.keys / kTile;
  for (int j = 0; j < tiles; ++j) {
    finish_copies<0>();
    __syncthreads();  // keys have come, and nobody reads the last values (or the queries) any more
    start_tile<T, kHead>(v_tile, values + std::int64_t{j} * kTile * kHead);
    close_copies();
    float s[8][4] = {};
    add_scores<T, kHead>(s, q, k_tile);
    finish_copies<0>();
    __syncthreads();  // values have come, and nobody reads these keys any more
    if (j + 1 < tiles) start_tile<T, kHead>(k_tile, keys + std::int64_t{j + 1} * kTile * kHead);
    close_copies();
    if (a.shape.causal && j == tile) mask_diagonal(s, warp_row, -INFINITY);
    next_scores<kHead>(s, a.scale * kLog2E, maximum, sum, o);
    std::uint32_t p[4][4];
    as_factor<T>(p, s);
    add_product<T, kHead>(o, p, v_tile);
  }

#pragma unroll
  for (int half = 0; half < 2; ++half) {
    sum[half] += shuffle_xor(sum[half], 1);
    sum[half] += shuffle_xor(sum[half], 2);
    const float inverse = 1.0f / sum[half];
    const std::int64_t row = query + warp_row + lane / 4 + half * 8;
#pragma unroll
    for (int n = 0; n < kHead / 8; ++n) {
      store_pair(a.o + row * kHead + n * 8 + lane % 4 * 2,
                 pair<T>(o[n][2 * half] * inverse, o[n][2 * half + 1] * inverse));
    }
    if (lane % 4 == 0) a.lse[row] = maximum[half] * a.scale + logf(sum[half]);
  }
}

}  // namespace trainyard::probe
