// Kernels: the language between a network and a cost. A kernel says what is computed on one GPU,
// never how long it takes.
#pragma once

#include <array>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>

#include "sim/base/units.h"

namespace trainyard::models {

enum class Dtype : std::uint8_t { fp32, tf32, bf16, fp16, fp8 };

std::string_view name(Dtype dtype);  // "bf16"
Bytes size_of(Dtype dtype);          // of one element in memory; tf32 is stored in 4 bytes

// Which numbers of an operand in 8 bits share a scale: all, those of a row, 128, 32 (mx).
enum class Scaling : std::uint8_t { tensor, row, block, micro };

std::string_view name(Scaling scaling);  // "row"

// C[m,n] = A[m,k] B[k,n], `batch` independent ones (attention scores: batch x heads of them).
// `grouped`: those of several experts in one kernel, which is tuned for large products. `adds_to`:
// C is added to numbers of that type; without, it is written as `dtype`.
struct Gemm {
  std::int64_t m = 1, n = 1, k = 1, batch = 1;
  Dtype dtype = Dtype::fp16;
  bool grouped = false;
  bool over_rows =
      false;  // k, not m, are the rows of the data or of an expert: gradient of weights
  std::optional<Dtype> adds_to{};
  Scaling scaling = Scaling::tensor;  // of fp8 operands
  friend bool operator==(const Gemm&, const Gemm&) = default;
  friend auto operator<=>(const Gemm&, const Gemm&) = default;
};

// Bytes of which every row of the operands and of the result begins at a multiple: a power of two,
// 16 at most. A is stored by rows of k numbers, over_rows of m, B of k or n and C of n.
std::int64_t row_alignment(const Gemm& gemm);

// Whose code computes softmax(Q K^T) V.
enum class AttentionKernel : std::uint8_t {
  usual,      // nobody said: what frameworks take on the GPU
  unfused,    // two batched Gemm and the memory-bound kernels between them: no Attention
  sdpa_math,  // PyTorch's composite of plain operators, scores in memory
  fa1,        // FlashAttention
  triton,     // FlashAttention written in Triton
  fa2,        // FlashAttention-2
  fa3,        // FlashAttention-3, of Hopper
  cudnn,      // of cuDNN
};

std::string_view name(AttentionKernel kernel);  // "fa2"

// Attention as one kernel: softmax(Q K^T) V, by most without the scores in memory.
struct Attention {
  std::int64_t batch = 1, heads = 1, kv_heads = 1, query_length = 1, key_length = 1, head_size = 1;
  bool causal = true, backward = false;
  Dtype dtype = Dtype::fp16;
  // Causal: keys that a query sees at most, the nearest ones or (chunked) those of its own chunk of
  // the sequence; 0: all before it.
  std::int64_t window = 0;
  bool chunked = false;
  AttentionKernel kernel = AttentionKernel::usual;
  bool dropout = false;  // of scores, whose random numbers the kernel draws
  friend bool operator==(const Attention&, const Attention&) = default;
  friend auto operator<=>(const Attention&, const Attention&) = default;
};

enum class ConvolutionPass : std::uint8_t { forward, data_gradient, weight_gradient };

// 2-D convolution of `batch` images, output height x width given.
struct Convolution {
  std::int64_t batch = 1, in_channels = 1, out_channels = 1;
  std::int64_t in_height = 1, in_width = 1, out_height = 1, out_width = 1;
  std::int64_t kernel_height = 1, kernel_width = 1, groups = 1;
  ConvolutionPass pass = ConvolutionPass::forward;
  Dtype dtype = Dtype::fp16;
  bool channels_first = false;  // images are stored channel by channel (NCHW), not pixel by pixel
  friend bool operator==(const Convolution&, const Convolution&) = default;
  friend auto operator<=>(const Convolution&, const Convolution&) = default;
};

// What a memory-bound kernel does; the reached share of HBM bandwidth differs by kind.
enum class MemoryOp : std::uint8_t {
  elementwise,  // add, scale, bias, residual, copy
  dropout,
  activation,        // GELU, ReLU
  gated_activation,  // SiLU * up in one kernel
  // The same of rows whose number varies, for which a compiled kernel knows no sizes.
  varying_gated_activation,
  layer_norm,
  rms_norm,
  batch_norm,
  softmax,
  column_sum,  // of a matrix: what autograd makes of the gradient of a result for its bias
  rope,
  pooling,
  embedding,      // PyTorch's: rows by their numbers, and their gradients added up
  embedding_bag,  // of a recommender, whose kernels sum what they look up
  permutation,    // of rows, to experts and back
  cast,           // to 8 bits with a scale; its transpose
  amax,           // the largest number of a tensor, for that scale
  cross_entropy,
  parallel_cross_entropy,  // Megatron-LM's, over a vocabulary that ranks may share
  optimizer,               // Adam, SGD
};

std::string_view name(MemoryOp op);  // "layer_norm"
inline constexpr auto kAllMemoryOps = [] {
  std::array<MemoryOp, static_cast<std::size_t>(MemoryOp::optimizer) + 1> all{};
  for (std::size_t i = 0; i < all.size(); ++i)
    all[i] = static_cast<MemoryOp>(i);
  return all;
}();

struct MemoryBound {
  MemoryOp op = MemoryOp::elementwise;
  Bytes read, written;
  bool backward = false;  // of a backward pass: reached shares differ
  // Numbers that threads handle one by one, as operands are broadcast, permuted or of two types, or
  // as each takes a random number; 0: vectors of them, as fast as memory is.
  std::int64_t elements = 0;
  std::int64_t kernels = 1;  // equal ones, one behind the other, that move this together
  friend bool operator==(const MemoryBound&, const MemoryBound&) = default;
  friend auto operator<=>(const MemoryBound&, const MemoryBound&) = default;
};

// What takes as long as somebody says who timed it; nothing else is known of it.
struct Timed {
  Seconds time{};
  friend bool operator==(const Timed&, const Timed&) = default;
  friend auto operator<=>(const Timed&, const Timed&) = default;
};

using Kernel = std::variant<Gemm, Attention, Convolution, MemoryBound, Timed>;

// What the kernel executes. Multiply-adds count as two, memory-bound and timed kernels count none;
// causal fused attention does half of the scores, those in its window if it has one, its backward
// pass five products where forward does two.
Flops flops(const Kernel& kernel);

// What the mask leaves out of that: the rest of the square of all queries and all keys.
Flops masked_flops(const Attention& attention);

// Keys that a query sees, on average over the queries.
double visible_keys(const Attention& attention);

// Bytes that must cross HBM once: operands in, results out.
Bytes memory_traffic(const Kernel& kernel);

// "gemm fp16 2048x9600x25600", for reports and diagnostics.
std::string to_text(const Kernel& kernel);

}  // namespace trainyard::models
