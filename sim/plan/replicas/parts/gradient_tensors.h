// The gradients of a stage, tensor by tensor, in the order in which a backward pass makes them.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "sim/plan/replicas/replica_context.h"

namespace trainyard::plan {

// Parameters of each.
using Tensors = std::vector<std::int64_t>;

// A tensor whose gradient is there before the backward pass of its place is done.
struct MadeTensor {
  std::size_t items = 0;  // of the pass, before it is
  std::size_t group = 0;  // ReplicaContext::groups
};

class GradientTensors {
 public:
  // `context` must outlive it.
  explicit GradientTensors(const ReplicaContext& context) : context_(context) {}

  // Biases and scales, which are small, count as one tensor, the last, that is there when the pass
  // is done.
  Tensors of(const std::vector<models::WeightMatrix>& matrices, std::int64_t parameters,
             std::size_t group) const;
  // Of both groups. Valid until the next call.
  const std::array<Tensors, 2>& at(int place) const;

  // All but the last of each group, in the order of the items that make them.
  static std::vector<MadeTensor> made(const std::array<Tensors, 2>& tensors,
                                      const std::vector<models::WorkItem>& backward);

 private:
  const ReplicaContext& context_;
  // A pass asks again and again for the place where it is.
  mutable int known_place_ = -1;
  mutable std::array<Tensors, 2> known_;
};

}  // namespace trainyard::plan
