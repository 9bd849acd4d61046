#include "sim/simulate/sketch/job_sketch.h"

#include <algorithm>
#include <numeric>
#include <optional>

#include "sim/base/out_of_range.h"
#include "sim/plan/split/dealt_layers.h"
#include "sim/plan/step_memory.h"
#include "sim/recipe/stage_orders.h"
#include "sim/schedule/chunk_placement.h"
#include "sim/schedule/order_timing.h"
#include "sim/simulate/sketch/layer_sketch.h"
#include "sim/simulate/stage_gpus.h"

namespace trainyard::simulate {

using plan::DataParallelStrategy;
using plan::MemoryKind;
using schedule::PassTimes;
using schedule::PipelineShape;

namespace {

class Sketcher {
 public:
  Sketcher(const Job& job, const Costs& costs, const std::vector<int>& players,
           const std::vector<int>& gpu_of_rank)
      : job_(job),
        costs_(costs),
        layers_(job, costs, players, gpu_of_rank),
        work_(work_of(job, job.recipe.micro_batch.size)),
        shape_(plan::pipeline_shape(job.recipe, job.plan)),
        dense_(plan::strategy_of(job.plan, job.recipe)),
        experts_(plan::among(job.plan.expert_replicas() * directions(shape_), dense_)) {}

  JobSketch sketch() {
    deal();
    hide_gathers();
    tell_orders();
    JobSketch sketch;
    for (int stage = 0; stage < shape_.stages; ++stage)
      keep_fuller(memory(stage), sketch);
    sketch.seconds = {passes(), replicas(), update()};
    return sketch;
  }

 private:
  const recipe::TrainingRecipe& recipe() const { return job_.recipe; }
  bool trains() const { return !recipe().forward_only; }

  void deal() {
    const plan::DealtLayers dealt(*work_, shape_, recipe(), job_.plan,
                                  stage_gpus(job_, *work_, costs_.laws, *costs_.messages));
    const models::NetworkWork placed = dealt.deal(*work_).placed.work;
    std::vector<std::optional<PartSketch>> kinds(placed.kinds.size());
    for (const plan::ChainRange& range : dealt.ranges()) {
      PartSketch& part = parts_.emplace_back();
      for (int place = range.first; place < range.last; ++place) {
        const auto kind = static_cast<std::size_t>(placed.chain[static_cast<std::size_t>(place)]);
        if (!kinds[kind]) kinds[kind] = layers_.layer(placed.kinds[kind]);
        part.add(*kinds[kind]);
      }
      boundary_ = std::max(boundary_, range.last > range.first ? output(placed, range) : Bytes(0));
    }
  }
  static Bytes output(const models::NetworkWork& work, const plan::ChainRange& range) {
    const auto last = static_cast<std::size_t>(range.last - 1);
    return work.kinds[static_cast<std::size_t>(work.chain[last])].output;
  }

  Exchange gather(const PartSketch& part) {
    return layers_.exchange(CollectiveKind::all_gather, part, size_of(plan::weight_type(recipe())));
  }
  Exchange reduce(const PartSketch& part) {
    const bool shards = dense_.gradient_shards > 1 || dense_.optimizer_shards > 1;
    return layers_.exchange(shards ? CollectiveKind::reduce_scatter : CollectiveKind::all_reduce,
                            part, size_of(recipe().precision.gradients));
  }

  // FSDP may keep what it has gathered.
  bool keeps_gathered() const {
    return dense_.layer_units && !job_.plan.data_parallel.reshard_after_forward;
  }
  bool gathers_each_pass() const {
    return dense_.gathering == plan::Gathering::each_pass && !keeps_gathered();
  }

  // Passes are no shorter than what they gather, reduce in every micro-batch, or offload.
  void hide_gathers() {
    for (PartSketch& part : parts_) {
      if (gathers_each_pass()) {
        Exchange moved = gather(part);
        part.forward = moved.beside(part.forward);
        if (dense_.each_microbatch) moved += reduce(part);
        part.backward = moved.beside(part.backward);
      }
      if (recipe().offload.activations) {
        part.forward = std::max(part.forward, layers_.host(HostTransfer::to_host, part.kept));
        part.backward = std::max(part.backward, layers_.host(HostTransfer::to_device, part.kept));
      }
      part.weights = std::min(part.weights, part.backward);
    }
  }
  const PartSketch& part_of(int stage, int number) const {
    const schedule::Seat seat{stage, number % shape_.chunks,
                              static_cast<std::uint8_t>(number / shape_.chunks)};
    return parts_[static_cast<std::size_t>(virtual_stage(shape_, seat))];
  }

  bool has_embedding(int stage) const {
    for (int number = 0; number < parts(shape_); ++number)
      if (&part_of(stage, number) == &parts_.front()) return true;
    return false;
  }

  // All that a stage has, one embedding for both ends of the network.
  PartSketch whole(int stage) const {
    PartSketch all;
    for (int number = 0; number < parts(shape_); ++number)
      all.add(part_of(stage, number));
    if (has_embedding(stage)) all.parameters -= all.tied;
    return all;
  }

  void tell_orders() {
    double message = 0;
    if (shape_.stages > 1) {
      const int divided = job_.plan.tensor_parallel.sequence ? job_.plan.degrees.tensor : 1;
      message = layers_.message(Bytes(boundary_.count() / divided));
    }
    for (int stage = 0; stage < shape_.stages; ++stage)
      for (int number = 0; number < parts(shape_); ++number) {
        const PartSketch& part = part_of(stage, number);
        times_.push_back({.forward = to_duration(Seconds(part.forward)),
                          .backward_input = to_duration(Seconds(part.backward - part.weights)),
                          .backward_weight = to_duration(Seconds(part.weights)),
                          .communication = to_duration(Seconds(message)),
                          .activations = std::max(part.kept + part.logits, Bytes(1))});
      }
    orders_ = recipe::stage_orders(job_.plan, shape_, {.times = times_});
  }

  // Of what the stage's GPU holds while its passes run.
  std::array<double, plan::kMemoryKinds> memory(int stage) const {
    const PartSketch all = whole(stage);
    std::array<double, plan::kMemoryKinds> bytes{};
    const auto at = [&](MemoryKind kind) -> double& {
      return bytes[static_cast<std::size_t>(kind)];
    };
    const auto add_states = [&](std::int64_t parameters, const DataParallelStrategy& strategy) {
      const plan::StateBytes states = plan::state_bytes(parameters, recipe(), strategy);
      const bool away = recipe().offload.optimizer != recipe::OffloadTo::none;
      if (recipe().offload.parameters == recipe::OffloadTo::none)
        at(MemoryKind::parameters) += static_cast<double>(states.parameters.count());
      if (!trains()) return;
      if (!(away && strategy.gradient_shards > 1))
        at(MemoryKind::gradients) += static_cast<double>(states.gradients.count());
      if (!away)
        at(MemoryKind::optimizer_state) += static_cast<double>(states.optimizer_state.count());
    };
    add_states(all.parameters, dense_);
    add_states(all.experts, experts_);
    for (std::size_t group = 0; group < all.frozen.size(); ++group)
      at(MemoryKind::parameters) += static_cast<double>(plan::shard_of(
          all.frozen[group].count(), (group == 0 ? dense_ : experts_).parameter_shards));
    const auto add = [&](MemoryKind kind, std::int64_t parameters, models::Dtype type) {
      at(kind) += static_cast<double>((parameters * size_of(type)).count());
    };
    const models::Dtype gathered = plan::weight_type(recipe()),
                        summed = recipe().precision.gradients;
    const std::int64_t parameters = all.parameters + all.experts;
    if (keeps_gathered())
      add(MemoryKind::parameters, parameters, gathered);
    else if (dense_.gathering == plan::Gathering::each_pass)
      add(MemoryKind::parameters, (1 + job_.plan.data_parallel.prefetch_layers) * all.largest,
          gathered);
    const Kept kept = most_kept(stage);
    if (sums_in_passes())
      at(MemoryKind::gradients) = kept.gradients;
    else if (trains() && dense_.gradient_shards > 1)
      add(MemoryKind::gradients, all.largest, summed);
    // Of what is offloaded a layer is on its way beside the one in work.
    at(MemoryKind::activations) +=
        recipe().offload.activations
            ? std::min(kept.activations, static_cast<double>(2 * all.thickest.count()))
            : kept.activations;
    at(MemoryKind::logits) += kept.logits;
    at(MemoryKind::workspace) += static_cast<double>(all.workspace.count());
    return bytes;
  }

  // Micro-batches' gradients are summed whole, those of a part from its first backward pass on, and
  // divided behind its last: FSDP's.
  bool sums_in_passes() const {
    return trains() && dense_.gradient_shards > 1 && !dense_.each_microbatch &&
           shape_.microbatches > 1;
  }

  struct Kept {
    double activations = 0, logits = 0, gradients = 0;
    double all() const { return activations + logits + gradients; }
  };
  Kept most_kept(int stage) const {
    Kept now, most;
    const std::vector<schedule::Slot>& order = (*orders_)[static_cast<std::size_t>(stage)];
    std::vector<int> backwards = sums_in_passes() ? backwards_of(order) : std::vector<int>();
    std::vector<bool> begun(backwards.size());
    const bool embeds = has_embedding(stage);
    std::vector<const PartSketch*> own;
    for (int number = 0; number < parts(shape_); ++number)
      own.push_back(&part_of(stage, number));
    for (const schedule::Slot& slot : order) {
      const auto number = static_cast<std::size_t>(schedule::part(shape_, slot));
      const PartSketch& part = *own[number];
      const bool forward = slot.pass == schedule::Pass::forward;
      if (!forward && !ends_backward(slot.pass)) continue;
      const bool is_summed = !forward && !backwards.empty();
      if (is_summed && !begun[number]) {
        begun[number] = true;
        now.gradients += sums(part, embeds, true);
        if (now.all() > most.all()) most = now;
      }
      const double sign = forward ? 1 : -1;
      now.activations += sign * static_cast<double>(part.kept.count());
      now.logits += sign * static_cast<double>(part.logits.count());
      if (is_summed && --backwards[number] == 0)
        now.gradients -= sums(part, embeds, true) - sums(part, embeds, false);
      if (now.all() > most.all()) most = now;
      if (!trains()) now = {};
    }
    return most;
  }
  // By part.
  std::vector<int> backwards_of(const std::vector<schedule::Slot>& order) const {
    std::vector<int> count(static_cast<std::size_t>(parts(shape_)));
    for (const schedule::Slot& slot : order)
      if (slot.pass != schedule::Pass::forward && ends_backward(slot.pass))
        ++count[static_cast<std::size_t>(schedule::part(shape_, slot))];
    return count;
  }
  // Of a part's gradients: `whole` or what stays of them on the GPU, where they are divided. A tied
  // matrix is that of the embedding where a stage has both.
  double sums(const PartSketch& part, bool embeds, bool whole) const {
    const auto dense = static_cast<double>(part.parameters - (embeds ? part.tied : 0)),
               experts = static_cast<double>(part.experts),
               bytes = static_cast<double>(size_of(recipe().precision.gradients).count());
    if (whole) return (dense + experts) * bytes;
    if (recipe().offload.optimizer != recipe::OffloadTo::none) return 0;
    return (dense / dense_.gradient_shards + experts / experts_.gradient_shards) * bytes;
  }

  void keep_fuller(const std::array<double, plan::kMemoryKinds>& bytes, JobSketch& sketch) const {
    const auto sum = [](const auto& all) { return std::accumulate(all.begin(), all.end(), 0.0); };
    if (sum(bytes) > sum(sketch.bytes)) sketch.bytes = bytes;
  }

  double passes() const {
    if (!trains()) {
      double longest = 0;
      for (const PartSketch& part : parts_)
        longest = std::max(longest, part.forward);
      return longest * (shape_.microbatches * shape_.chunks + shape_.stages - 1);
    }
    return Seconds(schedule::makespan(shape_, *orders_, times_)).count();
  }

  // What of gradients and parameters on their way no pass hides.
  double replicas() {
    if (!trains()) return 0;
    double longest = 0;
    for (int stage = 0; stage < shape_.stages; ++stage) {
      const PartSketch all = whole(stage);
      const recipe::DataParallelOptions& options = job_.plan.data_parallel;
      double own = 0;
      if (!(gathers_each_pass() && dense_.each_microbatch)) {
        const Exchange reduced = reduce(all);
        const Bytes gradients = all.parameters * size_of(recipe().precision.gradients);
        const double buckets =
            static_cast<double>(std::max(gradients, options.bucket_size).count()) /
            static_cast<double>(std::max(options.bucket_size, Bytes(1)).count());
        const double passes = dense_.each_microbatch ? shape_.microbatches : 1;
        own += options.overlap_backward
                   ? passes * (std::max(reduced.beside(all.backward) - all.backward,
                                        reduced.seconds / buckets))
                   : passes * reduced.seconds;
      }
      if (dense_.gathering == plan::Gathering::after_step) own += gather(all).seconds;
      if (dense_.gathering == plan::Gathering::first_forward || keeps_gathered())
        own += gather(all).beside(all.forward) - all.forward;
      longest = std::max(longest, own);
    }
    return longest;
  }

  double update() const {
    if (!trains()) return 0;
    double longest = 0;
    for (int stage = 0; stage < shape_.stages; ++stage) {
      const PartSketch all = whole(stage);
      double own = 0;
      if (recipe().offload.optimizer == recipe::OffloadTo::none) {
        own = layers_.kernel(plan::optimizer_kernel(all.parameters, recipe(), dense_));
        if (all.experts > 0)
          own += layers_.kernel(plan::optimizer_kernel(all.experts, recipe(), experts_));
      } else {
        own = update_on_host(all);
      }
      longest = std::max(longest, own);
    }
    return longest;
  }
  // Gradients down, three states and gradients through the host's memory, parameters up.
  double update_on_host(const PartSketch& part) const {
    constexpr std::int64_t kDown = 2, kTouched = 28, kUp = 2;
    const std::int64_t updated = plan::shard_of(part.parameters, dense_.optimizer_shards) +
                                 plan::shard_of(part.experts, experts_.optimizer_shards);
    return layers_.host(HostTransfer::to_host, Bytes(kDown * updated)) +
           layers_.host(HostTransfer::host_memory, Bytes(kTouched * updated)) +
           layers_.host(HostTransfer::to_device, Bytes(kUp * updated));
  }

  const Job& job_;
  const Costs& costs_;
  LayerSketches layers_;
  std::shared_ptr<const models::NetworkWork> work_;
  PipelineShape shape_;
  DataParallelStrategy dense_, experts_;
  std::vector<PartSketch> parts_;  // by virtual stage
  std::vector<PassTimes> times_;   // by stage and part
  std::shared_ptr<const schedule::StageOrders> orders_;
  Bytes boundary_;
};

}  // namespace

JobSketches::JobSketches(const Job& job) : costs_(costs_of(job)) {
  const topologies::ClusterSpec& cluster = job.cluster;
  for (int server = 0; server < cluster.servers; ++server) {
    players_.push_back(cluster.used_on(server));
    for (int gpu = 0; gpu < players_.back(); ++gpu)
      gpu_of_rank_.push_back(server * cluster.gpu_slots() + gpu);
  }
}

JobSketch JobSketches::of(const Job& changed) const {
  return Sketcher(changed, costs_, players_, gpu_of_rank_).sketch();
}

}  // namespace trainyard::simulate
