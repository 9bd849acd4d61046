// The layers of a job by themselves: times of their passes, and what they keep.
#pragma once

#include <array>
#include <optional>
#include <vector>

#include "models/layer/layer_work.h"
#include "sim/base/host_transfer.h"
#include "sim/lower/group_shape.h"
#include "sim/recipe/rank_map.h"
#include "sim/simulate/step_maker.h"

namespace trainyard::simulate {

// A layer, or the layers of a part of a stage.
struct PartSketch {
  double forward = 0, backward = 0, weights = 0;  // seconds; `weights`: of backward
  std::int64_t parameters = 0, experts = 0, largest = 0, tied = 0;
  std::array<Bytes, 2> frozen{};
  Bytes kept, thickest, logits, workspace;

  void add(const PartSketch& layer) {
    forward += layer.forward;
    backward += layer.backward;
    weights += layer.weights;
    parameters += layer.parameters;
    experts += layer.experts;
    tied += layer.tied;
    largest = std::max(largest, layer.largest);
    for (std::size_t group = 0; group < frozen.size(); ++group)
      frozen[group] = frozen[group] + layer.frozen[group];
    kept = kept + layer.kept;
    thickest = std::max(thickest, layer.thickest);
    logits = logits + layer.logits;
    workspace = std::max(workspace, layer.workspace);
  }
};

// What replicas send each other, and the time that kernels beside it lose.
struct Exchange {
  double seconds = 0, slows = 0;

  void operator+=(const Exchange& other) {
    seconds += other.seconds;
    slows += other.slows;
  }
  // How long passes of that time are with it.
  double beside(double passes) const {
    const double together = std::min(passes, seconds);
    return std::max(seconds, passes + (seconds > 0 ? together / seconds * slows : 0));
  }
};

class LayerSketches {
 public:
  // `players`: by server, how many GPUs are in use. All must outlive it.
  LayerSketches(const Job& job, const Costs& costs, const std::vector<int>& players,
                const std::vector<int>& gpu_of_rank);

  PartSketch layer(const models::LayerWork& work);
  // Among replicas, of all parameters of a part in numbers of that many bytes.
  Exchange exchange(CollectiveKind kind, const PartSketch& part, Bytes number);
  // Seconds of a kernel; of a message to the next stage; of a rank's transfer to its host.
  double kernel(const models::Kernel& kernel) const;
  double message(Bytes bytes);
  double host(HostTransfer transfer, Bytes bytes) const;

 private:
  using Shape = std::optional<cost::GroupShape>;  // none: a rank alone

  Shape shape_of(const std::vector<Rank>& ranks);
  const Shape& shape_of(models::LayerGroup group);
  const Shape& replicas(bool experts);
  Exchange exchange(CollectiveKind kind, Bytes bytes, const Shape& shape) const;
  double collective(CollectiveKind kind, Bytes bytes, const Shape& shape) const;
  double time(const std::vector<models::WorkItem>& items, double* weights = nullptr);

  const Job& job_;
  const Costs& costs_;
  const lower::GpuLaws& gpu_;
  const std::vector<int>&players_, &gpu_of_rank_;
  recipe::RankGrids grids_;
  lower::GroupShapes shapes_;
  std::array<std::optional<Shape>, models::kLayerGroups> of_layers_;
  std::array<std::optional<Shape>, 2> of_replicas_;  // of experts: the second
};

}  // namespace trainyard::simulate
