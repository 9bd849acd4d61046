// The probes' kernels, run thread by thread on the CPU, in two orders of the threads of a block.
#include "tests/calibrate/emulated_array.h"
// The order matters: the kernels need the words of the first.
#include "tests/calibrate/attention_checks.h"
#include "tests/calibrate/kernel_checks.h"
#include "tests/support/rooms.h"

namespace trainyard {
namespace {

void in_both_orders(void (*check)()) {
  for (const bool downwards : {false, true}) {
    CAPTURE(downwards);
    emulated::downwards = downwards;
    check();
  }
  emulated::downwards = false;
}

#define TRAINYARD_CHECK_TYPES(sentence, check) \
  TEST_CASE("" sentence) {                     \
    in_both_orders(check<float>);              \
    in_both_orders(check<__half>);             \
    in_both_orders(check<__nv_bfloat16>);      \
  }

TRAINYARD_CHECK_TYPES("elementwise functions are those of the reference", check_elementwise)
TRAINYARD_CHECK_TYPES("dropout drops what Philox says", check_dropout)
TRAINYARD_CHECK_TYPES("rotary embedding turns pairs by their angle", check_rope)
TRAINYARD_CHECK_TYPES("layer norm and RMS norm, forward and backward", check_norm)
TRAINYARD_CHECK_TYPES("softmax, causal and full, forward and backward", check_softmax)
TRAINYARD_CHECK_TYPES("embedding gathers rows and adds up their gradients", check_tokens)
TRAINYARD_CHECK_TYPES("cross-entropy leaves the gradient in the logits", check_cross_entropy)
TRAINYARD_CHECK_TYPES("Adam and momentum take one step", check_optimizers)
TRAINYARD_CHECK_TYPES("sums and norms of a whole array", check_sums)
TRAINYARD_CHECK_TYPES("batch norm in both layouts, forward and backward", check_batch_norm)
TRAINYARD_CHECK_TYPES("max and average pooling, forward and backward", check_pooling)

TEST_CASE("fused attention in fp16, forward and backward") {
  in_both_orders(check_attentions<__half>);
}
TEST_CASE("fused attention in bf16, forward and backward") {
  in_both_orders(check_attentions<__nv_bfloat16>);
}

// The emulation itself: a test that cannot fail would prove nothing.
void missing_barrier(float* out) {
  __shared__ float box[64];
  box[threadIdx.x] = static_cast<float>(threadIdx.x);
  out[threadIdx.x] = box[63 - threadIdx.x];
}
void uneven_barrier(float* out) {
  if (threadIdx.x < 32) __syncthreads();
  out[threadIdx.x] = 1;
}
void unfinished_copy(const float* in, float* out) {
  __shared__ __align__(16) float box[128];
  probe::start_copy(&box[4 * threadIdx.x], in + 4 * threadIdx.x);
  probe::close_copies();
  probe::finish_copies<1>();  // allows one group to be under way
  out[threadIdx.x] = box[4 * threadIdx.x];
}

TEST_CASE("the emulation finds races, uneven barriers and copies not waited for") {
  Array<float> out(64);
  const Values reversed =
      each(Values(64), [](std::size_t i) { return 63.0 - static_cast<double>(i); });
  probe::launch(missing_barrier, dim3(1), 64, 0, nullptr, out.data());
  CHECK(out.values() != reversed);
  CHECK_THROWS_WITH(probe::launch(uneven_barrier, dim3(1), 64, 0, nullptr, out.data()),
                    "threads wait at different barriers");
  const Array<float> in(Values(128, 1));
  CHECK_THROWS_WITH(probe::launch(unfinished_copy, dim3(1), 32, 0, nullptr,
                                  static_cast<const float*>(in.data()), out.data()),
                    "a thread ended with copies under way");
}

TEST_CASE("fp16 and bf16 of the emulation round to the nearest, ties to even") {
  CHECK(emulated::to_half(1) == 0x3c00);
  CHECK(emulated::to_half(-2) == 0xc000);
  CHECK(emulated::to_half(65504) == 0x7bff);
  CHECK(emulated::to_half(65520) == 0x7c00);
  CHECK(emulated::to_half(5.9604645e-8f) == 1);          // the smallest subnormal
  CHECK(emulated::to_half(6.1035156e-5f) == 0x0400);     // the smallest normal
  CHECK(emulated::to_half(1 + 0x1p-11f) == 0x3c00);      // a tie: down to even
  CHECK(emulated::to_half(1 + 3 * 0x1p-11f) == 0x3c02);  // a tie: up to even
  CHECK(emulated::to_bfloat16(1) == 0x3f80);
  CHECK(emulated::to_bfloat16(1 + 0x1p-8f) == 0x3f80);
  CHECK(emulated::to_bfloat16(1 + 3 * 0x1p-8f) == 0x3f82);
  for (int bits = 0; bits < 0x7c00; ++bits) {
    REQUIRE(emulated::to_half(emulated::from_half(static_cast<std::uint16_t>(bits))) == bits);
  }
}

}  // namespace
}  // namespace trainyard
