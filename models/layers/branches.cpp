// Layers cut into their branches.
#include <fmt/format.h>

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

  // By operation: the number of its piece in the network.
  std::vector<int> pieces() {
    int piece = -1, layer = -1;
    for (std::size_t i = 0; i < operations_.size(); ++i) {
      const LayerOperation& operation = operations_[i];
      const bool goes_on =
          operation.layer == layer && (operation.inputs.empty() || continues(i, piece));
      if (!goes_on) ++piece;
      piece_[i] = piece;
      layer = operation.layer;
      if (!operation.inputs.empty() || !goes_on) last_ = static_cast<int>(i);
    }
    return piece_;
  }

 private:
  // Whether an operation follows the last one of a piece alone, and reads from no other piece of
  // its layer.
  bool continues(std::size_t index, int piece) const {
    const LayerOperation& operation = operations_[index];
    bool follows = false;
    for (const LayerTensor& input : operation.inputs) {
      if (input.maker < 0) continue;
      const auto maker = static_cast<std::size_t>(input.maker);
      if (operations_[maker].layer != operation.layer) continue;
      if (piece_[maker] != piece) return false;
      follows = follows || (input.maker == last_ && readers_[maker] == 1);
    }
    return follows || last_reads_nothing();
  }
  bool last_reads_nothing() const {
    return operations_[static_cast<std::size_t>(last_)].inputs.empty();
  }

  const std::vector<LayerOperation>& operations_;
  std::vector<int> readers_;  // by operation
  std::vector<int> piece_;    // by operation, so far
  int last_ = -1;             // operation of the piece that reads something, or its first
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
  std::vector<std::string> names;
  int number = 0;
  for (std::size_t piece = 0; piece < layer_of.size(); ++piece) {
    const int layer = layer_of[piece];
    number = piece > 0 && layer_of[piece - 1] == layer ? number + 1 : 1;
    const std::string& name = network.layers[static_cast<std::size_t>(layer)];
    const bool whole = pieces_of[static_cast<std::size_t>(layer)] == 1;
    names.push_back(whole ? name : fmt::format("{}/{}", name, number));
  }
  network.layers = std::move(names);
  for (std::size_t i = 0; i < pieces.size(); ++i)
    network.operations[i].layer = pieces[i];
  return network;
}

}  // namespace trainyard::models
