#include "models/layer/kernel.h"

#include <fmt/format.h>

#include <numeric>

#include "sim/base/check.h"
#include "sim/base/text.h"

namespace trainyard::models {
namespace {

// FLOPs are doubles: a product of integers in them is exact below 2^53 and never overflows.
double real(std::int64_t count) {
  return static_cast<double>(count);
}

Flops flops_of(const Gemm& gemm) {
  return Flops(2 * real(gemm.batch) * real(gemm.m) * real(gemm.n) * real(gemm.k));
}

// The part of all pairs of queries and keys that a mask leaves, k keys and a window of w:
//   causal 1/2;  window (w - w^2 / 2k) / k, which is 1/2 at w = k;  chunks of w: the causal
//   triangle of each, the last one's of what remains.
double unmasked_share(const Attention& attention) {
  if (!attention.causal) return 1;
  if (attention.window == 0 || attention.window >= attention.key_length) return 0.5;
  const double keys = real(attention.key_length), window = real(attention.window);
  if (!attention.chunked) return (window - window * window / (2 * keys)) / keys;
  const std::int64_t rest = attention.key_length % attention.window;
  const double whole = real(attention.key_length - rest) * window;
  return (whole + real(rest) * real(rest)) / (2 * keys * keys);
}

// Two matrix products forward; backward five of that size, because the scores are computed again.
// Every query meets every key.
// Source: Dao, FlashAttention-2, 2023, section 4.1.
Flops square_of(const Attention& attention) {
  const double scores = real(attention.batch) * real(attention.heads) *
                        real(attention.query_length) * real(attention.key_length);
  const double products = attention.backward ? 5 : 2;
  return Flops(products * 2 * scores * real(attention.head_size));
}

// What a mask leaves out is not computed.
Flops flops_of(const Attention& attention) {
  return unmasked_share(attention) * square_of(attention);
}

// All three passes multiply the same pairs, only sum over different ones.
Flops flops_of(const Convolution& conv) {
  const double outputs =
      real(conv.batch) * real(conv.out_height) * real(conv.out_width) * real(conv.out_channels);
  const double window =
      real(conv.in_channels / conv.groups) * real(conv.kernel_height) * real(conv.kernel_width);
  return Flops(2 * outputs * window);
}

Flops flops_of(const MemoryBound&) {
  return Flops(0);
}

Flops flops_of(const Timed&) {
  return Flops(0);
}

Bytes traffic_of(const Gemm& gemm) {
  const Bytes operands = (gemm.m * gemm.k + gemm.k * gemm.n) * size_of(gemm.dtype);
  const Bytes result = gemm.adds_to ? 2 * size_of(*gemm.adds_to) : size_of(gemm.dtype);
  return gemm.batch * (operands + gemm.m * gemm.n * result);
}

// Forward: Q, K, V in, O out. Backward: Q, K, V, O, dO in, dQ, dK, dV out. Both: one fp32 softmax
// statistic per head and query.
Bytes traffic_of(const Attention& attention) {
  const std::int64_t queries = attention.batch * attention.heads * attention.query_length;
  const std::int64_t keys = attention.batch * attention.kv_heads * attention.key_length;
  const std::int64_t tensors = attention.backward ? 4 : 2;
  return tensors * (queries + keys) * attention.head_size * size_of(attention.dtype) +
         queries * size_of(Dtype::fp32);
}

// Input, filter and output (or their gradients) once each, in every pass.
Bytes traffic_of(const Convolution& conv) {
  const std::int64_t input = conv.batch * conv.in_channels * conv.in_height * conv.in_width;
  const std::int64_t output = conv.batch * conv.out_channels * conv.out_height * conv.out_width;
  const std::int64_t filter =
      conv.out_channels * (conv.in_channels / conv.groups) * conv.kernel_height * conv.kernel_width;
  return (input + output + filter) * size_of(conv.dtype);
}

Bytes traffic_of(const MemoryBound& memory) {
  return memory.read + memory.written;
}

Bytes traffic_of(const Timed&) {
  return Bytes(0);
}

std::string_view name(ConvolutionPass pass) {
  switch (pass) {
    case ConvolutionPass::forward: return "forward";
    case ConvolutionPass::data_gradient: return "data gradient";
    case ConvolutionPass::weight_gradient: return "weight gradient";
  }
  TRAINYARD_CHECK(false, "convolution pass {}", static_cast<int>(pass));
  return "?";
}

std::string text_of(const Gemm& gemm) {
  const std::string batch = gemm.batch == 1 ? "" : fmt::format("{} of ", gemm.batch);
  const std::string scaled =
      gemm.scaling == Scaling::tensor ? "" : fmt::format(" {}-scaled", name(gemm.scaling));
  return fmt::format("gemm {}{} {}{}x{}x{}", name(gemm.dtype), scaled, batch, gemm.m, gemm.n,
                     gemm.k);
}

std::string text_of(const Attention& attention) {
  const std::string window =
      attention.window == 0 ? ""
                            : fmt::format(" in {} of {}", attention.chunked ? "chunks" : "a window",
                                          attention.window);
  const bool is_named = attention.kernel != AttentionKernel::usual;
  return fmt::format("{}attention{}{}{} {} {}x{}/{} heads {}x{}x{}{}{}",
                     attention.causal ? "causal " : "", attention.backward ? " backward" : "",
                     is_named ? " " : "", is_named ? name(attention.kernel) : "",
                     name(attention.dtype), attention.batch, attention.heads, attention.kv_heads,
                     attention.query_length, attention.key_length, attention.head_size, window,
                     attention.dropout ? " with dropout" : "");
}

std::string text_of(const Convolution& conv) {
  const std::string groups = conv.groups == 1 ? "" : fmt::format(" in {} groups", conv.groups);
  return fmt::format("convolution {} {} {}x{}x{}x{} by {}x{} to {}x{}x{}{}", name(conv.pass),
                     name(conv.dtype), conv.batch, conv.in_channels, conv.in_height, conv.in_width,
                     conv.kernel_height, conv.kernel_width, conv.out_channels, conv.out_height,
                     conv.out_width, groups);
}

std::string text_of(const MemoryBound& memory) {
  const std::string one_by_one =
      memory.elements == 0 ? "" : fmt::format(", {} numbers one by one", memory.elements);
  const std::string kernels =
      memory.kernels == 1 ? "" : fmt::format(", in {} kernels", memory.kernels);
  return fmt::format("{} reading {}, writing {}{}{}", name(memory.op), to_text(memory.read),
                     to_text(memory.written), one_by_one, kernels);
}

std::string text_of(const Timed& timed) {
  return fmt::format("given time of {}", trainyard::to_text(to_duration(timed.time)));
}

}  // namespace

std::string_view name(Dtype dtype) {
  switch (dtype) {
    case Dtype::fp32: return "fp32";
    case Dtype::tf32: return "tf32";
    case Dtype::bf16: return "bf16";
    case Dtype::fp16: return "fp16";
    case Dtype::fp8: return "fp8";
  }
  TRAINYARD_CHECK(false, "dtype {}", static_cast<int>(dtype));
  return "?";
}

Bytes size_of(Dtype dtype) {
  switch (dtype) {
    case Dtype::fp32:
    case Dtype::tf32: return Bytes(4);
    case Dtype::bf16:
    case Dtype::fp16: return Bytes(2);
    case Dtype::fp8: return Bytes(1);
  }
  TRAINYARD_CHECK(false, "dtype {}", static_cast<int>(dtype));
  return Bytes(0);
}

std::string_view name(AttentionKernel kernel) {
  switch (kernel) {
    case AttentionKernel::usual: return "usual";
    case AttentionKernel::unfused: return "unfused";
    case AttentionKernel::sdpa_math: return "sdpa_math";
    case AttentionKernel::fa1: return "fa1";
    case AttentionKernel::triton: return "triton";
    case AttentionKernel::fa2: return "fa2";
    case AttentionKernel::fa3: return "fa3";
    case AttentionKernel::cudnn: return "cudnn";
  }
  TRAINYARD_CHECK(false, "attention kernel {}", static_cast<int>(kernel));
  return "?";
}

std::string_view name(Scaling scaling) {
  switch (scaling) {
    case Scaling::tensor: return "tensor";
    case Scaling::row: return "row";
    case Scaling::block: return "block";
    case Scaling::micro: return "micro";
  }
  TRAINYARD_CHECK(false, "scaling {}", static_cast<int>(scaling));
  return "?";
}

std::string_view name(MemoryOp op) {
  switch (op) {
    case MemoryOp::elementwise: return "elementwise";
    case MemoryOp::dropout: return "dropout";
    case MemoryOp::activation: return "activation";
    case MemoryOp::gated_activation: return "gated_activation";
    case MemoryOp::varying_gated_activation: return "varying_gated_activation";
    case MemoryOp::layer_norm: return "layer_norm";
    case MemoryOp::rms_norm: return "rms_norm";
    case MemoryOp::batch_norm: return "batch_norm";
    case MemoryOp::softmax: return "softmax";
    case MemoryOp::column_sum: return "column_sum";
    case MemoryOp::rope: return "rope";
    case MemoryOp::pooling: return "pooling";
    case MemoryOp::embedding: return "embedding";
    case MemoryOp::embedding_bag: return "embedding_bag";
    case MemoryOp::permutation: return "permutation";
    case MemoryOp::cast: return "cast";
    case MemoryOp::amax: return "amax";
    case MemoryOp::cross_entropy: return "cross_entropy";
    case MemoryOp::parallel_cross_entropy: return "parallel_cross_entropy";
    case MemoryOp::optimizer: return "optimizer";
  }
  TRAINYARD_CHECK(false, "memory-bound operation {}", static_cast<int>(op));
  return "?";
}

Flops flops(const Kernel& kernel) {
  return std::visit([](const auto& k) { return flops_of(k); }, kernel);
}

double visible_keys(const Attention& attention) {
  return unmasked_share(attention) * real(attention.key_length);
}

Flops masked_flops(const Attention& attention) {
  return square_of(attention) - flops_of(attention);
}

Bytes memory_traffic(const Kernel& kernel) {
  return std::visit([](const auto& k) { return traffic_of(k); }, kernel);
}

std::string to_text(const Kernel& kernel) {
  return std::visit([](const auto& k) { return text_of(k); }, kernel);
}

std::int64_t row_alignment(const Gemm& gemm) {
  constexpr std::int64_t kMost = 16;
  const std::int64_t numbers = std::gcd(gemm.n, gemm.over_rows ? gemm.m : gemm.k);
  return std::gcd(numbers * size_of(gemm.dtype).count(), kMost);
}

}  // namespace trainyard::models
