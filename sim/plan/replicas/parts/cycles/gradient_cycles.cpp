#include "sim/plan/replicas/parts/cycles/gradient_cycles.h"

#include <algorithm>
#include <variant>

#include "sim/base/check.h"
#include "sim/plan/replicas/parts/gradient_tensors.h"

namespace trainyard::plan {

namespace {

// One stream of kernels and the host that launches them.
class Clock {
 public:
  explicit Clock(const StageGpus& gpus)
      : launch_(gpus.launch), host_computes_(gpus.host_computes) {}

  void run(const std::vector<models::WorkItem>& items, const std::vector<double>& seconds) {
    for (std::size_t at = 0; at < items.size(); ++at)
      run(items[at], seconds[at]);
  }
  void run(const models::WorkItem& item, double seconds) {
    const auto* named = std::get_if<models::NamedKernel>(&item);
    if (named == nullptr) return;
    if (host_computes_) {
      gpu_ += launch_ + seconds;
      host_ = gpu_;
      return;
    }
    host_ += launch_ * named->launches;
    gpu_ = std::max(gpu_, host_) + seconds;
  }

  double host() const { return host_; }
  double gpu() const { return gpu_; }

 private:
  double launch_;
  bool host_computes_;
  double host_ = 0, gpu_ = 0;  // s: when each is done with all so far
};

// Micro-batches one after another on one stage.
class EstimatedStep {
 public:
  explicit EstimatedStep(const ReplicaContext& context)
      : context_(context), gpus_(*context.gpus), tensors_(context), clock_(gpus_) {}

  // All micro-batches but the last, and its forward pass.
  void run_before_last() {
    for (int microbatch = 0; microbatch < context_.step.shape.microbatches; ++microbatch) {
      for (int place = 0; place < places(); ++place)
        clock_.run(layer(place).forward, times(place).forward);
      if (microbatch + 1 == context_.step.shape.microbatches) return;
      for (int place = places() - 1; place >= 0; --place) {
        clock_.run(layer(place).recompute, times(place).recompute);
        clock_.run(layer(place).backward, times(place).backward);
      }
    }
  }

  std::vector<CalledGradient> run_last_backward() {
    for (int place = places() - 1; place >= 0; --place) {
      clock_.run(layer(place).recompute, times(place).recompute);
      make_gradients(place);
    }
    return std::move(gradients_);
  }

 private:
  int places() const { return static_cast<int>(context_.work.chain.size()); }
  const models::LayerWork& layer(int place) const { return context_.layer(place); }
  const LayerTimes& times(int place) const {
    const int kind = context_.work.chain[static_cast<std::size_t>(place)];
    return gpus_.layers[context_.work.original(kind)];
  }

  void make_gradients(int place) {
    const std::vector<models::WorkItem>& items = layer(place).backward;
    const std::array<Tensors, 2> tensors = {tensors_.at(place)[0], Tensors()};
    std::size_t done = 0, item = 0;
    const auto run_to = [&](std::size_t end) {
      for (; item < end; ++item)
        clock_.run(items[item], times(place).backward[item]);
    };
    for (const MadeTensor& made : GradientTensors::made(tensors, items)) {
      if (made.group != 0) continue;
      run_to(made.items);
      add(tensors[0][done++]);
    }
    run_to(items.size());
    while (done < tensors[0].size())
      add(tensors[0][done++]);
  }

  void add(std::int64_t parameters) {
    gradients_.push_back(
        {parameters * size_of(context_.recipe.precision.gradients), clock_.host(), clock_.gpu()});
  }

  const ReplicaContext& context_;
  const StageGpus& gpus_;
  GradientTensors tensors_;
  Clock clock_;
  std::vector<CalledGradient> gradients_;
};

}  // namespace

std::vector<FusedGradients> fused_gradients(const ReplicaContext& context) {
  const recipe::DataParallelOptions& options = context.plan.data_parallel;
  if (options.cycle_time.value() == Duration(0) || !context.exchanges()) return {};
  TRAINYARD_CHECK(context.gpus != nullptr && !context.gpus->layers.empty(),
                  "cycles without times of layers");
  EstimatedStep estimated(context);
  estimated.run_before_last();
  CycleTerms terms{.cycle = Seconds(options.cycle_time.value()).count(),
                   .buffer = options.bucket_size};
  add_agreement(terms, context.groups[0].ranks, context.gpus->replica_latency,
                options.response_cache);
  return fuse_by_cycles(estimated.run_last_backward(), terms);
}

}  // namespace trainyard::plan
