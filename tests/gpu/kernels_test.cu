// The probes' kernels on the device, by the checks that also run in emulation, and over more turns
// of their loops.
#include "tests/gpu/device.h"
#include "tests/gpu/device_array.h"
// The order matters: the checks need the array of the first.
#include "tests/calibrate/attention_checks.h"
#include "tests/calibrate/kernel_checks.h"

namespace trainyard {
namespace {

#define TRAINYARD_CHECK_TYPES(sentence, check) \
  TEST_CASE(sentence) {                        \
    probe::test::the_device();                 \
    check<float>();                            \
    check<__half>();                           \
    check<__nv_bfloat16>();                    \
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

void need_tensor_cores() {
  if (!probe::test::the_device().at_least(8, 0)) {
    throw probe::test::Skip{"needs compute capability 8.0"};
  }
}

TEST_CASE("tiled attention in fp16, forward and backward") {
  need_tensor_cores();
  check_attentions<__half>();
}
TEST_CASE("tiled attention in bf16, forward and backward") {
  need_tensor_cores();
  check_attentions<__nv_bfloat16>();
}

}  // namespace
}  // namespace trainyard
