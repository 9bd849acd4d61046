#include "calibrate/probe/vendor/matmul.h"

#include <cuda_bf16.h>

#include <algorithm>
#include <vector>

#include "calibrate/probe/host/timing.h"
#include "tests/gpu/device.h"

using namespace trainyard::probe;

namespace {

std::vector<float> values_of(const DeviceBuffer& memory, std::size_t offset, std::size_t count,
                             Type type) {
  std::vector<float> values(count);
  if (type_bytes(type) == 4) {
    PROBE_CUDA(cudaMemcpy(values.data(), memory.data() + offset, count * 4, cudaMemcpyDefault));
    return values;
  }
  std::vector<__nv_bfloat16> halves(count);
  PROBE_CUDA(cudaMemcpy(halves.data(), memory.data() + offset, count * 2, cudaMemcpyDefault));
  std::transform(halves.begin(), halves.end(), values.begin(),
                 [](__nv_bfloat16 value) { return __bfloat162float(value); });
  return values;
}

// The largest error against sums in double, by the definition of the product: element (row, column)
// of a matrix of cuBLAS is at row + column * leading.
double worst_error(const GemmShape& shape, Type type) {
  const MatmulLibrary library;
  const Stream stream;
  const Operands operands = operands_of(shape, type);
  const DeviceBuffer input(operands.input_bytes), output(operands.output_bytes);
  fill_random(type, input.data(), operands.input_bytes / type_bytes(type), 3, stream);
  const Matmul product(library, shape, type);
  REQUIRE(product.supported());
  product.enqueue(input.data(), output.data(), stream);
  stream.wait();

  const auto size = [](std::int64_t a, std::int64_t b, std::int64_t c) {
    return static_cast<std::size_t>(a * b * c);
  };
  const std::vector<float> weights = values_of(input, 0, size(shape.n, shape.k, shape.batch), type);
  const std::vector<float> rows =
      values_of(input, operands.b_offset, size(shape.k, shape.m, shape.batch), type);
  const std::vector<float> result = values_of(output, 0, size(shape.m, shape.n, shape.batch), type);
  const bool weights_turned = shape.layout == Layout::tn, rows_turned = shape.layout == Layout::nt;
  double worst = 0;
  for (std::int64_t b = 0; b < shape.batch; ++b)
    for (std::int64_t m = 0; m < shape.m; ++m)
      for (std::int64_t n = 0; n < shape.n; ++n) {
        double sum = 0;
        for (std::int64_t k = 0; k < shape.k; ++k) {
          const std::int64_t w = weights_turned ? k + n * shape.k : n + k * shape.n;
          const std::int64_t r = rows_turned ? m + k * shape.m : k + m * shape.k;
          sum += static_cast<double>(
                     weights[size(b, shape.n, shape.k) + static_cast<std::size_t>(w)]) *
                 rows[size(b, shape.k, shape.m) + static_cast<std::size_t>(r)];
        }
        const double got =
            result[size(b, shape.m, shape.n) + static_cast<std::size_t>(n + m * shape.n)];
        worst = std::max(worst, got > sum ? got - sum : sum - got);
      }
  return worst;
}

double time_of(const DeviceInfo& device, const GemmShape& shape, Type type) {
  const MatmulLibrary library;
  const Stream stream;
  const Operands operands = operands_of(shape, type);
  const Rotation input = rotate(operands.input_bytes, device.l2_bytes, std::size_t{1} << 30);
  const DeviceBuffer from(input.bytes()), to(operands.output_bytes);
  fill_random(type, from.data(), from.bytes() / type_bytes(type), 3, stream);
  const Matmul product(library, shape, type);
  TimingOptions options;
  options.copies = input.copies;
  return measure(
             stream,
             [&](long long call) {
               product.enqueue(from.data() + input.offset(call), to.data(), stream);
             },
             options)
      .median_us;
}

}  // namespace

TEST_CASE("products of all layouts, batches and odd sizes are those of the definition") {
  const DeviceInfo device = test::the_device();
  for (const Layout layout : {Layout::tn, Layout::nn, Layout::nt}) {
    for (const GemmShape& shape :
         {GemmShape{48, 80, 64, 1, layout}, GemmShape{33, 17, 51, 1, layout},
          GemmShape{24, 40, 32, 3, layout}}) {
      CAPTURE(layout_name(layout));
      CAPTURE(shape.m);
      // Sums of at most 64 products of size 1: their roundings in fp32 stay below 64^2 / 2^24.
      CHECK(worst_error(shape, Type::fp32) < 1e-3);
      if (can_multiply(device, Type::bf16))
        CHECK(worst_error(shape, Type::bf16) < 0.15);  // results up to 32 have steps of 1/8
      if (can_multiply(device, Type::tf32))
        CHECK(worst_error(shape, Type::tf32) < 0.15);  // 64 products of 10-bit operands
    }
  }
}

TEST_CASE("a product of 8192 is slower than the arithmetic allows and faster than a tenth of it") {
  const DeviceInfo device = test::the_device();
  if (!can_multiply(device, Type::bf16)) throw test::Skip{"needs bf16"};
  const GemmShape shape{8192, 8192, 8192, 1, Layout::tn};
  const double flops = shape.flops() / (time_of(device, shape, Type::bf16) * 1e-6);
  // No chip to date does more than 8192 operations per clock and multiprocessor on 16-bit operands.
  CHECK(flops < 8192.0 * device.multiprocessors * device.clock_mhz * 1e6);
  CHECK(flops > 0.1 * 512 * device.multiprocessors * device.clock_mhz * 1e6);
}

TEST_CASE("more work takes longer") {
  const DeviceInfo device = test::the_device();
  if (!can_multiply(device, Type::fp16)) throw test::Skip{"needs fp16"};
  double last = 0;
  for (const std::int64_t size : {512, 1024, 2048, 4096, 8192}) {
    const double time = time_of(device, {size, size, size, 1, Layout::tn}, Type::fp16);
    CAPTURE(size);
    CHECK(time > last);
    last = time;
  }
}

TEST_CASE("fp8 is at least as fast as bf16 where there is fp8") {
  const DeviceInfo device = test::the_device();
  if (!can_multiply(device, Type::fp8)) throw test::Skip{"needs compute capability 8.9"};
  const GemmShape shape{4096, 4096, 8192, 1, Layout::tn};
  CHECK(time_of(device, shape, Type::fp8) < time_of(device, shape, Type::bf16));
}
