#include "sim/simulate/sketch/job_sketch.h"

#include <algorithm>
#include <numeric>
#include <optional>

#include "sim/base/out_of_range.h"
#include "sim/lower/group_shape.h"
#include "sim/lower/host_links.h"
#include "sim/plan/pass_steps.h"
#include "sim/plan/split/dealt_layers.h"
#include "sim/plan/step_memory.h"
#include "sim/recipe/rank_map.h"
#include "sim/recipe/stage_orders.h"
#include "sim/schedule/chunk_placement.h"
#include "sim/schedule/order_timing.h"
#include "sim/simulate/stage_gpus.h"

namespace trainyard::simulate {

using models::LayerGroup;
using models::LayerWork;
using plan::DataParallelStrategy;
using plan::MemoryKind;
using recipe::Axis;
using schedule::PassTimes;
using schedule::PipelineShape;

namespace {

constexpr Rank kFirst{0};

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

double total(const cost::MessageTerms& terms) {
  const double bytes = static_cast<double>(terms.wire_bytes.count());
  return terms.latency.count() + (bytes > 0 ? bytes / terms.bandwidth.count() : 0);
}

class Sketcher {
 public:
  Sketcher(const Job& job, const Costs& costs, const std::vector<int>& players,
           const std::vector<int>& gpu_of_rank)
      : job_(job),
        costs_(costs),
        players_(players),
        gpu_of_rank_(gpu_of_rank),
        grids_(recipe::rank_grids(job.plan)),
        shapes_(job.cluster, players, false),
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
  const lower::GpuLaws& gpu() const { return costs_.laws.front(); }
  bool trains() const { return !recipe().forward_only; }

  double seconds(const models::Kernel& kernel) const {
    return gpu().compute->time(kernel).time.count();
  }

  std::optional<cost::GroupShape> shape_of(const std::vector<Rank>& ranks) {
    if (ranks.size() < 2) return std::nullopt;
    std::vector<int> gpus;
    for (const Rank rank : ranks)
      gpus.push_back(gpu_of_rank_[index(rank)]);
    return shapes_.of_group(gpus);
  }
  const std::optional<cost::GroupShape>& shape_of(LayerGroup group) {
    std::optional<std::optional<cost::GroupShape>>& known =
        of_layers_[static_cast<std::size_t>(group)];
    if (!known) {
      switch (group) {
        case LayerGroup::tensor: known = shape_of(grids_.dense.group(kFirst, Axis::tensor)); break;
        case LayerGroup::context:
          known = shape_of(grids_.dense.group(kFirst, Axis::context));
          break;
        case LayerGroup::expert:
          known = shape_of(grids_.experts.group(kFirst, Axis::context));
          break;
        case LayerGroup::expert_tensor:
          known = shape_of(grids_.experts.group(kFirst, Axis::tensor));
          break;
        case LayerGroup::tables: known = shape_of(grids_.dense.group(kFirst, Axis::data)); break;
      }
    }
    return *known;
  }
  double collective(CollectiveKind kind, Bytes bytes,
                    const std::optional<cost::GroupShape>& shape) const {
    return shape ? total(costs_.messages->collective(kind, bytes, *shape)) : 0;
  }

  // Of items one after another; `weights`: adds those that only weights' gradients need.
  double time(const std::vector<models::WorkItem>& items, double* weights = nullptr) {
    double computed = 0, host = 0;
    std::array<double, kGroups> arrives{};
    const double launch = Seconds(gpu().launch + gpu().call).count();
    for (const models::WorkItem& item : items) {
      if (const auto* kernel = std::get_if<models::NamedKernel>(&item)) {
        const double own = seconds(kernel->kernel);
        computed += own;
        host += kernel->launches * launch;
        if (weights != nullptr && kernel->weight_gradient) *weights += own;
      } else if (const auto* sent = std::get_if<models::GroupCollective>(&item)) {
        double& arrival = arrives[static_cast<std::size_t>(sent->group)];
        arrival = std::max(arrival, computed) +
                  collective(sent->kind, sent->bytes, shape_of(sent->group));
      } else {
        const auto group = static_cast<std::size_t>(std::get<models::GroupWait>(item).group);
        computed = std::max(computed, arrives[group]);
      }
    }
    return std::max(computed, host);
  }

  PartSketch layer(const LayerWork& work) {
    PartSketch layer;
    layer.forward = time(work.forward);
    if (trains()) layer.backward = time(work.recompute) + time(work.backward, &layer.weights);
    layer.parameters = work.parameters;
    layer.experts = work.expert_parameters;
    layer.tied = work.tied_parameters;
    layer.largest = work.parameters + work.expert_parameters;
    layer.frozen = plan::frozen_bytes(work.frozen, recipe());
    layer.kept = layer.thickest = work.activations();
    layer.logits = work.logits;
    layer.workspace = std::max(work.workspace(), work.forward_transient);
    return layer;
  }

  void deal() {
    const plan::DealtLayers dealt(work_, shape_, recipe(), job_.plan,
                                  stage_gpus(job_, work_, costs_.laws, *costs_.messages));
    const models::NetworkWork placed = dealt.deal(work_).placed.work;
    std::vector<std::optional<PartSketch>> kinds(placed.kinds.size());
    for (const plan::ChainRange& range : dealt.ranges()) {
      PartSketch& part = parts_.emplace_back();
      for (int place = range.first; place < range.last; ++place) {
        const auto kind = static_cast<std::size_t>(placed.chain[static_cast<std::size_t>(place)]);
        if (!kinds[kind]) kinds[kind] = layer(placed.kinds[kind]);
        part.add(*kinds[kind]);
      }
      boundary_ = std::max(boundary_, range.last > range.first ? output(placed, range) : Bytes(0));
    }
  }
  static Bytes output(const models::NetworkWork& work, const plan::ChainRange& range) {
    const auto last = static_cast<std::size_t>(range.last - 1);
    return work.kinds[static_cast<std::size_t>(work.chain[last])].output;
  }

  std::optional<cost::GroupShape> replicas_of(bool experts) {
    if (dense_.trains_apart) return std::nullopt;
    return experts ? shape_of(grids_.experts.group(kFirst, Axis::data))
                   : shape_of(grids_.dense.group(kFirst, Axis::data, Axis::context));
  }
  // Of all parameters of a part, in numbers of that many bytes.
  Exchange exchange(CollectiveKind kind, const PartSketch& part, Bytes number) {
    Exchange sum = exchange(kind, part.parameters * number, replicas_of(false));
    if (part.experts > 0) sum += exchange(kind, part.experts * number, replicas_of(true));
    return sum;
  }
  Exchange exchange(CollectiveKind kind, Bytes bytes,
                    const std::optional<cost::GroupShape>& shape) const {
    if (!shape) return {};
    const cost::MessageTerms terms = costs_.messages->collective(kind, bytes, *shape);
    const double held =
        gpu().gemm_weight * terms.channels / job_.cluster.server.gpu.multiprocessors;
    return {total(terms), total(terms) * std::min(held, 1.0)};
  }
  Exchange gather(const PartSketch& part) {
    return exchange(CollectiveKind::all_gather, part, size_of(plan::weight_type(recipe())));
  }
  Exchange reduce(const PartSketch& part) {
    const bool shards = dense_.gradient_shards > 1 || dense_.optimizer_shards > 1;
    return exchange(shards ? CollectiveKind::reduce_scatter : CollectiveKind::all_reduce, part,
                    size_of(recipe().precision.gradients));
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
        part.forward = std::max(part.forward, host_seconds(HostTransfer::to_host, part.kept));
        part.backward = std::max(part.backward, host_seconds(HostTransfer::to_device, part.kept));
      }
      part.weights = std::min(part.weights, part.backward);
    }
  }
  double host_seconds(HostTransfer transfer, Bytes bytes) const {
    const lower::HostLinks links(job_.cluster, players_, nullptr);
    const BytesPerSecond offered = links.offered(transfer, {});
    return offered > BytesPerSecond(0) ? static_cast<double>(bytes.count()) / offered.count() : 0;
  }

  const PartSketch& part_of(int stage, int number) const {
    const schedule::Seat seat{stage, number % shape_.chunks,
                              static_cast<std::uint8_t>(number / shape_.chunks)};
    return parts_[static_cast<std::size_t>(virtual_stage(shape_, seat))];
  }

  // All that a stage has, one embedding for both ends of the network.
  PartSketch whole(int stage) const {
    PartSketch all;
    bool has_first = false;
    for (int number = 0; number < parts(shape_); ++number) {
      const PartSketch& part = part_of(stage, number);
      has_first = has_first || &part == &parts_.front();
      all.add(part);
    }
    if (has_first) all.parameters -= all.tied;
    return all;
  }

  void tell_orders() {
    double message = 0;
    if (shape_.stages > 1) {
      const Rank next = grids_.dense.peer(kFirst, Axis::pipeline, 1);
      const int from = gpu_of_rank_.front(), to = gpu_of_rank_[index(next)];
      const int divided = job_.plan.tensor_parallel.sequence ? job_.plan.degrees.tensor : 1;
      message = total(costs_.messages->point_to_point(Bytes(boundary_.count() / divided),
                                                      shapes_.of_pair(from, to, 1)));
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
    if (trains() && dense_.gradient_shards > 1) {
      const bool sums_whole = !dense_.each_microbatch && shape_.microbatches > 1;
      add(MemoryKind::gradients, sums_whole ? parameters : all.largest, summed);
    }
    Kept kept = most_kept(stage);
    // Of what is offloaded a layer is on its way beside the one in work.
    if (recipe().offload.activations)
      kept.activations = std::min(kept.activations, static_cast<double>(2 * all.thickest.count()));
    at(MemoryKind::activations) += kept.activations;
    at(MemoryKind::logits) += kept.logits;
    at(MemoryKind::workspace) += static_cast<double>(all.workspace.count());
    return bytes;
  }

  struct Kept {
    double activations = 0, logits = 0;
  };
  Kept most_kept(int stage) const {
    Kept now, most;
    for (const schedule::Slot& slot : orders_[static_cast<std::size_t>(stage)]) {
      const PartSketch& part = part_of(stage, schedule::part(shape_, slot));
      const bool forward = slot.pass == schedule::Pass::forward;
      if (!forward && !ends_backward(slot.pass)) continue;
      const double sign = forward ? 1 : -1;
      now.activations += sign * static_cast<double>(part.kept.count());
      now.logits += sign * static_cast<double>(part.logits.count());
      if (now.activations + now.logits > most.activations + most.logits) most = now;
      if (!trains()) now = {};
    }
    return most;
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
    const schedule::OrderRun run = schedule::run_orders(shape_, orders_, times_);
    return Seconds(run.makespan()).count();
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
        own = seconds(plan::optimizer_kernel(all.parameters, recipe(), dense_));
        if (all.experts > 0)
          own += seconds(plan::optimizer_kernel(all.experts, recipe(), experts_));
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
    return host_seconds(HostTransfer::to_host, Bytes(kDown * updated)) +
           host_seconds(HostTransfer::host_memory, Bytes(kTouched * updated)) +
           host_seconds(HostTransfer::to_device, Bytes(kUp * updated));
  }

  static constexpr std::size_t kGroups = 5;

  const Job& job_;
  const Costs& costs_;
  const std::vector<int>&players_, &gpu_of_rank_;
  recipe::RankGrids grids_;
  lower::GroupShapes shapes_;
  models::NetworkWork work_;
  PipelineShape shape_;
  DataParallelStrategy dense_, experts_;
  std::array<std::optional<std::optional<cost::GroupShape>>, kGroups> of_layers_;
  std::vector<PartSketch> parts_;  // by virtual stage
  std::vector<PassTimes> times_;   // by stage and part
  schedule::StageOrders orders_;
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
