// Max and average pooling over square windows, NHWC. One thread makes one pack of channels of one
// position; windows that overlap read their neighbours' inputs from the caches. The backward pass
// gathers for each input from the windows that cover it, so it needs no atomics.
#pragma once

#include "element.cuh"

namespace trainyard::probe {

// Which byte of the window won, for each channel of a pack.
template <typename T>
struct Winners {
  std::uint32_t word[kPack<T> / 4];
};

struct PoolPlace {
  int image, y, x, pack;
};

__device__ __forceinline__ PoolPlace pool_place(std::int64_t item, int height, int width,
                                                int packs) {
  const int pack = static_cast<int>(item % packs);
  const std::int64_t pixel = item / packs;
  const int x = static_cast<int>(pixel % width);
  const std::int64_t line = pixel / width;
  return {static_cast<int>(line / height), static_cast<int>(line % height), x, pack};
}

template <typename T, bool kMaximum>
__global__ void __launch_bounds__(kBlock)
    pool_kernel(const T* x, T* y, std::uint8_t* winners, PoolShape s) {
  const int packs = s.channels / kPack<T>;
  const std::int64_t items = std::int64_t{s.batch} * s.out_height * s.out_width * packs;
  const std::int64_t stride = std::int64_t{gridDim.x} * blockDim.x;
  for (std::int64_t i = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < items;
       i += stride) {
    const PoolPlace at = pool_place(i, s.out_height, s.out_width, packs);
    const WindowRange rows = window_range(at.y, s.in_height, s.window, s.stride, s.padding);
    const WindowRange columns = window_range(at.x, s.in_width, s.window, s.stride, s.padding);
    float best[kPack<T>];
    std::uint32_t winner[kPack<T>] = {};
#pragma unroll
    for (int e = 0; e < kPack<T>; ++e) {
      best[e] = kMaximum ? -INFINITY : 0.0f;
    }
    for (int row = rows.begin; row < rows.end; ++row) {
      for (int column = columns.begin; column < columns.end; ++column) {
        const int place =
            (row - at.y * s.stride + s.padding) * s.window + column - at.x * s.stride + s.padding;
        const std::int64_t pixel =
            (std::int64_t{at.image} * s.in_height + row) * s.in_width + column;
        float values[kPack<T>];
        load_pack(x, pixel * packs + at.pack, values);
#pragma unroll
        for (int e = 0; e < kPack<T>; ++e) {
          if (!kMaximum) best[e] += values[e];
          if (kMaximum && values[e] > best[e]) {
            best[e] = values[e];
            winner[e] = static_cast<std::uint32_t>(place);
          }
        }
      }
    }
    const float share =
        1.0f / static_cast<float>((rows.end - rows.begin) * (columns.end - columns.begin));
    Winners<T> words = {};
#pragma unroll
    for (int e = 0; e < kPack<T>; ++e) {
      if (!kMaximum) best[e] *= share;
      words.word[e / 4] |= winner[e] << (8 * (e % 4));
    }
    store_pack(y, i, best);
    if (kMaximum) reinterpret_cast<Winners<T>*>(winners)[i] = words;
  }
}

template <typename T, bool kMaximum>
__global__ void __launch_bounds__(kBlock)
    pool_backward_kernel(const T* dy, const std::uint8_t* winners, T* dx, PoolShape s) {
  const int packs = s.channels / kPack<T>;
  const std::int64_t items = std::int64_t{s.batch} * s.in_height * s.in_width * packs;
  const std::int64_t stride = std::int64_t{gridDim.x} * blockDim.x;
  for (std::int64_t i = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < items;
       i += stride) {
    const PoolPlace at = pool_place(i, s.in_height, s.in_width, packs);
    const WindowRange rows = windows_of(at.y, s.out_height, s.window, s.stride, s.padding);
    const WindowRange columns = windows_of(at.x, s.out_width, s.window, s.stride, s.padding);
    float sum[kPack<T>] = {};
    for (int row = rows.begin; row < rows.end; ++row) {
      for (int column = columns.begin; column < columns.end; ++column) {
        const std::int64_t out =
            ((std::int64_t{at.image} * s.out_height + row) * s.out_width + column) * packs +
            at.pack;
        const std::uint32_t place = static_cast<std::uint32_t>(
            (at.y - row * s.stride + s.padding) * s.window + at.x - column * s.stride + s.padding);
        float values[kPack<T>];
        load_pack(dy, out, values);
        Winners<T> words = {};
        if (kMaximum) words = reinterpret_cast<const Winners<T>*>(winners)[out];
        const WindowRange high = window_range(row, s.in_height, s.window, s.stride, s.padding);
        const WindowRange wide = window_range(column, s.in_width, s.window, s.stride, s.padding);
        const float share =
            1.0f / static_cast<float>((high.end - high.begin) * (wide.end - wide.begin));
#pragma unroll
        for (int e = 0; e < kPack<T>; ++e) {
          const bool won = (words.word[e / 4] >> (8 * (e % 4)) & 255u) == place;
          sum[e] += kMaximum ? (won ? values[e] : 0.0f) : values[e] * share;
        }
      }
    }
    store_pack(dx, i, sum);
  }
}

template <typename T>
void launch_pool(const T* x, T* y, std::uint8_t* winners, const PoolShape& s, bool maximum,
                 cudaStream_t stream) {
  const std::int64_t items =
      std::int64_t{s.batch} * s.out_height * s.out_width * (s.channels / kPack<T>);
  launch(maximum ? pool_kernel<T, true> : pool_kernel<T, false>, dim3(grid_for(items)), kBlock, 0,
         stream, x, y, winners, s);
}

template <typename T>
void launch_pool_backward(const T* dy, const std::uint8_t* winners, T* dx, const PoolShape& s,
                          bool maximum, cudaStream_t stream) {
  const std::int64_t items =
      std::int64_t{s.batch} * s.in_height * s.in_width * (s.channels / kPack<T>);
  launch(maximum ? pool_backward_kernel<T, true> : pool_backward_kernel<T, false>,
         dim3(grid_for(items)), kBlock, 0, stream, dy, winners, dx, s);
}

}  // namespace trainyard::probe
