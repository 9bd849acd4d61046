// ResNet-50 and VGG-16 as captured: published counts, and layers against their own sums.

#include <doctest/doctest.h>

#include <algorithm>

#include "models/layers/layer_table.h"
#include "tests/models/work_support.h"
#include "tests/scenario/temporary.h"
#include "tests/support/rooms.h"

using namespace trainyard;

namespace {

constexpr std::array<const char*, 2> kNames = {"resnet50", "vgg16"};

Network captured(const std::string& name, int height = 224, int width = 224) {
  test::Folder folder("captured");
  const std::string image = fmt::format("[3, {}, {}]", height, width);
  return load_scenario(folder.write("s.json", R"({ "version": 1, "name": "s", "model": {
    "preset": ")" + name + R"(", "input": { "image_size": )" +
                                                  image + R"( } },
    "cluster": { "nodes": 1, "node": "dgx-a100-80gb" },
    "training": { "global_batch": 64, "micro_batch": 1,
      "precision": { "compute": "bf16" }, "optimizer": { "type": "adam" } } })"))
      .base.network;
}

Network resnet50(int height, int width) {
  return captured("resnet50", height, width);
}
Network vgg16(int height, int width) {
  return captured("vgg16", height, width);
}

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
  for (const char* name : kNames) {
    const Network network = captured(name);
    std::int64_t sum = 0;
    for (const LayerWork& kind : network_work(network, images(1)).kinds)
      sum += kind.parameters;
    CHECK(sum == parameter_count(network, 1));
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
  const LayerWork& block = unit(one, "layer2.1");
  CHECK(unit(large, "layer2.1").forward_model_flops == 4.0 * block.forward_model_flops);
  CHECK(unit(eight, "layer2.1").activations() == 8 * block.activations());
}

TEST_CASE("ResNet-50 is a stem, sixteen blocks and a classifier") {
  const Network network = resnet50(224, 224);
  const NetworkWork work = network_work(network, images(2));
  CHECK(work.kinds.size() == 18);
  CHECK(work.kinds.front().name == "conv1");
  CHECK(work.kinds[1].name == "layer1.0");
  CHECK(work.kinds[16].name == "layer4.2");
  CHECK(work.kinds.back().name == "fc");
  CHECK(divisible_layers(network) == 16);
  CHECK_FALSE(work.divisible.front());
  CHECK_FALSE(work.divisible.back());
  CHECK(divisible_layers(vgg16(224, 224)) == 14);
}

// Backward is twice forward, except that nobody needs the gradient of the images.
TEST_CASE("only the first convolution has no data gradient") {
  for (const char* name : kNames) {
    const NetworkWork work = network_work(captured(name), images(2));
    for (std::size_t i = 0; i < work.kinds.size(); ++i) {
      const LayerWork& kind = work.kinds[i];
      CHECK(sum_of_flops(kind.forward) == kind.forward_model_flops);
      CHECK(sum_of_flops(kind.backward) == (i == 0 ? 1.0 : 2.0) * kind.forward_model_flops);
      CHECK(sum_of_flops(kind.backward) == 2.0 * kind.forward_model_flops - kind.skipped_flops);
    }
  }
}

TEST_CASE("a residual block hands on the sum of two gradients") {
  const NetworkWork work = network_work(resnet50(224, 224), images(2));
  // conv1 is the first of the two readers of a block's input, so its gradient comes last.
  for (const char* name : {"layer1.0", "layer1.1"}) {
    const LayerWork& block = unit(work, name);
    CHECK(enqueues(block.backward, std::string(name) + " conv1 gradient sum"));
    CHECK_FALSE(enqueues(block.backward, std::string(name) + " conv2 gradient sum"));
    CHECK(bytes_of(block.backward, MemoryOp::elementwise) ==
          3 * 2 * 2 * 56 * 56 * (name == std::string("layer1.0") ? 64 : 256));
  }
}

// A block of 256 channels at 56x56: its input, two normalized and rectified tensors and the three
// inputs of its batch norms. Its output belongs to the next block.
TEST_CASE("a residual block keeps each tensor that its gradients need, once") {
  const std::int64_t pixels = 2 * 56 * 56;
  const NetworkWork work = network_work(resnet50(224, 224), images(2));
  const LayerWork& block = unit(work, "layer1.1");
  CHECK(block.activations().count() == 2 * pixels * (256 + 4 * 64 + 256));
  CHECK(block.output.count() == 2 * pixels * 256);
  // The projection's batch norm keeps its input too.
  CHECK(unit(work, "layer1.0").activations().count() == 2 * pixels * (64 + 4 * 64 + 2 * 256));
  // Images, input and output of the ReLU, indices of the pool.
  const std::int64_t half = 2 * 64 * 112 * 112;
  CHECK(unit(work, "conv1").activations().count() ==
        2 * (2 * 3 * 224 * 224 + 2 * half) + 8 * pixels * 64);
}

TEST_CASE("batch norm reads twice and writes once forward, four times and once backward") {
  const NetworkWork work = network_work(resnet50(224, 224), images(2));
  const LayerWork& block = unit(work, "layer1.1");
  const std::int64_t tensor = 2 * (2 * 56 * 56) * (64 + 64 + 256);
  CHECK(bytes_of(block.forward, MemoryOp::batch_norm) == 3 * tensor);
  CHECK(bytes_of(block.backward, MemoryOp::batch_norm) == 5 * tensor);
}

TEST_CASE("ReLU and pools move each tensor once, with the indices of maxima") {
  const NetworkWork work = network_work(resnet50(224, 224), images(2));
  const LayerWork& block = unit(work, "layer1.1");
  const std::int64_t rectified = 2 * (2 * 56 * 56) * (64 + 64 + 256);
  CHECK(bytes_of(block.forward, MemoryOp::activation) == 2 * rectified);
  CHECK(bytes_of(block.backward, MemoryOp::activation) == 3 * rectified);
  const LayerWork& stem = unit(work, "conv1");
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
  for (const char* name : kNames) {
    const NetworkWork none = network_work(captured(name), images(2));
    const NetworkWork full = network_work(captured(name), images(2, Recompute::full));
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
}

// Biases, and scales and shifts of batch norms.
TEST_CASE("what is no matrix is a vector of its layer") {
  for (const char* name : kNames) {
    const Network network = captured(name);
    std::int64_t rest = 0, vectors = 0;
    for (const LayerWork& layer : network_work(network, images(1)).kinds) {
      rest += layer.parameters;
      for (const WeightMatrix& matrix : layer.matrices)
        rest -= matrix.elements();
    }
    for (const LayerOperation& operation : network.as<LayerNetwork>().operations) {
      const std::int64_t channels = operation.output.shape.front();
      vectors += operation.row.bias.value_or(false) ? channels : 0;
      vectors += operation.row.op == TableOp::batch_norm ? 2 * channels : 0;
    }
    CHECK(rest == vectors);
  }
}
