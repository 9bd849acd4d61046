// The backward pass of fused attention in tiles, and the launches of both passes.
//
//   P = exp(scale Q K^T - lse)     dV = P^T dO     dP = dO V^T
//   dS = scale P (dP - delta)      dK = dS^T Q     dQ = dS K       delta = sum(dO O)
//
// A block owns a tile of keys of one key-value head and goes over all queries that see it, of all
// heads of the group: dK and dV stay in registers. dQ is summed by atomics in fp32 and converted
// last.
#pragma once

#include "attention.cuh"

namespace trainyard::probe {

// kHead / kPack threads per query.
template <typename T, int kHead>
__global__ void __launch_bounds__(kBlock) attention_delta_kernel(AttentionBackward<T> a) {
  constexpr int kLanes = kHead / kPack<T>;
  const std::int64_t rows = std::int64_t{a.shape.batch} * a.shape.heads * a.shape.queries;
  const std::int64_t item = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  const bool inside = item < rows * kLanes;  // lanes outside still take part in the shuffles
  float sum = 0;
  if (inside) {
    float o[kPack<T>];
    float d_o[kPack<T>];
    const float zero[kPack<T>] = {};
    load_pack(a.o, item, o);
    load_pack(a.d_o, item, d_o);
#pragma unroll
    for (int e = 0; e < kPack<T>; ++e) {
      sum += o[e] * d_o[e];
    }
    store_floats(a.dq_sum, item, zero);
  }
#pragma unroll
  for (int lane = 1; lane < kLanes; lane *= 2) {
    sum += shuffle_xor(sum, lane);
  }
  if (inside && item % kLanes == 0) a.delta[item / kLanes] = sum;
}

template <typename T>
__global__ void __launch_bounds__(kBlock)
    attention_convert_kernel(const float* from, T* to, std::int64_t packs) {
  const std::int64_t p = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (p >= packs) return;
  float values[kPack<T>];
  load_floats(from, p, values);
  store_pack(to, p, values);
}

inline constexpr int kScoreStride = kTile + 8;

// The shared memory of a block: four tiles, dS^T, and two numbers per query.
template <typename T, int kHead>
struct BackwardTiles {
  T k[kTile * kTileStride<kHead>];
  T v[kTile * kTileStride<kHead>];
  T q[kTile * kTileStride<kHead>];
  T d_o[kTile * kTileStride<kHead>];
  T ds[kTile * kScoreStride];
  float lse[kTile];
  float delta[kTile];
};

// P^T and dS^T of the warp's 16 keys against 64 queries, from S^T (in p) and dP^T (in ds).
template <typename T, int kHead>
__device__ __forceinline__ void score_gradients(float (&p)[8][4], float (&ds)[8][4],
                                                const BackwardTiles<T, kHead>& tiles, float scale) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
  for (int n = 0; n < 8; ++n) {
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      const int query = n * 8 + lane % 4 * 2 + e % 2;
      p[n][e] = exp2f((p[n][e] * scale - tiles.lse[query]) * kLog2E);
      ds[n][e] = scale * p[n][e] * (ds[n][e] - tiles.delta[query]);
    }
  }
}

// Hides queries that come before the key: the transpose of mask_diagonal.
__device__ __forceinline__ void mask_diagonal_transposed(float (&p)[8][4], int first_key) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
  for (int n = 0; n < 8; ++n) {
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      const int key = first_key + lane / 4 + e / 2 * 8;
      const int query = n * 8 + lane % 4 * 2 + e % 2;
      if (query < key) p[n][e] = -INFINITY;
    }
  }
}

// dQ of the warp's 16 queries from all 64 keys, half a head at a time to spare registers.
template <typename T, int kHead>
__device__ __forceinline__ void add_query_gradient(float* dq, const BackwardTiles<T, kHead>& tiles,
                                                   int warp_row) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    float c[kHead / 16][4] = {};
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      std::uint32_t a[4];
      load_a_transposed(a, tiles.ds + k * 16 * kScoreStride + warp_row, kScoreStride);
#pragma unroll
      for (int n = 0; n < kHead / 16; n += 2) {
        std::uint32_t b[4];
        load_b_columns(b, tiles.k + k * 16 * kTileStride<kHead> + half * (kHead / 2) + n * 8,
                       kTileStride<kHead>);
        multiply_add(c[n], a, b[0], b[1], T{});
        multiply_add(c[n + 1], a, b[2], b[3], T{});
      }
    }
#pragma unroll
    for (int n = 0; n < kHead / 16; ++n) {
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const int row = warp_row + lane / 4 + e / 2 * 8;
        const int column = half * (kHead / 2) + n * 8 + lane % 4 * 2 + e % 2;
        atomicAdd(dq + row * kHead + column, c[n][e]);
      }
    }
  }
}

// The lane's part of 16 rows of a result.
template <typename T, int kHead>
__device__ __forceinline__ void store_rows(T* rows, const float (&c)[kHead / 8][4]) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
  for (int n = 0; n < kHead / 8; ++n) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      store_pair(rows + (lane / 4 + half * 8) * kHead + n * 8 + lane % 4 * 2,
                 pair<T>(c[n][2 * half], c[n][2 * half + 1]));
    }
  }
}

template <typename T, int kHead>
__global__ void __launch_bounds__(kAttentionThreads)
    attention_backward_kernel(AttentionBackward<T> a) {
  TRAINYARD_DYNAMIC_SHARED(shared);
  auto& tiles = *reinterpret_cast<BackwardTiles<T, kHead>*>(shared);
  const int thread = static_cast<int>(threadIdx.x);
  const int lane = thread % 32;
  const int warp_row = thread / 32 * 16;
  const int key_tile = static_cast<int>(blockIdx.x);  // causal: the first is seen by most queries
  const int kv_head = static_cast<int>(blockIdx.y);
  const int batch = static_cast<int>(blockIdx.z);
  const int group = a.shape.heads / a.shape.kv_heads;
  const int query_tiles = a.shape.queries / kTile;
  const int first_tile = a.shape.causal ? key_tile : 0;
  const std::int64_t key =
      (std::int64_t{batch} * a.shape.kv_heads + kv_head) * a.shape.keys + key_tile * kTile;
  start_tile<T, kHead>(tiles.k, a.k + key * kHead);
  start_tile<T, kHead>(tiles.v, a.v + key * kHead);

  float dk[kHead / 8][4] = {};
  float dv[kHead / 8][4] = {};
  for (int member = 0; member < group; ++member) {
    const int head = kv_head * group + member;
    for (int i = first_tile; i < query_tiles; ++i) {
      const std::int64_t query =
          (std::int64_t{batch} * a.shape.heads + head) * a.shape.queries + i * kTile;
      __syncthreads();  // nobody reads the last queries any more
      start_tile<T, kHead>(tiles.q, a.q + query * kHead);
      start_tile<T, kHead>(tiles.d_o, a.d_o + query * kHead);
      close_copies();
      if (thread < kTile) {
        tiles.lse[thread] = a.lse[query + thread];
        tiles.delta[thread] = a.delta[query + thread];
      }
      finish_copies<0>();
      __syncthreads();

      float p[8][4];
      float ds[8][4];
      multiply_rows<T, kHead>(p, tiles.k + warp_row * kTileStride<kHead>, tiles.q);
      multiply_rows<T, kHead>(ds, tiles.v + warp_row * kTileStride<kHead>, tiles.d_o);
      if (a.shape.causal && i == key_tile) mask_diagonal_transposed(p, warp_row);
      score_gradients<T, kHead>(p, ds, tiles, a.scale);
      std::uint32_t factor[4][4];
      as_factor<T>(factor, p);
      add_product<T, kHead>(dv, factor, tiles.d_o);
      as_factor<T>(factor, ds);
#pragma unroll
      for (int k = 0; k < 4; ++k) {
#pragma unroll
        for (int word = 0; word < 4; ++word) {
          const int row = warp_row + lane / 4 + word % 2 * 8;
          const int column = k * 16 + word / 2 * 8 + lane % 4 * 2;
          store_pair(tiles.ds + row * kScoreStride + column, factor[k][word]);
        }
      }
      add_product<T, kHead>(dk, factor, tiles.q);
      __syncthreads();  // dS^T of all keys is there
      add_query_gradient<T, kHead>(a.dq_sum + query * kHead, tiles, warp_row);
    }
  }
  store_rows<T, kHead>(a.dk + (key + warp_row) * kHead, dk);
  store_rows<T, kHead>(a.dv + (key + warp_row) * kHead, dv);
}

inline void check_attention(const AttentionShape& s) {
  const bool square = !s.causal || s.queries == s.keys;
  if (s.queries % kTile != 0 || s.keys % kTile != 0 || s.heads % s.kv_heads != 0 || !square) {
    throw std::invalid_argument("this attention is not whole tiles and groups");
  }
  if (s.head_size != 64 && s.head_size != 128) {
    throw std::invalid_argument("attention has heads of 64 or 128");
  }
}

template <typename T>
void launch_attention(const AttentionForward<T>& a, cudaStream_t stream) {
  check_attention(a.shape);
  const dim3 grid(static_cast<unsigned>(a.shape.queries / kTile),
                  static_cast<unsigned>(a.shape.heads), static_cast<unsigned>(a.shape.batch));
  launch(a.shape.head_size == 64 ? attention_kernel<T, 64> : attention_kernel<T, 128>, grid,
         kAttentionThreads, 0, stream, a);
}

template <typename T, int kHead>
void launch_attention_backward_of(const AttentionBackward<T>& a, cudaStream_t stream) {
  const std::int64_t packs =
      std::int64_t{a.shape.batch} * a.shape.heads * a.shape.queries * (kHead / kPack<T>);
  const dim3 every(static_cast<unsigned>((packs + kBlock - 1) / kBlock));
  const dim3 grid(static_cast<unsigned>(a.shape.keys / kTile),
                  static_cast<unsigned>(a.shape.kv_heads), static_cast<unsigned>(a.shape.batch));
  constexpr std::size_t kShared = sizeof(BackwardTiles<T, kHead>);
  allow_shared(attention_backward_kernel<T, kHead>, kShared);
  launch(attention_delta_kernel<T, kHead>, every, kBlock, 0, stream, a);
  launch(attention_backward_kernel<T, kHead>, grid, kAttentionThreads, kShared, stream, a);
  launch(attention_convert_kernel<T>, every, kBlock, 0, stream, static_cast<const float*>(a.dq_sum),
         a.dq, packs);
}

template <typename T>
void launch_attention_backward(const AttentionBackward<T>& a, cudaStream_t stream) {
  check_attention(a.shape);
  if (a.shape.head_size == 64) {
    launch_attention_backward_of<T, 64>(a, stream);
  } else {
    launch_attention_backward_of<T, 128>(a, stream);
  }
}

}  // namespace trainyard::probe
