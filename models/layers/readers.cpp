#include "models/layers/readers.h"

#include <algorithm>
#include <numeric>

namespace trainyard::models {

Readers::Readers(const LayerNetwork& network, const BatchSizes& sizes)
    : last_(network.operations.size(), -1),
      only_(network.operations.size(), -1),
      first_(network.operations.size(), -1) {
  for (std::size_t i = 0; i < network.operations.size(); ++i) {
    const LayerOperation& reader = network.operations[i];
    for (const LayerTensor& tensor : reader.inputs) {
      if (tensor.maker < 0 && input_ < 0) input_ = reader.layer;
      if (tensor.maker < 0) continue;
      const auto maker = static_cast<std::size_t>(tensor.maker);
      only_[maker] = last_[maker] < 0 ? static_cast<int>(i) : -1;
      last_[maker] = static_cast<int>(i);
      if (first_[maker] < 0 && network.operations[maker].layer != reader.layer)
        first_[maker] = reader.layer;
    }
  }
  place_cuts(network, sizes);
}

// First what begins and ends at each layer, then the sums.
void Readers::place_cuts(const LayerNetwork& network, const BatchSizes& sizes) {
  crossing_.resize(network.layers.size());
  passed_on_.resize(network.layers.size());
  const auto add = [](std::vector<Bytes>& cuts, int from, int to, Bytes more) {
    if (from >= to) return;
    Bytes& begin = cuts[static_cast<std::size_t>(from)];
    Bytes& end = cuts[static_cast<std::size_t>(to)];
    begin = begin + more;
    end = end - more;
  };
  for (std::size_t i = 0; i < network.operations.size(); ++i) {
    if (last_[i] < 0) continue;
    const LayerOperation& maker = network.operations[i];
    const int last = network.operations[static_cast<std::size_t>(last_[i])].layer;
    add(crossing_, maker.layer, last, sizes.bytes(maker.output));
    add(passed_on_, std::max(maker.layer, first_[i]), last, sizes.bytes(maker.output));
  }
  std::partial_sum(crossing_.begin(), crossing_.end(), crossing_.begin());
  std::partial_sum(passed_on_.begin(), passed_on_.end(), passed_on_.begin());
}

}  // namespace trainyard::models
