// Kernels of the ends of a language model: embedding gather and scatter-add, and cross-entropy with
// its gradient in one pass over logits that are too long for registers.
#pragma once

#include "element.cuh"

namespace trainyard::probe {

// out[token] = table[ids[token]]; one block per token at a time.
template <typename T>
__global__ void __launch_bounds__(kBlock) gather_kernel(const T* table, const std::int32_t* ids,
                                                        T* out, std::int64_t tokens, int columns) {
  const int packs = columns / kPack<T>;
  for (std::int64_t token = blockIdx.x; token < tokens; token += gridDim.x) {
    const uint4* from = reinterpret_cast<const uint4*>(table + std::int64_t{ids[token]} * columns);
    uint4* to = reinterpret_cast<uint4*>(out + token * columns);
    for (int p = static_cast<int>(threadIdx.x); p < packs; p += static_cast<int>(blockDim.x)) {
      to[p] = from[p];
    }
  }
}

inline int token_grid(std::int64_t tokens) {
  constexpr std::int64_t kMost = 144 * 8 * 4;
  return static_cast<int>(tokens < kMost ? tokens : kMost);
}

inline int threads_for(int packs) {
  const int threads = (packs + 31) / 32 * 32;
  return threads < kBlock ? threads : kBlock;
}

template <typename T>
void launch_gather(const T* table, const std::int32_t* ids, T* out, std::int64_t tokens,
                   int columns, cudaStream_t stream) {
  launch(gather_kernel<T>, dim3(token_grid(tokens)), threads_for(columns / kPack<T>), 0, stream,
         table, ids, out, tokens, columns);
}

// gradient[ids[token]] += dout[token]. The gradient is fp32, as where gradients are accumulated
// over microbatches; ids may repeat, so the sums are atomic, and neighbouring threads hit
// neighbouring floats.
template <typename T>
__global__ void __launch_bounds__(kBlock)
    scatter_add_kernel(const T* dout, const std::int32_t* ids, float* gradient, std::int64_t tokens,
                       int columns) {
  for (std::int64_t token = blockIdx.x; token < tokens; token += gridDim.x) {
    const T* from = dout + token * columns;
    float* to = gradient + std::int64_t{ids[token]} * columns;
    for (int c = static_cast<int>(threadIdx.x); c < columns; c += static_cast<int>(blockDim.x)) {
      atomicAdd(to + c, to_float(from[c]));
    }
  }
}

template <typename T>
void launch_scatter_add(const T* dout, const std::int32_t* ids, float* gradient,
                        std::int64_t tokens, int columns, cudaStream_t stream) {
  launch(scatter_add_kernel<T>, dim3(token_grid(tokens)), kBlock, 0, stream, dout, ids, gradient,
         tokens, columns);
}

inline constexpr int kLossThreads = 1024;

// loss[row] = log(sum exp(x)) - x[label], and x becomes scale (softmax(x) - [column == label]) in
// place, as fused losses do. The second reading of a row finds it in the L2 cache if the rows of
// the two blocks of every multiprocessor fit there together (an H100: up to 90 000 columns of 2
// bytes); where they do not, part of it crosses HBM again, and that is in the time, not in the
// bytes.
template <typename T>
__global__ void __launch_bounds__(kLossThreads)
    cross_entropy_kernel(T* logits, const std::int32_t* labels, float* loss, std::int64_t rows,
                         int columns, float scale) {
  const int packs = columns / kPack<T>;
  const int threads = static_cast<int>(blockDim.x);
  for (std::int64_t row = blockIdx.x; row < rows; row += gridDim.x) {
    T* x = logits + row * columns;
    const int label = labels[row];
    const float chosen = to_float(x[label]);  // before anyone overwrites it: barriers lie between
    OnlineSoftmax seen;
    for (int p = static_cast<int>(threadIdx.x); p < packs; p += threads) {
      float values[kPack<T>];
      load_pack(x, p, values);
#pragma unroll
      for (int e = 0; e < kPack<T>; ++e) {
        seen = with(seen, values[e]);
      }
    }
    seen = block_combine(seen, OnlineSoftmax{}, MergeSoftmax{});
    const float inverse = 1.0f / seen.sum;
    for (int p = static_cast<int>(threadIdx.x); p < packs; p += threads) {
      float values[kPack<T>];
      load_pack(x, p, values);
#pragma unroll
      for (int e = 0; e < kPack<T>; ++e) {
        const float probability = expf(values[e] - seen.maximum) * inverse;
        values[e] = scale * (probability - (p * kPack<T> + e == label ? 1.0f : 0.0f));
      }
      store_pack(x, p, values);
    }
    if (threadIdx.x == 0) loss[row] = logf(seen.sum) + seen.maximum - chosen;
  }
}

template <typename T>
void launch_cross_entropy(T* logits, const std::int32_t* labels, float* loss, std::int64_t rows,
                          int columns, float scale, cudaStream_t stream) {
  launch(cross_entropy_kernel<T>, dim3(token_grid(rows)), kLossThreads, 0, stream, logits, labels,
         loss, rows, columns, scale);
}

}  // namespace trainyard::probe
