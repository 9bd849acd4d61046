// Work, memory and parameters of a convolutional network's layer graph.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "models/convolutional/layer_graph.h"
#include "models/families/network.h"

namespace trainyard::models {

// One LayerWork per unit of the graph.
NetworkWork convolutional_work(const Convolutional& network, const Execution& execution);

std::int64_t convolutional_parameters(const Convolutional& network);
void check_convolutional(Problems& problems, const Convolutional& network,
                         const Execution& execution);

// Units that a layer split counts: all but the first (stem) and the last (classifier and loss),
// unless there is nothing else.
std::vector<bool> divisible_units(const Convolutional& network);

// Writes a layer graph node by node; each call returns the index of the node it appended, and its
// first argument is the node it reads (-1: the network's input). Spatial sizes are rounded down.
class GraphBuilder {
 public:
  // Requires: height and width of at least 32.
  GraphBuilder(std::string name, std::int64_t height, std::int64_t width);

  void begin_unit(std::string name);

  struct Window {
    std::int64_t kernel = 1, stride = 1, padding = 0;
  };
  int convolution(int input, std::string name, std::int64_t channels, Window window, bool bias);
  int max_pool(int input, std::string name, Window window);
  int average_pool(int input, std::string name, std::int64_t height, std::int64_t width);
  int batch_norm(int input, std::string name);
  int relu(int input, std::string name);
  int add(int left, int right, std::string name);
  int linear(int input, std::string name, std::int64_t outputs);
  int softmax_loss(int input, std::string name);

  // Height and width of a node's output.
  std::int64_t height(int node) const;
  std::int64_t width(int node) const;

  Convolutional take() { return std::move(network_); }

 private:
  std::int64_t channels(int node) const;
  int same_size(LayerNode::Kind kind, std::vector<int> inputs, std::string name);
  int append(LayerNode node);

  Convolutional network_;
};

}  // namespace trainyard::models
