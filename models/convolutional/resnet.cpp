// ResNet-50: a stem, 3 + 4 + 6 + 3 bottleneck blocks, a classifier of 1000 classes.
// Source: He et al., Deep Residual Learning for Image Recognition, CVPR 2016, table 1; version 1.5
// moves the stride of a block from its first 1x1 to its 3x3 convolution.
#include <fmt/format.h>

#include <array>

#include "models/convolutional/convolutional.h"

namespace trainyard::models {
namespace {

int normalized(GraphBuilder& graph, int input, const std::string& name, std::int64_t channels,
               GraphBuilder::Window window) {
  const int convolution = graph.convolution(input, name, channels, window, false);
  return graph.batch_norm(convolution, name + " norm");
}

// 1x1 to `channels`, 3x3, 1x1 to 4 `channels`, added to the input (projected where sizes differ).
int bottleneck(GraphBuilder& graph, int input, const std::string& name, std::int64_t channels,
               std::int64_t stride, bool project) {
  graph.begin_unit(name);
  int left = normalized(graph, input, name + " conv a", channels, {});
  left = graph.relu(left, name + " relu a");
  left = normalized(graph, left, name + " conv b", channels, {3, stride, 1});
  left = graph.relu(left, name + " relu b");
  left = normalized(graph, left, name + " conv c", 4 * channels, {});
  const int right =
      project ? normalized(graph, input, name + " projection", 4 * channels, {1, stride, 0})
              : input;
  return graph.relu(graph.add(left, right, name + " add"), name + " relu c");
}

}  // namespace

Convolutional resnet50(std::int64_t height, std::int64_t width) {
  GraphBuilder graph("resnet50", height, width);
  graph.begin_unit("stem");
  int node = normalized(graph, -1, "conv1", 64, {7, 2, 3});
  node = graph.max_pool(graph.relu(node, "conv1 relu"), "pool1", {3, 2, 1});

  constexpr std::array<int, 4> kBlocks = {3, 4, 6, 3};
  std::int64_t channels = 64;
  for (std::size_t group = 0; group < kBlocks.size(); ++group) {
    for (int block = 0; block < kBlocks[group]; ++block) {
      const bool first = block == 0;
      node = bottleneck(graph, node, fmt::format("conv{} block {}", group + 2, block + 1), channels,
                        first && group > 0 ? 2 : 1, first);
    }
    channels *= 2;
  }

  graph.begin_unit("classifier");
  node = graph.linear(graph.average_pool(node, "average pool", 1, 1), "fc", 1000);
  graph.softmax_loss(node, "loss");
  return graph.take();
}

}  // namespace trainyard::models
