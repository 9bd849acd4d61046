#include "cli/commands/kernel_spec.h"

#include <doctest/doctest.h>

#include "sim/simulate/outlook/kernel_interval.h"
#include "tests/support/about.h"

using namespace trainyard;

namespace {

models::Kernel parsed(const std::string& spec) {
  return cli::parse_kernel(spec, models::Dtype::bf16).kernel;
}

}  // namespace

TEST_CASE("a product is its three sizes or its keys") {
  const models::Gemm gemm{.m = 8, .n = 16, .k = 32, .dtype = models::Dtype::bf16};
  CHECK(parsed("gemm:8x16x32") == models::Kernel(gemm));
  CHECK(parsed("gemm:k=32,m=8,n=16,dtype=bf16") == models::Kernel(gemm));
  models::Gemm grouped = gemm;
  grouped.grouped = true;
  grouped.batch = 4;
  CHECK(parsed("grouped_gemm:8x16x32,groups=4") == models::Kernel(grouped));
}

TEST_CASE("a product may add to numbers of another type") {
  const models::Gemm gemm{
      .m = 8, .n = 16, .k = 32, .dtype = models::Dtype::bf16, .adds_to = models::Dtype::fp32};
  CHECK(parsed("gemm:8x16x32,adds_to=fp32") == models::Kernel(gemm));
  CHECK_THROWS_AS(parsed("gemm:8x16x32,adds_to=fp8"), cli::SpecError);
}

TEST_CASE("operands of fp8 products may have scales for parts of them") {
  const models::Gemm gemm{
      .m = 8, .n = 16, .k = 32, .dtype = models::Dtype::fp8, .scaling = models::Scaling::row};
  CHECK(parsed("gemm:8x16x32,dtype=fp8,scaling=row") == models::Kernel(gemm));
  CHECK_THROWS_AS(parsed("gemm:8x16x32,dtype=bf16,scaling=row"), cli::SpecError);
  CHECK_THROWS_AS(parsed("gemm:8x16x32,dtype=fp8,scaling=column"), cli::SpecError);
}

// Of Y[8,16] = X[8,32] W[32,16], dX is 8 x 32 over 16 columns and dW 16 x 32 over 8 rows.
TEST_CASE("gradients of experts' products are said by the sizes of the forward pass") {
  models::Gemm inputs{
      .m = 8, .n = 32, .k = 16, .batch = 4, .dtype = models::Dtype::bf16, .grouped = true};
  CHECK(parsed("grouped_gemm:8x16x32,groups=4,pass=data_gradient") == models::Kernel(inputs));
  models::Gemm weights{.m = 16,
                       .n = 32,
                       .k = 8,
                       .batch = 4,
                       .dtype = models::Dtype::bf16,
                       .grouped = true,
                       .over_rows = true};
  CHECK(parsed("grouped_gemm:8x16x32,groups=4,pass=weight_gradient") == models::Kernel(weights));
  CHECK_THROWS_AS(parsed("gemm:8x16x32,pass=weight_gradient"), cli::SpecError);
}

TEST_CASE("attention of one length has it for queries and keys, and as many heads of both") {
  const auto attention =
      std::get<models::Attention>(parsed("attention:heads=4,sequence=64,head_size=32"));
  CHECK(attention.query_length == 64);
  CHECK(attention.key_length == 64);
  CHECK(attention.kv_heads == 4);
  CHECK(attention.causal);
  CHECK_FALSE(attention.backward);
}

// (h + 2 pad - r) / stride + 1, rounded down.
TEST_CASE("a convolution's output follows from stride and padding") {
  const auto c = std::get<models::Convolution>(
      parsed("conv:n=1,c=3,h=224,w=112,k=64,r=7,stride=2,pad=3,pad_w=0"));
  CHECK(c.out_height == 112);
  CHECK(c.out_width == 53);
  CHECK(c.kernel_width == 7);
}

TEST_CASE("a memory-bound kernel's bytes are read and written") {
  const auto kernel = std::get<models::MemoryBound>(parsed("memory:op=softmax,bytes=7"));
  CHECK(kernel.read + kernel.written == Bytes(7));
  CHECK(kernel.elements == 0);
  CHECK_THROWS_AS(parsed("memory:op=softmax"), cli::SpecError);
  const auto copy = std::get<models::MemoryBound>(parsed("memory:op=dropout,bytes=7,elements=3"));
  CHECK(copy.elements == 3);
  CHECK_THROWS_AS(parsed("memory:op=softmax,bytes=7,elements=-1"), cli::SpecError);
}

TEST_CASE("an interval is of samples held out, else of the class, else there is none") {
  const models::Kernel gemm = models::Gemm{.m = 8, .n = 8, .k = 8};
  const std::vector<simulate::KernelClass> classes = {{"gemm", true, 100, 0.9, 1.25},
                                                      {"gemm", false, 50, 1.0, 2.0}};
  cost::Calibration calibration;
  calibration.errors = {{"gemm bf16", "all", 10, 30, 0, 0.10, 0.1, 0.3},
                        {"gemm fp8", "all", 10, 10, 0, 0.06, 0.1, 0.3},
                        {"gemm bf16", "flops >= 1e9", 10, 10, 0, 0.5, 0.1, 0.3},
                        {"memory copy", "all", 10, 10, 0, 0.5, 0.1, 0.3}};
  const auto interval = [&](const std::optional<cost::Calibration>& held, bool profile) {
    return simulate::kernel_interval(classes, held, gemm, profile, Seconds(1));
  };
  // (30 x 0.10 + 10 x 0.06) / 40 = 0.09; 1.61 x 0.09 = 0.1449
  CHECK(interval(calibration, true)->low.count() == about(0.8551));
  CHECK(interval(calibration, true)->high.count() == about(1.1449));
  CHECK(interval({}, true)->high.count() == about(1.25));
  CHECK(interval(calibration, false)->high.count() == about(2.0));
  CHECK_FALSE(simulate::kernel_interval({}, {}, gemm, true, Seconds(1)).has_value());
}

TEST_CASE("a collective is classed by where it goes and whether it is above 4 MiB") {
  CHECK(simulate::operation_of_collective(Bytes(std::int64_t{4} << 20), 1, Basis::interpolated,
                                          false) == "collective in a server up to 4 MiB");
  CHECK(simulate::operation_of_collective(Bytes((std::int64_t{4} << 20) + 1), 2, Basis::analytic,
                                          true) ==
        "collective between servers above 4 MiB in closed form");
  CHECK(simulate::operation_of_collective(Bytes(1), 1, Basis::analytic, true) ==
        "collective in a server over PCIe up to 4 MiB in closed form");
}
