// Layers cut into their branches.
#include <algorithm>
#include <string>
#include <vector>

#include "models/layers/layer_table.h"

namespace trainyard::models {

namespace {

class BranchCuts {
 public:
  explicit BranchCuts(const LayerNetwork& network)
      : operations_(network.operations),
        readers_(operations_.size(), 0),
        piece_(operations_.size(), 0) {
    for (const LayerOperation& operation : operations_)
      for (const LayerTensor& input : operation.inputs)
        if (input.maker >= 0) ++readers_[static_cast<std::size_t>(input.maker)];
  }

  // By operation: the number of its piece in the network. An operation that reads nothing, weights
  // or constants, goes with the one behind it that does.
  std::vector<int> pieces() {
    int piece = -1, layer = -1;
    std::size_t waiting = 0;  // operations before this one that read nothing
    for (std::size_t i = 0; i < operations_.size(); ++i) {
      const bool in_layer = operations_[i].layer == layer;
      if (!in_layer && waiting > 0) settle(i, waiting, ++piece);
      layer = operations_[i].layer;
      if (!in_layer) last_ = -1;
      if (operations_[i].inputs.empty()) {
        ++waiting;
        continue;
      }
      if (last_ < 0 || !continues(i, piece)) ++piece;
      piece_[i] = piece;
      last_ = static_cast<int>(i);
      settle(i, waiting, piece);
    }
    if (waiting > 0) settle(operations_.size(), waiting, last_ < 0 ? ++piece : piece);
    return piece_;
  }

 private:
  void settle(std::size_t end, std::size_t& waiting, int piece) {
    for (; waiting > 0; --waiting)
      piece_[end - waiting] = piece;
  }

  // Whether an operation follows the last one of a piece alone, and reads from no other piece of
  // its layer.
  bool continues(std::size_t index, int piece) const {
    const LayerOperation& operation = operations_[index];
    bool follows = false;
    for (const LayerTensor& input : operation.inputs) {
      if (input.maker < 0) continue;
      const auto maker = static_cast<std::size_t>(input.maker);
      const LayerOperation& made_by = operations_[maker];
      if (made_by.layer != operation.layer || made_by.inputs.empty()) continue;
      if (piece_[maker] != piece) return false;
      follows = follows || (input.maker == last_ && readers_[maker] == 1);
    }
    return follows;
  }

  const std::vector<LayerOperation>& operations_;
  std::vector<int> readers_;  // by operation
  std::vector<int> piece_;    // by operation, so far
  int last_ = -1;             // operation of the layer that reads something
};

}  // namespace

LayerNetwork cut_at_branches(LayerNetwork network) {
  const std::vector<int> pieces = BranchCuts(network).pieces();
  std::vector<int> layer_of(pieces.empty() ? 0 : static_cast<std::size_t>(pieces.back()) + 1);
  std::vector<int> pieces_of(network.layers.size(), 0);
  for (std::size_t i = 0; i < pieces.size(); ++i)
    layer_of[static_cast<std::size_t>(pieces[i])] = network.operations[i].layer;
  for (const int layer : layer_of)
    ++pieces_of[static_cast<std::size_t>(layer)];
  std::string slash = "/";  // more of them where a layer is called as a piece would be
  while (std::any_of(network.layers.begin(), network.layers.end(), [&](const std::string& name) {
    return name.find(slash) != std::string::npos;
  }))
    slash += "/";
  std::vector<std::string> names;
  int number = 0;
  for (std::size_t piece = 0; piece < layer_of.size(); ++piece) {
    const int layer = layer_of[piece];
    number = piece > 0 && layer_of[piece - 1] == layer ? number + 1 : 1;
    const std::string& name = network.layers[static_cast<std::size_t>(layer)];
    const bool whole = pieces_of[static_cast<std::size_t>(layer)] == 1;
    names.push_back(whole ? name : name + slash + std::to_string(number));
  }
  network.layers = std::move(names);
  for (std::size_t i = 0; i < pieces.size(); ++i)
    network.operations[i].layer = pieces[i];
  return network;
}

}  // namespace trainyard::models
