// Batch norms whose kernels take in what stands behind them in the layer: a ReLU, or an addition
// and its ReLU, where nothing else reads what is between them.
//
//                   forward                       backward
//   apart           norm 2r 1w                    ReLU 2r 1w
//                   addition 2r 1w                norm 4r 1w
//                   ReLU 1r 1w
//   fused           2r 1w, 1 r of the addition    4r 1w, 1 w of the addition
//
// r read, w written, of a tensor; the fused ones keep a bit of each number, written forward and
// read with either pass over the gradient. Source: NVIDIA, cuDNN API,
// cudnnBatchNormOps_t (CUDNN_BATCHNORM_OPS_BN_ACTIVATION, _ADD_ACTIVATION: NHWC, 16 bits) and its
// reserve space.
#pragma once

#include <cstdint>
#include <vector>

#include "models/layers/layer_table.h"
#include "models/layers/readers.h"

namespace trainyard::models {

class FusedNorms {
 public:
  // Nothing is fused unless `wanted`. Requires: the network outlives it.
  FusedNorms(const LayerNetwork& network, const Readers& readers, bool wanted);

  // Of the network's operations: a batch norm runs it.
  bool absorbs(const LayerOperation& o) const { return role(o) == Role::absorbed; }
  // It is a batch norm that runs its ReLU as well, or its addition and ReLU.
  bool activates(const LayerOperation& o) const { return role(o) == Role::activating || adds(o); }
  bool adds(const LayerOperation& o) const { return role(o) == Role::adding; }

 private:
  enum class Role : std::uint8_t { none, absorbed, activating, adding };

  Role role(const LayerOperation& o) const {
    return roles_[static_cast<std::size_t>(&o - operations_.data())];
  }
  void fuse(const LayerOperation& norm, const Readers& readers);

  const std::vector<LayerOperation>& operations_;
  std::vector<Role> roles_;  // by operation
};

}  // namespace trainyard::models
