// Convolutional networks as graphs of layers.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace trainyard::models {

template <class N>
struct Family;

// One operation of a convolutional network's layer graph. `inputs` are indices of earlier nodes
// (-1: the network's input), so the graph is acyclic by construction; residual adds have two.
struct LayerNode {
  enum class Kind : std::uint8_t {
    convolution,
    batch_norm,
    relu,
    max_pool,
    average_pool,
    add,
    linear,
    softmax_loss
  };
  std::string name;
  Kind kind = Kind::convolution;
  std::vector<int> inputs;
  std::int64_t out_channels = 0, out_height = 1, out_width = 1;
  std::int64_t kernel = 1, stride = 1;
  bool bias = false;
  int unit = 0;  // nodes of one unit (a residual block) stay on one pipeline stage
};

struct Convolutional {
  std::string name;
  std::int64_t in_channels = 3, in_height = 224, in_width = 224;
  std::vector<LayerNode> nodes;  // in topological order; units are contiguous and count from 0
  std::vector<std::string> unit_names;  // "stem", "conv2 block 1", ... by unit
};

const Family<Convolutional>& row_of(const Convolutional*);

// Layer graphs of He et al. 2016 (v1.5: stride in the 3x3) and Simonyan & Zisserman 2015.
// Requires: height and width of at least 32.
Convolutional resnet50(std::int64_t height, std::int64_t width);
Convolutional vgg16(std::int64_t height, std::int64_t width);

// Names for `"preset"` of networks that are built by code rather than by numbers in a file.
struct NetworkBuilder {
  std::string_view name;
  Convolutional (*build)(std::int64_t height, std::int64_t width);
};
inline constexpr std::array<NetworkBuilder, 2> kNetworkBuilders = {{
    {"resnet50", resnet50},
    {"vgg16", vgg16},
}};

}  // namespace trainyard::models
