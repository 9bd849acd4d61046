#include "sim/simulate/sketch/layer_sketch.h"

#include <algorithm>

#include "sim/lower/host_links.h"
#include "sim/plan/replicas/data_parallel.h"
#include "sim/plan/step_memory.h"
#include "sim/simulate/sketch/layer_walk.h"

namespace trainyard::simulate {

using models::LayerGroup;
using recipe::Axis;

namespace {

constexpr Rank kFirst{0};

}  // namespace

LayerSketches::LayerSketches(const Job& job, const Costs& costs, const std::vector<int>& players,
                             const std::vector<int>& gpu_of_rank)
    : job_(job),
      costs_(costs),
      gpu_(costs.laws.front()),
      players_(players),
      gpu_of_rank_(gpu_of_rank),
      grids_(recipe::rank_grids(job.plan)),
      shapes_(job.cluster, players, false) {}

double LayerSketches::kernel(const models::Kernel& kernel) const {
  return gpu_.compute->time(kernel).time.count();
}

LayerSketches::Shape LayerSketches::shape_of(const std::vector<Rank>& ranks) {
  if (ranks.size() < 2) return std::nullopt;
  std::vector<int> gpus;
  for (const Rank rank : ranks)
    gpus.push_back(gpu_of_rank_[index(rank)]);
  return shapes_.of_group(gpus);
}

const LayerSketches::Shape& LayerSketches::shape_of(LayerGroup group) {
  std::optional<Shape>& known = of_layers_[static_cast<std::size_t>(group)];
  if (!known) {
    switch (group) {
      case LayerGroup::tensor: known = shape_of(grids_.dense.group(kFirst, Axis::tensor)); break;
      case LayerGroup::context: known = shape_of(grids_.dense.group(kFirst, Axis::context)); break;
      case LayerGroup::expert: known = shape_of(grids_.experts.group(kFirst, Axis::context)); break;
      case LayerGroup::expert_tensor:
        known = shape_of(grids_.experts.group(kFirst, Axis::tensor));
        break;
      case LayerGroup::tables: known = shape_of(grids_.dense.group(kFirst, Axis::data)); break;
    }
  }
  return *known;
}

double LayerSketches::collective(CollectiveKind kind, Bytes bytes, const Shape& shape) const {
  return shape ? costs_.messages->collective(kind, bytes, *shape).alone() : 0;
}

// Of items one after another; `weights`: adds those that only weights' gradients need.
double LayerSketches::time(const std::vector<models::WorkItem>& items, double* weights) {
  double host = 0;
  const double launch = Seconds(gpu_.launch + gpu_.call).count();
  const LayerWalk walk = walk_layer(
      items,
      [&](const models::NamedKernel& named) {
        const double own = kernel(named.kernel);
        host += named.launches * launch;
        if (weights != nullptr && named.weight_gradient) *weights += own;
        return own;
      },
      [&](const models::GroupCollective& sent) {
        return collective(sent.kind, sent.bytes, shape_of(sent.group));
      });
  return std::max(walk.end, host);
}

PartSketch LayerSketches::layer(const models::LayerWork& work) {
  PartSketch layer;
  layer.forward = time(work.forward);
  if (!job_.recipe.forward_only)
    layer.backward = time(work.recompute) + time(work.backward, &layer.weights);
  layer.parameters = work.parameters;
  layer.experts = work.expert_parameters;
  layer.tied = work.tied_parameters;
  layer.largest = work.parameters + work.expert_parameters;
  layer.frozen = plan::frozen_bytes(work.frozen, job_.recipe);
  layer.kept = layer.thickest = work.activations();
  layer.logits = work.logits;
  layer.workspace = std::max(work.workspace(), work.forward_transient);
  return layer;
}

const LayerSketches::Shape& LayerSketches::replicas(bool experts) {
  std::optional<Shape>& known = of_replicas_[experts ? 1 : 0];
  if (!known) {
    if (plan::strategy_of(job_.plan, job_.recipe).trains_apart)
      known.emplace();
    else
      known = experts ? shape_of(grids_.experts.group(kFirst, Axis::data))
                      : shape_of(grids_.dense.group(kFirst, Axis::data, Axis::context));
  }
  return *known;
}

Exchange LayerSketches::exchange(CollectiveKind kind, const PartSketch& part, Bytes number) {
  Exchange sum = exchange(kind, part.parameters * number, replicas(false));
  if (part.experts > 0) sum += exchange(kind, part.experts * number, replicas(true));
  return sum;
}

Exchange LayerSketches::exchange(CollectiveKind kind, Bytes bytes, const Shape& shape) const {
  if (!shape) return {};
  const cost::MessageTerms terms = costs_.messages->collective(kind, bytes, *shape);
  const double held = gpu_.gemm_weight * terms.channels / job_.cluster.server.gpu.multiprocessors;
  return {terms.alone(), terms.alone() * std::min(held, 1.0)};
}
double LayerSketches::host(HostTransfer transfer, Bytes bytes) const {
  const lower::HostLinks links(job_.cluster, players_, nullptr);
  const BytesPerSecond offered = links.offered(transfer, {});
  return offered > BytesPerSecond(0) ? static_cast<double>(bytes.count()) / offered.count() : 0;
}

double LayerSketches::message(Bytes bytes) {
  const Rank next = grids_.dense.peer(kFirst, Axis::pipeline, 1);
  const cost::GroupShape shape =
      shapes_.of_pair(gpu_of_rank_.front(), gpu_of_rank_[index(next)], 1);
  return costs_.messages->point_to_point(bytes, shape).alone();
}

}  // namespace trainyard::simulate
