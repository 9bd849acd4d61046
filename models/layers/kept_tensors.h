// What a table of layers keeps from its forward to its backward pass, as PyTorch does, and what its
// layers read of each other.
#pragma once

#include <span>
#include <vector>

#include "models/layers/fused_norms.h"
#include "models/layers/layer_table.h"
#include "models/layers/readers.h"

namespace trainyard::models {

class KeptTensors : private BatchSizes {
 public:
  // All references must outlive it.
  KeptTensors(const LayerNetwork& network, const BatchSizes& sizes, const Readers& readers,
              const FusedNorms& norms);

  // By layer, each tensor counting once: where another layer reads it first, else where it is made.
  Bytes made(int layer) const { return made_[static_cast<std::size_t>(layer)]; }
  // `operations`: the layer's own. One that runs again keeps all that it reads first.
  Bytes input(int layer, std::span<const LayerOperation> operations, bool recompute) const;

  // NetworkWork::tensors.
  std::vector<SharedTensor> shared() const;

 private:
  struct Kept {
    std::vector<LayerTensor> tensors;
    Bytes other;
  };
  Kept kept(const LayerOperation& o) const;
  Kept kept_of_memory(const LayerOperation& o) const;
  bool is_weight(const LayerTensor& t) const;

  const LayerNetwork& network_;
  const Readers& readers_;
  const FusedNorms& norms_;
  std::vector<Bytes> read_, made_;  // by layer
};

}  // namespace trainyard::models
