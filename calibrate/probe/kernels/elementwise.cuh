// Elementwise kernels: copy, add, activations with bias, dropout, rotary embedding. One pack of 16
// bytes per thread and turn of a grid-stride loop; counts are whole packs.
#pragma once

#include "element.cuh"

namespace trainyard::probe {

// y[o] = function(x[0], x[1], ...) for each element. `bias` has one value per column and is null
// if the function wants none; packs_per_row says where it starts again.
template <typename T, int kIn, int kOut>
struct MapStreams {
  const T* in[kIn];
  T* out[kOut];
  const T* bias;
  std::int64_t packs;
  std::int64_t packs_per_row;
};

template <typename T, int kIn, int kOut, typename Function>
__global__ void __launch_bounds__(kBlock)
    map_kernel(MapStreams<T, kIn, kOut> s, Function function) {
  const std::int64_t stride = std::int64_t{gridDim.x} * blockDim.x;
  for (std::int64_t p = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x; p < s.packs;
       p += stride) {
    float x[kIn][kPack<T>];
    float y[kOut][kPack<T>];
    float bias[kPack<T>] = {};
#pragma unroll
    for (int i = 0; i < kIn; ++i) {
      load_pack(s.in[i], p, x[i]);
    }
    if (s.bias != nullptr) load_pack(s.bias, p % s.packs_per_row, bias);
#pragma unroll
    for (int e = 0; e < kPack<T>; ++e) {
      float from[kIn];
      float to[kOut];
#pragma unroll
      for (int i = 0; i < kIn; ++i) {
        from[i] = x[i][e];
      }
      function(from, bias[e], to);
#pragma unroll
      for (int i = 0; i < kOut; ++i) {
        y[i][e] = to[i];
      }
    }
#pragma unroll
    for (int i = 0; i < kOut; ++i) {
      store_pack(s.out[i], p, y[i]);
    }
  }
}

struct CopyFunction {
  __device__ void operator()(const float (&x)[1], float, float (&y)[1]) const { y[0] = x[0]; }
};
struct AddFunction {
  __device__ void operator()(const float (&x)[2], float, float (&y)[1]) const {
    y[0] = x[0] + x[1];
  }
};
struct GeluFunction {
  __device__ void operator()(const float (&x)[1], float bias, float (&y)[1]) const {
    y[0] = gelu(x[0] + bias);
  }
};
struct GeluBackwardFunction {  // x, dy
  __device__ void operator()(const float (&x)[2], float bias, float (&y)[1]) const {
    y[0] = x[1] * gelu_slope(x[0] + bias);
  }
};
struct ReluFunction {
  __device__ void operator()(const float (&x)[1], float, float (&y)[1]) const {
    y[0] = fmaxf(x[0], 0.0f);
  }
};
struct ReluBackwardFunction {  // y, dy
  __device__ void operator()(const float (&x)[2], float, float (&y)[1]) const {
    y[0] = x[0] > 0.0f ? x[1] : 0.0f;
  }
};
struct SwigluFunction {  // gate, up
  __device__ void operator()(const float (&x)[2], float, float (&y)[1]) const {
    y[0] = silu(x[0]) * x[1];
  }
};
struct SwigluBackwardFunction {  // gate, up, dy -> d gate, d up
  __device__ void operator()(const float (&x)[3], float, float (&y)[2]) const {
    y[0] = x[2] * x[1] * silu_slope(x[0]);
    y[1] = x[2] * silu(x[0]);
  }
};

template <typename T, int kIn, int kOut, typename Function>
void launch_map(const MapStreams<T, kIn, kOut>& streams, Function function, cudaStream_t stream) {
  launch(map_kernel<T, kIn, kOut, Function>, dim3(grid_for(streams.packs)), kBlock, 0, stream,
         streams, function);
}

// One mask byte per element, as the frameworks keep it for the backward pass. The counter of the
// generator is the index of four elements, so that the result depends on no launch shape.
template <typename T>
__global__ void __launch_bounds__(kBlock)
    dropout_kernel(const T* x, T* y, std::uint8_t* mask, std::int64_t packs,
                   std::uint32_t threshold, float scale, std::uint64_t seed) {
  const std::int64_t stride = std::int64_t{gridDim.x} * blockDim.x;
  for (std::int64_t p = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x; p < packs;
       p += stride) {
    float values[kPack<T>];
    load_pack(x, p, values);
    std::uint32_t bytes[kPack<T> / 4];
#pragma unroll
    for (int quad = 0; quad < kPack<T> / 4; ++quad) {
      const RandomWords random =
          philox(static_cast<std::uint64_t>(p) * (kPack<T> / 4) + quad, 0, seed);
      bytes[quad] = 0;
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const bool keep = random.word[e] >= threshold;
        values[4 * quad + e] = keep ? values[4 * quad + e] * scale : 0.0f;
        bytes[quad] |= (keep ? 1u : 0u) << (8 * e);
      }
    }
    store_pack(y, p, values);
#pragma unroll
    for (int quad = 0; quad < kPack<T> / 4; ++quad) {
      reinterpret_cast<std::uint32_t*>(mask)[p * (kPack<T> / 4) + quad] = bytes[quad];
    }
  }
}

template <typename T>
__global__ void __launch_bounds__(kBlock)
    dropout_backward_kernel(const T* dy, const std::uint8_t* mask, T* dx, std::int64_t packs,
                            float scale) {
  const std::int64_t stride = std::int64_t{gridDim.x} * blockDim.x;
  for (std::int64_t p = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x; p < packs;
       p += stride) {
    float values[kPack<T>];
    load_pack(dy, p, values);
#pragma unroll
    for (int quad = 0; quad < kPack<T> / 4; ++quad) {
      const std::uint32_t bytes =
          reinterpret_cast<const std::uint32_t*>(mask)[p * (kPack<T> / 4) + quad];
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        values[4 * quad + e] *= (bytes >> (8 * e) & 1u) != 0 ? scale : 0.0f;
      }
    }
    store_pack(dx, p, values);
  }
}

template <typename T>
void launch_dropout(const T* x, T* y, std::uint8_t* mask, std::int64_t count, double probability,
                    std::uint64_t seed, cudaStream_t stream) {
  const std::int64_t packs = count / kPack<T>;
  launch(dropout_kernel<T>, dim3(grid_for(packs)), kBlock, 0, stream, x, y, mask, packs,
         drop_threshold(probability), static_cast<float>(1 / (1 - probability)), seed);
}

template <typename T>
void launch_dropout_backward(const T* dy, const std::uint8_t* mask, T* dx, std::int64_t count,
                             double probability, cudaStream_t stream) {
  const std::int64_t packs = count / kPack<T>;
  launch(dropout_backward_kernel<T>, dim3(grid_for(packs)), kBlock, 0, stream, dy, mask, dx, packs,
         static_cast<float>(1 / (1 - probability)));
}

// x[token, head, size]: element i turns with element i + size/2, as in Llama. `cosine` and `sine`
// are [length, size/2]; token % length is the position. `direction` -1 is the backward pass.
template <typename T>
__global__ void __launch_bounds__(kBlock)
    rope_kernel(const T* x, T* y, const float* cosine, const float* sine, std::int64_t tokens,
                int length, int heads, int size, float direction) {
  const int half_packs = size / 2 / kPack<T>;
  const std::int64_t items = tokens * heads * half_packs;
  const std::int64_t stride = std::int64_t{gridDim.x} * blockDim.x;
  for (std::int64_t i = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < items;
       i += stride) {
    const int pack = static_cast<int>(i % half_packs);
    const std::int64_t row = i / half_packs;  // token and head
    const std::int64_t position = row / heads % length;
    const std::int64_t first = row * 2 * half_packs + pack;
    float a[kPack<T>];
    float b[kPack<T>];
    float c[kPack<T>];
    float s[kPack<T>];
    load_pack(x, first, a);
    load_pack(x, first + half_packs, b);
    load_floats(cosine, position * half_packs + pack, c);
    load_floats(sine, position * half_packs + pack, s);
#pragma unroll
    for (int e = 0; e < kPack<T>; ++e) {
      rotate(c[e], direction * s[e], a[e], b[e]);
    }
    store_pack(y, first, a);
    store_pack(y, first + half_packs, b);
  }
}

template <typename T>
void launch_rope(const T* x, T* y, const float* cosine, const float* sine, std::int64_t tokens,
                 int length, int heads, int size, bool backward, cudaStream_t stream) {
  launch(rope_kernel<T>, dim3(grid_for(tokens * heads * (size / 2 / kPack<T>))), kBlock, 0, stream,
         x, y, cosine, sine, tokens, length, heads, size, backward ? -1.0f : 1.0f);
}

}  // namespace trainyard::probe
