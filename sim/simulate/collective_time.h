// How long one collective takes when it has a cluster for itself.
#pragma once

#include <memory>
#include <optional>

#include "sim/lower/flows/flow_layout.h"
#include "sim/lower/group_shape.h"
#include "sim/recipe/recipe.h"
#include "sim/simulate/gpu_price.h"
#include "topologies/topology.h"

namespace trainyard::simulate {

// Who takes part in a benchmark: on each server its first GPUs, until all ranks have one.
struct Benchmark {
  int ranks = 2;
  int per_server = 0;  // 0: as many as the smallest has
};

// The group of a benchmark: the first ranks of a cluster, server by server.
class LoneCollectives {
 public:
  // `prices`: by topologies::gpu_kinds. Requires: 2 <= ranks <= the GPUs that may take part; the
  // cluster outlives this.
  LoneCollectives(const topologies::ClusterSpec& cluster, std::span<const GpuPrice> prices,
                  Benchmark benchmark, recipe::Fidelity fidelity);

  // The buffer's time. Flows run on the links as in a training step, with nobody else on them.
  // Throws lower::UnsupportedCollective.
  cost::Estimate time(CollectiveKind kind, const collective::Choice& choice, Bytes bytes);

  const cost::GroupShape& shape() const { return shape_; }

 private:
  Duration flow_time(const lower::FlowLayout& layout, const cost::MessageTerms& unit);

  const topologies::ClusterSpec& cluster_;
  std::unique_ptr<cost::MessageCost> messages_;
  std::vector<int> gpus_;
  cost::GroupShape shape_;
  std::optional<topologies::Topology> topology_;  // with flows
  lower::FlowLayouts layouts_;
};

}  // namespace trainyard::simulate
