#include <utility>

#include "models/convolutional/convolutional.h"
#include "sim/base/check.h"

namespace trainyard::models {
namespace {

std::int64_t reduced(std::int64_t size, const GraphBuilder::Window& window) {
  return (size + 2 * window.padding - window.kernel) / window.stride + 1;
}

}  // namespace

GraphBuilder::GraphBuilder(std::string name, std::int64_t height, std::int64_t width) {
  TRAINYARD_CHECK(height >= 32 && width >= 32, "{}: images of {}x{}", name, height, width);
  network_.name = std::move(name);
  network_.in_height = height;
  network_.in_width = width;
}

void GraphBuilder::begin_unit(std::string name) {
  network_.unit_names.push_back(std::move(name));
}

int GraphBuilder::convolution(int input, std::string name, std::int64_t channels, Window window,
                              bool bias) {
  LayerNode node{.name = std::move(name), .kind = LayerNode::Kind::convolution, .inputs = {input}};
  node.out_channels = channels;
  node.out_height = reduced(height(input), window);
  node.out_width = reduced(width(input), window);
  node.kernel = window.kernel;
  node.stride = window.stride;
  node.bias = bias;
  return append(std::move(node));
}

int GraphBuilder::max_pool(int input, std::string name, Window window) {
  LayerNode node{.name = std::move(name), .kind = LayerNode::Kind::max_pool, .inputs = {input}};
  node.out_channels = channels(input);
  node.out_height = reduced(height(input), window);
  node.out_width = reduced(width(input), window);
  node.kernel = window.kernel;
  node.stride = window.stride;
  return append(std::move(node));
}

int GraphBuilder::average_pool(int input, std::string name, std::int64_t height,
                               std::int64_t width) {
  LayerNode node{.name = std::move(name), .kind = LayerNode::Kind::average_pool, .inputs = {input}};
  node.out_channels = channels(input);
  node.out_height = height;
  node.out_width = width;
  return append(std::move(node));
}

int GraphBuilder::batch_norm(int input, std::string name) {
  return same_size(LayerNode::Kind::batch_norm, {input}, std::move(name));
}

int GraphBuilder::relu(int input, std::string name) {
  return same_size(LayerNode::Kind::relu, {input}, std::move(name));
}

int GraphBuilder::add(int left, int right, std::string name) {
  return same_size(LayerNode::Kind::add, {left, right}, std::move(name));
}

int GraphBuilder::linear(int input, std::string name, std::int64_t outputs) {
  LayerNode node{.name = std::move(name), .kind = LayerNode::Kind::linear, .inputs = {input}};
  node.out_channels = outputs;
  node.bias = true;
  return append(std::move(node));
}

int GraphBuilder::softmax_loss(int input, std::string name) {
  return same_size(LayerNode::Kind::softmax_loss, {input}, std::move(name));
}

std::int64_t GraphBuilder::height(int node) const {
  return node < 0 ? network_.in_height : network_.nodes[static_cast<std::size_t>(node)].out_height;
}

std::int64_t GraphBuilder::width(int node) const {
  return node < 0 ? network_.in_width : network_.nodes[static_cast<std::size_t>(node)].out_width;
}

std::int64_t GraphBuilder::channels(int node) const {
  return node < 0 ? network_.in_channels
                  : network_.nodes[static_cast<std::size_t>(node)].out_channels;
}

int GraphBuilder::same_size(LayerNode::Kind kind, std::vector<int> inputs, std::string name) {
  const int input = inputs.front();
  LayerNode node{.name = std::move(name), .kind = kind, .inputs = std::move(inputs)};
  node.out_channels = channels(input);
  node.out_height = height(input);
  node.out_width = width(input);
  return append(std::move(node));
}

int GraphBuilder::append(LayerNode node) {
  TRAINYARD_CHECK(!network_.unit_names.empty(), "{} is in no unit", node.name);
  for (const int input : node.inputs) {
    TRAINYARD_CHECK(-1 <= input && input < static_cast<int>(network_.nodes.size()), "{} reads {}",
                    node.name, input);
  }
  node.unit = static_cast<int>(network_.unit_names.size()) - 1;
  network_.nodes.push_back(std::move(node));
  return static_cast<int>(network_.nodes.size()) - 1;
}

}  // namespace trainyard::models
