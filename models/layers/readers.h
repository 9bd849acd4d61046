// Who reads the tensors of a table of layers, and what crosses its cuts: in one walk, so that a
// network of many thousand layers takes time in proportion.
#pragma once

#include <vector>

#include "models/layers/layer_table.h"

namespace trainyard::models {

class Readers {
 public:
  Readers(const LayerNetwork& network, const BatchSizes& sizes);

  // The last operation that reads what operation `maker` makes; -1: none.
  int last(int maker) const { return last_[static_cast<std::size_t>(maker)]; }
  // The one operation that reads it; -1: none, or several.
  int only(int maker) const { return only_[static_cast<std::size_t>(maker)]; }
  // The first other layer that reads it; -1: none. Below 0 the network's input, which any layer
  // may read first.
  int first_layer(int maker) const {
    return maker < 0 ? input_ : first_[static_cast<std::size_t>(maker)];
  }
  // Every tensor that was made up to a layer and is read behind. One that was read before as well
  // (`passed_on`) is held by the stage behind the cut too.
  Bytes crossing(int layer) const { return crossing_[static_cast<std::size_t>(layer)]; }
  Bytes passed_on(int layer) const { return passed_on_[static_cast<std::size_t>(layer)]; }

 private:
  void place_cuts(const LayerNetwork& network, const BatchSizes& sizes);

  std::vector<int> last_, only_, first_;  // by operation
  int input_ = -1;
  std::vector<Bytes> crossing_, passed_on_;  // by the layer before the cut
};

}  // namespace trainyard::models
