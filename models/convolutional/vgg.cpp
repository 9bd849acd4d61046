// VGG-16: 13 convolutions of 3x3 in five groups, then three fully connected layers. Every
// convolution and every fully connected layer is a unit. The two dropouts of the classifier (4096
// elements per image) are left out. Source: Simonyan & Zisserman, Very Deep Convolutional Networks
// for Large-Scale Image Recognition, ICLR 2015, table 1, configuration D. Images that are not
// 224x224 are pooled to 7x7 before the first fully connected layer.
#include <fmt/format.h>

#include <array>

#include "models/convolutional/convolutional.h"

namespace trainyard::models {

Convolutional vgg16(std::int64_t height, std::int64_t width) {
  struct Group {
    int convolutions;
    std::int64_t channels;
  };
  constexpr std::array<Group, 5> kGroups = {{{2, 64}, {2, 128}, {3, 256}, {3, 512}, {3, 512}}};

  GraphBuilder graph("vgg16", height, width);
  int node = -1;
  for (std::size_t g = 0; g < kGroups.size(); ++g) {
    for (int i = 1; i <= kGroups[g].convolutions; ++i) {
      const std::string name = fmt::format("conv{}-{}", g + 1, i);
      graph.begin_unit(name);
      node = graph.convolution(node, name, kGroups[g].channels, {3, 1, 1}, true);
      node = graph.relu(node, name + " relu");
    }
    node = graph.max_pool(node, fmt::format("pool{}", g + 1), {2, 2, 0});
  }

  graph.begin_unit("fc6");
  if (graph.height(node) != 7 || graph.width(node) != 7) {
    node = graph.average_pool(node, "average pool", 7, 7);
  }
  node = graph.relu(graph.linear(node, "fc6", 4096), "fc6 relu");
  graph.begin_unit("fc7");
  node = graph.relu(graph.linear(node, "fc7", 4096), "fc7 relu");
  graph.begin_unit("fc8");
  graph.softmax_loss(graph.linear(node, "fc8", 1000), "loss");
  return graph.take();
}

}  // namespace trainyard::models
