#include "models/layer/kernel.h"

#include <doctest/doctest.h>

#include "tests/support/rooms.h"

using namespace trainyard;

TEST_CASE("a matrix multiplication does 2 m n k and touches three matrices") {
  const Gemm gemm{2048, 9600, 25600, 1, Dtype::fp16};
  CHECK(flops(gemm) == Flops(2.0 * 2048 * 9600 * 25600));
  CHECK(memory_traffic(gemm).count() == 2LL * (2048 * 25600LL + 25600LL * 9600 + 2048 * 9600));
  CHECK(to_text(gemm) == "gemm fp16 2048x9600x25600");
  const Gemm batched{64, 32, 16, 12, Dtype::fp32};
  CHECK(flops(batched) == Flops(12.0 * 2 * 64 * 32 * 16));
  CHECK(memory_traffic(batched).count() == 12 * 4 * (64 * 16 + 16 * 32 + 64 * 32));
  CHECK(to_text(batched) == "gemm fp32 12 of 64x32x16");
}

TEST_CASE("fused attention does four s s h forward, 2.5 times that backward, half when causal") {
  Attention attention{2, 8, 8, 1024, 1024, 64, false, false, Dtype::bf16};
  const double full = 4.0 * 2 * 1024 * 1024 * 8 * 64;
  CHECK(flops(attention) == Flops(full));
  attention.causal = true;
  CHECK(flops(attention) == Flops(full / 2));
  attention.backward = true;
  CHECK(flops(attention) == Flops(2.5 * full / 2));
}

// Forward Q, O and K, V; backward Q, O, dO, dQ and K, V, dK, dV; softmax statistics in fp32.
TEST_CASE("grouped keys and values cross memory once per group, and no score does") {
  Attention attention{1, 64, 8, 4096, 4096, 128, true, false, Dtype::bf16};
  const std::int64_t tokens_by_head = 4096 * 128;
  const std::int64_t statistics = 4 * 64 * 4096;
  CHECK(memory_traffic(attention).count() == 2 * (2 * 64 + 2 * 8) * tokens_by_head + statistics);
  attention.backward = true;
  CHECK(memory_traffic(attention).count() == 2 * (4 * 64 + 4 * 8) * tokens_by_head + statistics);
}

TEST_CASE("the three passes of a convolution cost the same multiplications and bytes") {
  Convolution conv{32, 64, 128, 56, 56, 28, 28, 3, 3, 1, ConvolutionPass::forward, Dtype::fp16};
  const Flops work = flops(conv);
  const Bytes bytes = memory_traffic(conv);
  CHECK(work == Flops(2.0 * 32 * 28 * 28 * 128 * 64 * 9));
  CHECK(bytes.count() == 2 * (32 * 64 * 56 * 56 + 64 * 128 * 9 + 32 * 128 * 28 * 28));
  for (const auto pass : {ConvolutionPass::data_gradient, ConvolutionPass::weight_gradient}) {
    conv.pass = pass;
    CHECK(flops(conv) == work);
    CHECK(memory_traffic(conv) == bytes);
  }
  CHECK(to_text(conv) == "convolution weight gradient fp16 32x64x56x56 by 3x3 to 128x28x28");
}

TEST_CASE("a 1x1 convolution is the matrix multiplication of its pixels") {
  const Convolution conv{8,          256, 64, 14, 14, 14, 14, 1, 1, 1, ConvolutionPass::forward,
                         Dtype::fp16};
  const Gemm gemm{8 * 14 * 14, 64, 256, 1, Dtype::fp16};
  CHECK(flops(conv) == flops(gemm));
  CHECK(memory_traffic(conv) == memory_traffic(gemm));
}

TEST_CASE("groups divide the multiplications and the filter") {
  Convolution conv{1, 32, 32, 8, 8, 8, 8, 3, 3, 1, ConvolutionPass::forward, Dtype::fp32};
  const Flops dense = flops(conv);
  conv.groups = 32;
  CHECK(dense == 32.0 * flops(conv));
  CHECK(memory_traffic(conv).count() == 4 * (32 * 64 + 32 * 9 + 32 * 64));
}

TEST_CASE("memory-bound kernels move bytes and multiply nothing") {
  const MemoryBound memory{MemoryOp::layer_norm, Bytes(3 << 20), Bytes(1 << 20)};
  CHECK(flops(memory) == Flops(0));
  CHECK(memory_traffic(memory) == Bytes(4 << 20));
  CHECK(to_text(memory) == "layer_norm reading 3.00 MiB, writing 1.00 MiB");
}

TEST_CASE("elements have the size of their format in memory") {
  CHECK(size_of(Dtype::fp32) == Bytes(4));
  CHECK(size_of(Dtype::tf32) == Bytes(4));
  CHECK(size_of(Dtype::bf16) == Bytes(2));
  CHECK(size_of(Dtype::fp16) == Bytes(2));
  CHECK(size_of(Dtype::fp8) == Bytes(1));
}

TEST_CASE(
    "rows of a product begin where those of its narrowest operand do, however many there are") {
  const Gemm aligned{.m = 3, .n = 1024, .k = 2048, .dtype = Dtype::bf16};
  CHECK(row_alignment(aligned) == 16);
  CHECK(row_alignment({.m = 1024, .n = 50257, .k = 2048, .dtype = Dtype::bf16}) == 2);
  CHECK(row_alignment({.m = 1024, .n = 2048, .k = 30522, .dtype = Dtype::bf16}) == 4);
  CHECK(row_alignment({.m = 1024, .n = 50257, .k = 2048, .dtype = Dtype::fp32}) == 4);
  // A gradient of weights sums over the rows; it has as many as there are outputs.
  Gemm weights{.m = 1024, .n = 2048, .k = 4097, .dtype = Dtype::bf16};
  CHECK(row_alignment(weights) == 2);
  weights.over_rows = true;
  CHECK(row_alignment(weights) == 16);
  weights.m = 1028;
  CHECK(row_alignment(weights) == 8);
}

// C is read and written in 4 bytes instead of written in 2.
TEST_CASE("a product that adds reads what it adds to") {
  Gemm gemm{.m = 8, .n = 16, .k = 32, .dtype = Dtype::fp16};
  const Bytes written = memory_traffic(gemm);
  gemm.adds_to = Dtype::fp32;
  CHECK(memory_traffic(gemm) == written + 8 * 16 * Bytes(6));
}
