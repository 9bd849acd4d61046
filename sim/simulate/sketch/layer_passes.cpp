#include "sim/simulate/sketch/layer_passes.h"

#include <algorithm>

#include "sim/lower/group_shape.h"
#include "sim/simulate/sketch/layer_walk.h"
#include "sim/simulate/stage_gpus.h"

namespace trainyard::simulate {

using models::LayerGroup;
using models::LayerWork;

namespace {

class Timer {
 public:
  Timer(const LayerTerms& terms, const Job& job, const Costs& costs,
        const std::vector<int>& players)
      : terms_(terms), costs_(costs), shapes_(job.cluster, players, false) {
    const auto tell = [&](const std::vector<int>& gpus, std::optional<cost::GroupShape>& shape) {
      if (!gpus.empty()) shape = shapes_.of_group(gpus);
    };
    tell(terms.tensor, tensor_);
    tell(terms.context, context_);
    tell(terms.expert, expert_);
  }

  LayerPasses of(const LayerWork& work) const {
    LayerPasses passes;
    passes.forward = time(work.forward);
    if (!terms_.trains) return passes;
    passes.backward = time(work.recompute);
    passes.backward += time(work.backward);
    return passes;
  }

 private:
  double collective(const models::GroupCollective& sent) const {
    const std::optional<cost::GroupShape>* shape = sent.group == LayerGroup::tensor    ? &tensor_
                                                   : sent.group == LayerGroup::context ? &context_
                                                   : sent.group == LayerGroup::expert  ? &expert_
                                                                                       : nullptr;
    const bool is_own =
        terms_.choices.of(sent.kind) == collective::Choice() && sent.routing.experts == 0;
    if (shape == nullptr || !*shape || !is_own) return 0;
    return costs_.messages->collective(sent.kind, sent.bytes, **shape).alone();
  }

  // Kernels one after another, each after the collectives that it waits for.
  Passes time(const std::vector<models::WorkItem>& items) const {
    Passes passes;
    const cost::ComputeCost& compute = *costs_.laws.front().compute;
    const LayerWalk walk = walk_layer(
        items,
        [&](const models::NamedKernel& kernel) {
          const double own = terms_.slowdown * compute.time(kernel.kernel).time.count();
          passes.kernels += own;
          passes.launches += kernel.launches;
          if (kernel.repeated) passes.repeated += own;
          if (kernel.repeated) passes.repeated_launches += kernel.launches;
          return own;
        },
        [&](const models::GroupCollective& sent) { return collective(sent); });
    // What is waited for after the last kernel may only hold up what is sent on.
    passes.waits = walk.last_kernel - passes.kernels;
    return passes;
  }

  const LayerTerms& terms_;
  const Costs& costs_;
  lower::GroupShapes shapes_;
  std::optional<cost::GroupShape> tensor_, context_, expert_;
};

}  // namespace

std::vector<LayerPasses> passes_of(const models::NetworkWork& work, const LayerTerms& terms,
                                   const Job& job, const Costs& costs,
                                   const std::vector<int>& players) {
  const Timer timer(terms, job, costs, players);
  std::vector<std::optional<LayerPasses>> timed(work.kinds.size());
  for (const int kind : work.chain) {
    std::optional<LayerPasses>& own = timed[static_cast<std::size_t>(kind)];
    if (!own) own = timer.of(work.kinds[static_cast<std::size_t>(kind)]);
  }
  std::vector<LayerPasses> passes;
  for (const std::optional<LayerPasses>& own : timed)
    passes.push_back(own.value_or(LayerPasses{}));
  return passes;
}

std::shared_ptr<const TimedLayers> KnownLayers::of(const LayerTerms& terms, const Job& job,
                                                   const Costs& costs,
                                                   const std::vector<int>& players) {
  return layers_.of(some_numbers(terms.execution), terms, [&] {
    TimedLayers own;
    own.work = work_of(job, terms.execution.micro_batch.size);
    own.passes = passes_of(*own.work, terms, job, costs, players);
    return own;
  });
}

}  // namespace trainyard::simulate
