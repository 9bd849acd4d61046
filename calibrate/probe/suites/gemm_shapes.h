// Which matrix products are measured, the most telling first. Needs no CUDA; the same everywhere.
//
// A product is written as trainyard's models write it, row by row: C[m, n] = A[m, k] B[k, n], so
// that the forward pass of a layer has m = tokens, n = outputs, k = inputs. cuBLAS, whose matrices
// are column by column, gets the transposed product (its m is n here). `layout` is what BLAS is
// then told of its operands: TN in the forward pass, NN for the gradient of the input, NT for the
// gradient of the weights.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "type.h"

namespace trainyard::probe {

enum class Layout { tn, nn, nt };
const char* layout_name(Layout layout);

struct GemmShape {
  std::int64_t m = 1, n = 1, k = 1, batch = 1;
  Layout layout = Layout::tn;

  std::size_t input_bytes(Type type) const;
  std::size_t output_bytes(Type type) const;  // fp8 products are written as bf16
  double flops() const;
};
bool operator<(const GemmShape& a, const GemmShape& b);

struct GemmLimits {
  std::size_t input_bytes = std::size_t{4} << 30;
  std::size_t output_bytes = std::size_t{4} << 30;
  double flops = 2e13;
};

// Up to `count` distinct shapes. Any beginning of the list covers the space as well as it can:
//   1. the corners of the cube of sizes, 64 to 16384 in each of m, n and k;
//   2. the rest of a grid of three sizes each, between products of real layers;
//   3. in turns: products of transformers (hidden 768 to 16384, tensor parallel 1 to 8), a
//      space-filling sequence in log m, log n, log k (Halton, bases 2, 3, 5, digits permuted),
//      skinny products, products of attention (batched), sizes that are not multiples of 8.
// All sizes of fp8 are multiples of 16 and its layout is TN, as the hardware asks for.
std::vector<GemmShape> gemm_shapes(Type type, std::size_t count, const GemmLimits& limits = {});

}  // namespace trainyard::probe
