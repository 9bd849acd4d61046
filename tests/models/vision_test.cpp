// Vision transformers: published parameter counts, FLOPs, and the two ends.
#include <doctest/doctest.h>

#include "tests/models/work_support.h"
#include "tests/support/about.h"
#include "tests/support/rooms.h"

using namespace trainyard;

namespace {

VisionTransformer vit(std::int64_t layers, std::int64_t hidden, std::int64_t heads,
                      std::int64_t patch) {
  VisionTransformer network;
  network.stack = gpt(layers, hidden, heads, 1);
  network.stack.causal = false;
  network.stack.dropout = false;
  network.patch = patch;
  return network;
}

Execution images(std::int64_t micro_batch, int tensor = 1, bool sequence_parallel = false) {
  return execution(micro_batch, 1, tensor, sequence_parallel);
}

const Kernel& kernel(const std::vector<WorkItem>& items, const std::string& name) {
  for (const WorkItem& item : items) {
    const auto* found = std::get_if<NamedKernel>(&item);
    if (found && found->name == name) return found->kernel;
  }
  FAIL("no kernel named " << name);
  static const Kernel none;
  return none;
}

}  // namespace

// torchvision: vit_b_16, vit_l_16, vit_h_14 of 224 pixels and 1000 classes.
TEST_CASE("ViT has the published parameters") {
  CHECK(parameter_count(vit(12, 768, 12, 16), 1) == 86'567'656);
  CHECK(parameter_count(vit(24, 1024, 16, 16), 1) == 304'326'632);
  CHECK(parameter_count(vit(32, 1280, 16, 14), 1) == 632'045'800);
  VisionTransformer mean = vit(12, 768, 12, 16);
  mean.class_token = false;  // itself and its position
  CHECK(parameter_count(mean, 1) == 86'567'656 - 2 * 768);
}

TEST_CASE("a vision transformer sees its patches") {
  const std::int64_t b = 4, h = 768, n = 196, s = 197;
  const NetworkWork work = network_work(vit(12, h, 12, 16), images(b));
  CHECK(std::get<Gemm>(kernel(work.kinds[0].forward, "patches")) ==
        Gemm{b * n, h, 3 * 16 * 16, 1, Dtype::fp16});
  CHECK(std::get<Gemm>(kernel(layer(work).forward, "qkv")) ==
        Gemm{b * s, 3 * h, h, 1, Dtype::fp16});
  CHECK(std::get<Gemm>(kernel(work.kinds[2].forward, "classifier")) ==
        Gemm{b, 1000, h, 1, Dtype::fp16});
  CHECK(layer(work).forward_model_flops.count() ==
        static_cast<double>(24 * b * s * h * h + 4 * b * s * s * h));
  CHECK(work.kinds[0].forward_model_flops == sum_of_flops(work.kinds[0].forward));
  CHECK(work.kinds[2].forward_model_flops == sum_of_flops(work.kinds[2].forward));
  // Images have no gradient: one product backward for the forward one.
  CHECK(sum_of_flops(work.kinds[0].backward) == sum_of_flops(work.kinds[0].forward));
  CHECK(work.kinds[0].skipped_flops == work.kinds[0].forward_model_flops);
  CHECK(work.chain.size() == 14);
}

// fvcore counts 17.6 G multiply-adds for ViT-B/16 (torchvision's table: 17.56 GFLOPS).
TEST_CASE("ViT-B/16 multiplies 17.56 G times an image") {
  const NetworkWork work = network_work(vit(12, 768, 12, 16), images(1));
  double forward = 0;
  for (const int kind : work.chain)
    forward += work.kinds[static_cast<std::size_t>(kind)].forward_model_flops.count();
  CHECK(forward / 2e9 == about(17.56).within(0.002));
}

TEST_CASE("a layer without dropout keeps 32 s b h + 2 a s^2 b") {
  const std::int64_t b = 4, h = 768, s = 197, a = 12;
  const NetworkWork work = network_work(vit(2, h, a, 16), images(b));
  CHECK(layer(work).activations().count() == 32 * s * b * h + 2 * a * s * s * b);
  CHECK(work.kinds[0].activations().count() == b * 3 * 224 * 224 * 2);
  CHECK((work.kinds[2].activations() + work.kinds[2].logits).count() ==
        s * b * h * 2 + b * h * 2 + b * 1000 * 4);
}

TEST_CASE("in PyTorch patches are a convolution") {
  Execution how = images(4);
  for (const Fusion fusion : {Fusion::eager, Fusion::compiled}) {
    how.kernels.fusion = fusion;
    const NetworkWork work = network_work(vit(2, 768, 12, 16), how);
    const auto& forward = std::get<Convolution>(kernel(work.kinds[0].forward, "patches"));
    CHECK(forward.out_height == 14);
    CHECK(forward.kernel_height == 16);
    const auto& backward =
        std::get<Convolution>(kernel(work.kinds[0].backward, "patches weight gradient"));
    CHECK(backward.pass == ConvolutionPass::weight_gradient);
    CHECK(work.kinds[0].forward_model_flops == sum_of_flops(work.kinds[0].forward));
  }
}

TEST_CASE("the ends of a vision transformer are whole on every rank") {
  VisionTransformer network = vit(2, 64, 8, 16);
  network.class_token = false;  // 196 tokens, which 2 and 4 divide
  const std::int64_t b = 2, s = 196, h = 64;
  for (const int t : {1, 2, 4}) {
    const NetworkWork work = network_work(network, images(b, t, t > 1));
    CHECK(work.kinds[0].parameters == h * (3 * 256 + 1) + s * h);
    CHECK(work.kinds[2].parameters == 2 * h + (h + 1) * 1000);
    CHECK(collectives(work.kinds[0].forward).empty());
    CHECK(collectives(work.kinds[0].backward).size() == (t > 1 ? 1 : 0));
    const auto gathered = collectives(work.kinds[2].forward);
    REQUIRE(gathered.size() == (t > 1 ? 1 : 0));
    if (t > 1) CHECK(gathered[0].bytes == Bytes(b * s * h * 2));
    CHECK(layer(work).activations().count() == (32 * s * b * h + 2 * 8 * s * s * b) / t);
  }
}

TEST_CASE("context-parallel ranks divide the patches") {
  VisionTransformer network = vit(2, 64, 8, 16);
  network.class_token = false;
  Execution how = images(2);
  how.kernels.attention = AttentionKernel::fa2;
  const NetworkWork whole = network_work(network, how);
  how.context = 4;
  const NetworkWork part = network_work(network, how);
  for (const std::size_t kind : {0, 1}) {
    CHECK(part.kinds[kind].forward_model_flops == whole.kinds[kind].forward_model_flops);
    CHECK(4 * sum_of_flops(part.kinds[kind].forward).count() ==
          sum_of_flops(whole.kinds[kind].forward).count());
  }
}

TEST_CASE("a vision transformer says what it cannot be") {
  const auto member = [](const VisionTransformer& network, const Execution& how) {
    const auto problems = check_execution(network, how);
    return problems.empty() ? std::string("fine") : problems.front().member;
  };
  CHECK(member(vit(1, 64, 8, 16), images(1)) == "fine");
  CHECK(member(vit(1, 64, 8, 15), images(1)) == "");
  VisionTransformer huge = vit(1, 64, 8, 65536);
  huge.height = huge.width = 65536;
  CHECK(member(huge, images(1)) == "fine");
  CHECK(member(huge, images(1'000'000'000)) == "");
  CHECK(member(vit(1, 64, 8, 16), images(1, 2, true)) == "sequence_parallel");
  const auto problems = check_execution(vit(1, 64, 8, 16), images(1, 2, true));
  CHECK(problems.front().message ==
        "with sequence parallelism the sequence length (197) must be divisible by the "
        "tensor-parallel degree (2); it is 196 patches and a class token");
  CHECK(member(vit(1, 64, 8, 16), images(1, 3)) == "tensor");
}
