// ResNet-50 and VGG-16 against published counts, and layer graphs against their own sums.
#include "models/convolutional/convolutional.h"

#include <doctest/doctest.h>

#include <algorithm>

#include "tests/models/work_support.h"
#include "tests/support/rooms.h"

using namespace trainyard;

namespace {

Execution images(std::int64_t batch, Recompute recompute = Recompute::none) {
  return execution(batch, 1, 1, false, recompute);
}

Flops forward_flops(const NetworkWork& work) {
  Flops sum;
  for (const LayerWork& unit : work.kinds)
    sum = sum + unit.forward_model_flops;
  return sum;
}

const LayerWork& unit(const NetworkWork& work, const std::string& name) {
  const auto found = std::find_if(work.kinds.begin(), work.kinds.end(),
                                  [&](const LayerWork& kind) { return kind.name == name; });
  REQUIRE(found != work.kinds.end());
  return *found;
}

bool enqueues(const std::vector<WorkItem>& items, const std::string& name) {
  const std::vector<std::string> lines = script(items);
  return std::find(lines.begin(), lines.end(), name) != lines.end();
}

}  // namespace

TEST_CASE("ResNet-50 and VGG-16 have their published parameters") {
  CHECK(parameter_count(resnet50(224, 224), 1) == 25'557'032);
  CHECK(parameter_count(vgg16(224, 224), 1) == 138'357'544);
}

TEST_CASE("parameters of the units add up to the network") {
  for (const NetworkBuilder& builder : kNetworkBuilders) {
    const Convolutional network = builder.build(224, 224);
    std::int64_t sum = 0;
    for (const LayerWork& kind : network_work(network, images(1)).kinds)
      sum += kind.parameters;
    CHECK(sum == parameter_count(network, 1));
    CHECK(network.name == builder.name);
  }
}

// Convolutions and linear layers, as torchvision's model zoo lists them (4.09 and 15.47 GMAC).
TEST_CASE("an image of 224x224 costs 4.09 G multiply-adds in ResNet-50 and 15.47 G in VGG-16") {
  const NetworkWork resnet = network_work(resnet50(224, 224), images(1));
  CHECK(forward_flops(resnet).count() == 2 * 4'089'184'256.0);
  const NetworkWork vgg = network_work(vgg16(224, 224), images(1));
  CHECK(forward_flops(vgg).count() == 2 * 15'470'264'320.0);
}

TEST_CASE("work grows with the batch and, in convolutions, with the image") {
  const NetworkWork one = network_work(resnet50(224, 224), images(1));
  const NetworkWork eight = network_work(resnet50(224, 224), images(8));
  CHECK(forward_flops(eight) == 8.0 * forward_flops(one));
  const NetworkWork large = network_work(resnet50(448, 448), images(1));
  const LayerWork& block = unit(one, "conv3 block 2");
  CHECK(unit(large, "conv3 block 2").forward_model_flops == 4.0 * block.forward_model_flops);
  CHECK(unit(eight, "conv3 block 2").activations() == 8 * block.activations());
}

TEST_CASE("ResNet-50 is a stem, sixteen blocks and a classifier") {
  const Convolutional network = resnet50(224, 224);
  const NetworkWork work = network_work(network, images(2));
  CHECK(work.kinds.size() == 18);
  CHECK(work.kinds.front().name == "stem");
  CHECK(work.kinds[1].name == "conv2 block 1");
  CHECK(work.kinds[16].name == "conv5 block 3");
  CHECK(work.kinds.back().name == "classifier");
  CHECK(divisible_layers(network) == 16);
  CHECK_FALSE(work.divisible.front());
  CHECK_FALSE(work.divisible.back());
  CHECK(divisible_layers(vgg16(224, 224)) == 14);
}

// Backward is twice forward, except that nobody needs the gradient of the images.
TEST_CASE("only the first convolution has no data gradient") {
  for (const NetworkBuilder& builder : kNetworkBuilders) {
    const NetworkWork work = network_work(builder.build(224, 224), images(2));
    for (std::size_t i = 0; i < work.kinds.size(); ++i) {
      const LayerWork& kind = work.kinds[i];
      CHECK(sum_of_flops(kind.forward) == kind.forward_model_flops);
      CHECK(sum_of_flops(kind.backward) == (i == 0 ? 1.0 : 2.0) * kind.forward_model_flops);
    }
  }
}

TEST_CASE("a residual block hands on the sum of two gradients") {
  const NetworkWork work = network_work(resnet50(224, 224), images(2));
  // conv a is the first of the two readers of a block's input, so its gradient comes last.
  for (const char* name : {"conv2 block 1", "conv2 block 2"}) {
    const LayerWork& block = unit(work, name);
    CHECK(enqueues(block.backward, std::string(name) + " conv a gradient sum"));
    CHECK_FALSE(enqueues(block.backward, std::string(name) + " conv b gradient sum"));
    CHECK(bytes_of(block.backward, MemoryOp::elementwise) ==
          3 * 2 * 2 * 56 * 56 * (name == std::string("conv2 block 1") ? 64 : 256));
  }
}

// A block of 256 channels at 56x56: its input, two normalized and rectified tensors and the three
// inputs of its batch norms. Its output belongs to the next block.
TEST_CASE("a residual block keeps each tensor that its gradients need, once") {
  const std::int64_t pixels = 2 * 56 * 56;
  const NetworkWork work = network_work(resnet50(224, 224), images(2));
  const LayerWork& block = unit(work, "conv2 block 2");
  CHECK(block.activations().count() == 2 * pixels * (256 + 4 * 64 + 256));
  CHECK(block.output.count() == 2 * pixels * 256);
  // The projection's batch norm keeps its input too.
  CHECK(unit(work, "conv2 block 1").activations().count() == 2 * pixels * (64 + 4 * 64 + 2 * 256));
  // Images, input and output of the ReLU, indices of the pool.
  const std::int64_t half = 2 * 64 * 112 * 112;
  CHECK(unit(work, "stem").activations().count() ==
        2 * (2 * 3 * 224 * 224 + 2 * half) + 8 * pixels * 64);
}

TEST_CASE("batch norm reads twice and writes once forward, four times and once backward") {
  const NetworkWork work = network_work(resnet50(224, 224), images(2));
  const LayerWork& block = unit(work, "conv2 block 2");
  const std::int64_t tensor = 2 * (2 * 56 * 56) * (64 + 64 + 256);
  CHECK(bytes_of(block.forward, MemoryOp::batch_norm) == 3 * tensor);
  CHECK(bytes_of(block.backward, MemoryOp::batch_norm) == 5 * tensor);
}

TEST_CASE("ReLU and pools move each tensor once, with the indices of maxima") {
  const NetworkWork work = network_work(resnet50(224, 224), images(2));
  const LayerWork& block = unit(work, "conv2 block 2");
  const std::int64_t rectified = 2 * (2 * 56 * 56) * (64 + 64 + 256);
  CHECK(bytes_of(block.forward, MemoryOp::activation) == 2 * rectified);
  CHECK(bytes_of(block.backward, MemoryOp::activation) == 3 * rectified);
  const LayerWork& stem = unit(work, "stem");
  const std::int64_t pooled = 2 * 64 * 56 * 56;
  CHECK(bytes_of(stem.forward, MemoryOp::pooling) == 2 * 4 * pooled + (2 + 8) * pooled);
  CHECK(bytes_of(stem.backward, MemoryOp::pooling) == 2 * 4 * pooled + (2 + 8) * pooled);
}

TEST_CASE("the classifier keeps its input, the pooled features and fp32 probabilities") {
  const NetworkWork work = network_work(resnet50(224, 224), images(2));
  CHECK(work.kinds.back().activations().count() ==
        2 * (2 * 2048 * 7 * 7) + 2 * (2 * 2048) + 4 * (2 * 1000));
  CHECK(bytes_of(work.kinds.back().forward, MemoryOp::cross_entropy) == 2 * 4 * 2 * 1000);
}

TEST_CASE("full recomputation keeps the inputs of units and runs all but the last again") {
  for (const NetworkBuilder& builder : kNetworkBuilders) {
    const NetworkWork none = network_work(builder.build(224, 224), images(2));
    const NetworkWork full = network_work(builder.build(224, 224), images(2, Recompute::full));
    Bytes handed_on(2 * 2 * 3 * 224 * 224);
    for (std::size_t i = 0; i + 1 < full.kinds.size(); ++i) {
      const LayerWork& kind = full.kinds[i];
      CHECK(kind.activations() == handed_on);
      CHECK(kind.activations() + kind.workspace() == none.kinds[i].activations());
      CHECK(kind.recompute.size() == kind.forward.size());
      CHECK(kind.recompute_model_flops == kind.forward_model_flops);
      handed_on = kind.output;
    }
    CHECK(full.kinds.back().recompute.empty());
    CHECK(full.kinds.back().activations() == none.kinds.back().activations());
    CHECK(full.kinds.back().output == Bytes(0));
  }
}

TEST_CASE("VGG-16 pools other images to 7x7, so its classifier stays the same") {
  CHECK(parameter_count(vgg16(320, 256), 1) == parameter_count(vgg16(224, 224), 1));
  const NetworkWork work = network_work(vgg16(320, 256), images(1));
  CHECK(enqueues(unit(work, "fc6").forward, "average pool"));
  CHECK_FALSE(enqueues(network_work(vgg16(224, 224), images(1)).kinds[13].forward, "average pool"));
}
