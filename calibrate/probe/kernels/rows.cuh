// Kernels that work on rows: layer norm, RMS norm and softmax with the row in registers, one block
// per row at a time, so that every operand crosses HBM once.
#pragma once

#include <stdexcept>

#include "element.cuh"

namespace trainyard::probe {

inline constexpr int kRowThreads = 512;  // at most; 128 registers are left to each

// How a row is spread over a block: `turns` packs per thread.
struct RowShape {
  int packs;    // of a row
  int threads;  // whole warps
  int turns;    // 1, 2 or 4
};

template <typename T>
RowShape row_shape(int columns) {
  if (columns % kPack<T> != 0) throw std::invalid_argument("rows must be whole packs of 16 bytes");
  const int packs = columns / kPack<T>;
  for (int turns = 1; turns <= 4; turns *= 2) {
    const int threads = ((packs + turns - 1) / turns + 31) / 32 * 32;
    if (threads <= kRowThreads) return {packs, threads, turns};
  }
  throw std::invalid_argument("a row does not fit into the registers of a block");
}

// Calls `launch_with(std::integral_constant<int, turns>)`: turns is a template argument of kernels.
template <typename Launch>
void with_turns(int turns, Launch launch_with) {
  switch (turns) {
    case 1: launch_with(std::integral_constant<int, 1>{}); break;
    case 2: launch_with(std::integral_constant<int, 2>{}); break;
    default: launch_with(std::integral_constant<int, 4>{}); break;
  }
}

// Blocks for `rows`: every block takes several rows if there are many, as a persistent kernel does.
inline int row_grid(std::int64_t rows) {
  constexpr std::int64_t kMost = 144 * 16;
  return static_cast<int>(rows < kMost ? rows : kMost);
}

template <typename T, int kTurns>
__device__ __forceinline__ void load_row(const T* row, int packs, float outside,
                                         float (&x)[kTurns][kPack<T>]) {
#pragma unroll
  for (int turn = 0; turn < kTurns; ++turn) {
    const int p = static_cast<int>(turn * blockDim.x + threadIdx.x);
    if (p < packs) {
      load_pack(row, p, x[turn]);
    } else {
#pragma unroll
      for (int e = 0; e < kPack<T>; ++e) {
        x[turn][e] = outside;
      }
    }
  }
}

template <typename T, int kTurns>
__device__ __forceinline__ void store_row(T* row, int packs, const float (&x)[kTurns][kPack<T>]) {
#pragma unroll
  for (int turn = 0; turn < kTurns; ++turn) {
    const int p = static_cast<int>(turn * blockDim.x + threadIdx.x);
    if (p < packs) store_pack(row, p, x[turn]);
  }
}

// y = (x - mean) / deviation * gamma + beta; without kCentre RMS norm: no mean and no beta. Mean
// and 1 / deviation of each row are kept for the backward pass.
template <typename T>
struct Norm {
  const T* x;
  const T* gamma;
  const T* beta;
  T* y;
  float* mean;
  float* inverse;
  std::int64_t rows;
  int columns;
  float epsilon;
};

template <typename T, int kTurns, bool kCentre>
__global__ void __launch_bounds__(kRowThreads) norm_kernel(Norm<T> n) {
  const int packs = n.columns / kPack<T>;
  float gamma[kTurns][kPack<T>];
  float beta[kTurns][kPack<T>];
  load_row<T, kTurns>(n.gamma, packs, 0, gamma);
  if (kCentre) load_row<T, kTurns>(n.beta, packs, 0, beta);
  for (std::int64_t row = blockIdx.x; row < n.rows; row += gridDim.x) {
    float x[kTurns][kPack<T>];
    load_row<T, kTurns>(n.x + row * n.columns, packs, 0, x);
    float mean = 0;
    if (kCentre) {
      float sum = 0;
#pragma unroll
      for (int i = 0; i < kTurns * kPack<T>; ++i) {
        sum += x[i / kPack<T>][i % kPack<T>];
      }
      mean = block_sum(sum) / static_cast<float>(n.columns);
    }
    float squares = 0;
#pragma unroll
    for (int turn = 0; turn < kTurns; ++turn) {
      if (static_cast<int>(turn * blockDim.x + threadIdx.x) >= packs) continue;
#pragma unroll
      for (int e = 0; e < kPack<T>; ++e) {
        squares += (x[turn][e] - mean) * (x[turn][e] - mean);
      }
    }
    const float inverse =
        1.0f / sqrtf(block_sum(squares) / static_cast<float>(n.columns) + n.epsilon);
#pragma unroll
    for (int i = 0; i < kTurns * kPack<T>; ++i) {
      float& value = x[i / kPack<T>][i % kPack<T>];
      value = (value - mean) * inverse * gamma[i / kPack<T>][i % kPack<T>];
      if (kCentre) value += beta[i / kPack<T>][i % kPack<T>];
    }
    store_row<T, kTurns>(n.y + row * n.columns, packs, x);
    if (threadIdx.x == 0) {
      n.inverse[row] = inverse;
      if (kCentre) n.mean[row] = mean;
    }
  }
}

template <typename T>
void launch_norm(const Norm<T>& n, bool centre, cudaStream_t stream) {
  const RowShape shape = row_shape<T>(n.columns);
  with_turns(shape.turns, [&](auto turns) {
    launch(centre ? norm_kernel<T, turns, true> : norm_kernel<T, turns, false>,
           dim3(row_grid(n.rows)), shape.threads, 0, stream, n);
  });
}

// dx of every row, and the sums over rows that are the gradients of gamma and beta. A block takes
// every gridDim.x-th row, keeps its part of those sums in registers and leaves it in `parts`
// ([blocks][2][columns]); norm_weights_kernel adds the parts. x and dy are read once.
template <typename T>
struct NormBackward {
  const T* x;
  const T* dy;
  const T* gamma;
  const float* mean;
  const float* inverse;
  T* dx;
  float* parts;
  T* dgamma;
  T* dbeta;
  std::int64_t rows;
  int columns;
};

template <typename T, int kTurns, bool kCentre>
__global__ void __launch_bounds__(kRowThreads) norm_backward_kernel(NormBackward<T> n) {
  const int packs = n.columns / kPack<T>;
  const float share = 1.0f / static_cast<float>(n.columns);
  float dgamma[kTurns][kPack<T>] = {};
  float dbeta[kTurns][kPack<T>] = {};
  for (std::int64_t row = blockIdx.x; row < n.rows; row += gridDim.x) {
    float x[kTurns][kPack<T>];
    float dy[kTurns][kPack<T>];
    float gamma[kTurns][kPack<T>];  // again for each row: it lies in the L1 cache
    load_row<T, kTurns>(n.x + row * n.columns, packs, 0, x);
    load_row<T, kTurns>(n.dy + row * n.columns, packs, 0, dy);
    load_row<T, kTurns>(n.gamma, packs, 0, gamma);
    const float inverse = n.inverse[row];
    const float mean = kCentre ? n.mean[row] : 0.0f;
    float sum = 0;
    float product = 0;
#pragma unroll
    for (int i = 0; i < kTurns * kPack<T>; ++i) {
      const int turn = i / kPack<T>, e = i % kPack<T>;
      x[turn][e] = (x[turn][e] - mean) * inverse;
      dgamma[turn][e] += dy[turn][e] * x[turn][e];
      if (kCentre) dbeta[turn][e] += dy[turn][e];
      dy[turn][e] *= gamma[turn][e];  // 0 outside of the row, as dy is
      sum += dy[turn][e];
      product += dy[turn][e] * x[turn][e];
    }
    sum = kCentre ? block_sum(sum) * share : 0.0f;
    product = block_sum(product) * share;
#pragma unroll
    for (int i = 0; i < kTurns * kPack<T>; ++i) {
      const int turn = i / kPack<T>, e = i % kPack<T>;
      dy[turn][e] = inverse * (dy[turn][e] - sum - x[turn][e] * product);
    }
    store_row<T, kTurns>(n.dx + row * n.columns, packs, dy);
  }
  float* part = n.parts + std::int64_t{blockIdx.x} * 2 * n.columns;
#pragma unroll
  for (int turn = 0; turn < kTurns; ++turn) {
    const int p = static_cast<int>(turn * blockDim.x + threadIdx.x);
    if (p >= packs) continue;
    store_floats(part, p, dgamma[turn]);
    if (kCentre) store_floats(part + n.columns, p, dbeta[turn]);
  }
}

// Adds the parts of a column: 32 threads along the columns, 8 along the parts.
template <typename T>
__global__ void __launch_bounds__(kBlock)
    norm_weights_kernel(const float* parts, int count, int columns, T* dgamma, T* dbeta) {
  __shared__ float sums[8][2][32];
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int line = static_cast<int>(threadIdx.x) / 32;
  const int column = static_cast<int>(blockIdx.x) * 32 + lane;
  float gamma = 0;
  float beta = 0;
  if (column < columns) {
    for (int part = line; part < count; part += 8) {
      gamma += parts[std::int64_t{part} * 2 * columns + column];
      if (dbeta != nullptr) beta += parts[(std::int64_t{part} * 2 + 1) * columns + column];
    }
  }
  sums[line][0][lane] = gamma;
  sums[line][1][lane] = beta;
  __syncthreads();
  if (line != 0 || column >= columns) return;
  for (int other = 1; other < 8; ++other) {
    gamma += sums[other][0][lane];
    beta += sums[other][1][lane];
  }
  dgamma[column] = from_float<T>(gamma);
  if (dbeta != nullptr) dbeta[column] = from_float<T>(beta);
}

// The blocks of the backward pass: two waves' worth of persistent blocks keep `parts` small.
inline int norm_parts(std::int64_t rows) {
  constexpr std::int64_t kMost = 264;
  return static_cast<int>(rows < kMost ? rows : kMost);
}

template <typename T>
void launch_norm_backward(const NormBackward<T>& n, bool centre, cudaStream_t stream) {
  const RowShape shape = row_shape<T>(n.columns);
  const int parts = norm_parts(n.rows);
  with_turns(shape.turns, [&](auto turns) {
    launch(centre ? norm_backward_kernel<T, turns, true> : norm_backward_kernel<T, turns, false>,
           dim3(parts), shape.threads, 0, stream, n);
  });
  launch(norm_weights_kernel<T>, dim3((n.columns + 31) / 32), kBlock, 0, stream, n.parts, parts,
         n.columns, n.dgamma, centre ? n.dbeta : nullptr);
}

// y = softmax(scale x) along rows. Causal: row r belongs to query r % queries, which sees columns
// 0 .. r % queries; the others are neither read (up to a pack) nor anything but 0.
template <typename T>
struct Softmax {
  const T* x;
  T* y;
  std::int64_t rows;
  int columns;
  int queries;
  float scale;
};

template <typename T, int kTurns, bool kCausal>
__global__ void __launch_bounds__(kRowThreads) softmax_kernel(Softmax<T> s) {
  const int packs = s.columns / kPack<T>;
  for (std::int64_t row = blockIdx.x; row < s.rows; row += gridDim.x) {
    const int seen = kCausal ? static_cast<int>(row % s.queries) + 1 : s.columns;
    const int seen_packs = (seen + kPack<T> - 1) / kPack<T>;
    float x[kTurns][kPack<T>];
    load_row<T, kTurns>(s.x + row * s.columns, seen_packs, -INFINITY, x);
    float maximum = -INFINITY;
#pragma unroll
    for (int i = 0; i < kTurns * kPack<T>; ++i) {
      float& value = x[i / kPack<T>][i % kPack<T>];
      const int column =
          static_cast<int>(i / kPack<T> * blockDim.x + threadIdx.x) * kPack<T> + i % kPack<T>;
      value = column < seen ? value * s.scale : -INFINITY;
      maximum = fmaxf(maximum, value);
    }
    maximum = block_combine(maximum, -INFINITY, Maximum{});
    float sum = 0;
#pragma unroll
    for (int i = 0; i < kTurns * kPack<T>; ++i) {
      float& value = x[i / kPack<T>][i % kPack<T>];
      value = expf(value - maximum);  // exp(-inf) is 0: masked
      sum += value;
    }
    const float inverse = 1.0f / block_sum(sum);
#pragma unroll
    for (int i = 0; i < kTurns * kPack<T>; ++i) {
      x[i / kPack<T>][i % kPack<T>] *= inverse;
    }
    store_row<T, kTurns>(s.y + row * s.columns, packs, x);
  }
}

template <typename T>
void launch_softmax(const Softmax<T>& s, bool causal, cudaStream_t stream) {
  const RowShape shape = row_shape<T>(s.columns);
  with_turns(shape.turns, [&](auto turns) {
    launch(causal ? softmax_kernel<T, turns, true> : softmax_kernel<T, turns, false>,
           dim3(row_grid(s.rows)), shape.threads, 0, stream, s);
  });
}

// dx = scale y (dy - sum(y dy)). Where the mask hid a column y is 0, so dx is 0; it is not read.
template <typename T>
struct SoftmaxBackward {
  const T* y;
  const T* dy;
  T* dx;
  std::int64_t rows;
  int columns;
  int queries;
  float scale;
};

template <typename T, int kTurns, bool kCausal>
__global__ void __launch_bounds__(kRowThreads) softmax_backward_kernel(SoftmaxBackward<T> s) {
  const int packs = s.columns / kPack<T>;
  for (std::int64_t row = blockIdx.x; row < s.rows; row += gridDim.x) {
    const int seen = kCausal ? static_cast<int>(row % s.queries) + 1 : s.columns;
    const int seen_packs = (seen + kPack<T> - 1) / kPack<T>;
    float y[kTurns][kPack<T>];
    float dy[kTurns][kPack<T>];
    load_row<T, kTurns>(s.y + row * s.columns, seen_packs, 0, y);
    load_row<T, kTurns>(s.dy + row * s.columns, seen_packs, 0, dy);
    float product = 0;
#pragma unroll
    for (int i = 0; i < kTurns * kPack<T>; ++i) {
      product += y[i / kPack<T>][i % kPack<T>] * dy[i / kPack<T>][i % kPack<T>];
    }
    product = block_sum(product);
#pragma unroll
    for (int i = 0; i < kTurns * kPack<T>; ++i) {
      float& value = dy[i / kPack<T>][i % kPack<T>];
      value = s.scale * y[i / kPack<T>][i % kPack<T>] * (value - product);
    }
    store_row<T, kTurns>(s.dx + row * s.columns, packs, dy);
  }
}

template <typename T>
void launch_softmax_backward(const SoftmaxBackward<T>& s, bool causal, cudaStream_t stream) {
  const RowShape shape = row_shape<T>(s.columns);
  with_turns(shape.turns, [&](auto turns) {
    launch(
        causal ? softmax_backward_kernel<T, turns, true> : softmax_backward_kernel<T, turns, false>,
        dim3(row_grid(s.rows)), shape.threads, 0, stream, s);
  });
}

}  // namespace trainyard::probe
