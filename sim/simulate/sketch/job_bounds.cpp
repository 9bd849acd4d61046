#include "sim/simulate/sketch/job_bounds.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <optional>
#include <string_view>

#include "sim/plan/split/dealt_layers.h"
#include "sim/plan/step_memory.h"
#include "sim/recipe/rank_map.h"
#include "sim/schedule/chunk_placement.h"
#include "sim/simulate/device_memory.h"
#include "sim/simulate/sketch/layer_passes.h"
#include "sim/simulate/stage_gpus.h"

namespace trainyard::simulate {

using models::LayerWork;
using plan::DataParallelStrategy;
using recipe::Axis;
using schedule::PipelineShape;
using schedule::ScheduleEntry;

namespace {

struct Part {
  Passes forward, backward;
  std::int64_t parameters = 0, experts = 0;
  std::array<Bytes, 2> frozen{};
  Bytes kept;

  void operator+=(const Part& layer) {
    forward += layer.forward;
    backward += layer.backward;
    parameters += layer.parameters;
    experts += layer.experts;
    for (std::size_t group = 0; group < frozen.size(); ++group)
      frozen[group] = frozen[group] + layer.frozen[group];
    kept = kept + layer.kept;
  }
};

// What a schedule promises of its orders.
struct Promise {
  bool flushed = false;     // all micro-batches of a step, and nothing of another, lie in the step
  bool in_turn = false;     // a stage waits for the collectives of a layer before it does another's
  bool comes_down = false;  // what a stage does first has come through those before it
  bool goes_up = false;     // its last backward, which is whole, goes on through them
  bool one_by_one = false;  // 1F1B: a backward follows as soon as it can
  bool all_first = false;   // GPipe: all forwards, then all backwards
};

Promise promise_of(const ScheduleEntry* entry, const recipe::TrainingRecipe& recipe,
                   const recipe::ParallelPlan& plan) {
  Promise promise;
  if (entry == nullptr) return promise;
  promise.flushed = entry->updates == schedule::Updates::after_all;
  const std::string_view name = entry->name;
  promise.one_by_one = name == "1f1b" || name == "interleaved_1f1b";
  promise.all_first = name == "gpipe";
  promise.comes_down = promise.flushed && !plan.pipeline.branches;
  promise.goes_up = promise.comes_down && (promise.one_by_one || promise.all_first);
  // Where no backward pass follows a forward one, the next micro-batch's kernels may.
  const bool alternates = !recipe.forward_only && recipe.finetune.all() && !promise.all_first;
  // Kernels between a collective and who waits for it only shorten the wait, so that the halves of
  // a backward pass wait for no less than the whole.
  const bool halves = name.starts_with("zb_") || name == "v_half" || name == "v_min";
  promise.in_turn =
      alternates && !plan.pipeline.overlap_passes &&
      (promise.goes_up || (promise.comes_down && halves) || plan.degrees.pipeline == 1);
  return promise;
}

// Of kernels of the rank that is slowed down least; some "stragglers" are faster than others.
double least_slowdown(const Job& job) {
  double least = 1;
  for (const recipe::Straggler& straggler : job.stragglers)
    least = std::min(least, straggler.compute_slowdown);
  return least * slowest_gpu(job).slowdown;
}

class Bounder {
 public:
  // `known`: of the job's network; null: of none.
  Bounder(const Job& job, const Costs& costs, const std::vector<int>& players, KnownLayers* known)
      : job_(job),
        costs_(costs),
        players_(players),
        shape_(plan::pipeline_shape(job.recipe, job.plan)),
        strategy_(plan::strategy_of(job.plan, job.recipe)),
        experts_(plan::among(job.plan.expert_replicas(), strategy_)),
        promise_(
            promise_of(schedule::find_schedule(job.plan.pipeline.schedule), job.recipe, job.plan)),
        slowdown_(least_slowdown(job)) {
    deal(known);
  }

  JobBound bound() const {
    JobBound bound;
    // By chunk, of the stages above one: backward, without what waits for no gradients.
    std::vector<double> back(static_cast<std::size_t>(shape_.chunks));
    for (int stage = 0; stage < shape_.stages; ++stage) {
      bound_time(stage, back, bound);
      if (!promise_.goes_up) continue;
      for (int chunk = 0; chunk < shape_.chunks; ++chunk)
        back[static_cast<std::size_t>(chunk)] += after_gradients(part({stage, chunk}).backward);
    }
    bound.capacity = job_.cluster.server.gpu.memory;
    for (int stage = 0; stage < shape_.stages; ++stage)
      bound.memory = std::max(bound.memory, memory(stage));
    return bound;
  }

 private:
  const recipe::TrainingRecipe& recipe() const { return job_.recipe; }
  const lower::GpuLaws& law() const { return costs_.laws.front(); }
  bool trains() const { return !recipe().forward_only; }

  // GPUs of the first rank's group, which begins where servers do: no other spans fewer of them.
  // Empty: it is alone, or that is not so.
  std::vector<int> group_of(const recipe::RankMap& grid, Axis axis) const {
    const int per_server = job_.cluster.used_on(0);
    const int inner = axis == Axis::tensor ? 1 : grid.size(Axis::tensor);
    if (grid.size(axis) < 2 || per_server % (inner * grid.size(axis)) != 0) return {};
    std::vector<int> gpus;
    for (const Rank rank : grid.group(Rank{0}, axis)) {
      const auto at = static_cast<int>(index(rank));
      if (at >= per_server) return {};
      gpus.push_back(at);
    }
    return gpus;
  }

  LayerTerms terms() const {
    LayerTerms terms{plan::execution(recipe(), job_.plan), trains(), slowdown_};
    if (!promise_.in_turn) return terms;
    terms.choices = job_.collectives;
    const recipe::RankGrids grids = recipe::rank_grids(job_.plan);
    terms.tensor = group_of(grids.dense, Axis::tensor);
    terms.context = group_of(grids.dense, Axis::context);
    terms.expert = group_of(grids.experts, Axis::context);
    return terms;
  }

  Part part_of(const LayerWork& work, const LayerPasses& passes) const {
    Part part;
    part.forward = passes.forward;
    part.backward = passes.backward;
    part.parameters = work.parameters - work.tied_parameters;  // a copy beside it is none
    part.experts = work.expert_parameters;
    part.frozen = plan::frozen_bytes(work.frozen, recipe());
    part.kept = work.activations();
    return part;
  }

  // Whether layers are dealt without a look at their items, and none of them changes by that.
  bool are_alike_anywhere() const {
    const recipe::Pipeline& pipeline = job_.plan.pipeline;
    return !pipeline.branches && pipeline.layer_split != recipe::LayerSplit::by_time &&
           job_.plan.data_parallel.cycle_time.value() == Duration(0) &&
           recipe().recompute.layers.method == models::RecomputeLayers::Method::all &&
           !recipe().recompute.except_last;
  }

  void deal(KnownLayers* known) {
    if (known != nullptr && are_alike_anywhere()) {
      LayerTerms terms = this->terms();
      terms.execution.replicas = 1;  // which share tables alone
      const std::shared_ptr<const TimedLayers> layers = known->of(terms, job_, costs_, players_);
      deal(*layers->work, layers->passes, dealt(*layers->work).ranges());
      return;
    }
    const auto shared = work_of(job_, recipe().micro_batch.size);
    const models::NetworkWork& work = *shared;
    const plan::DealtLayers dealt = this->dealt(work);
    const plan::DealtWork dealt_work = dealt.deal(work);
    // Micro-batches that do not run again are shorter, and keep more.
    repeats_all_ = !dealt_work.whole;
    const models::NetworkWork& placed = dealt_work.placed.work;
    deal(placed, passes_of(placed, terms(), job_, costs_, players_), dealt.ranges());
  }

  plan::DealtLayers dealt(const models::NetworkWork& work) const {
    return {work, shape_, recipe(), job_.plan,
            stage_gpus(job_, work, costs_.laws, *costs_.messages)};
  }

  void deal(const models::NetworkWork& placed, const std::vector<LayerPasses>& passes,
            const std::vector<plan::ChainRange>& ranges) {
    std::vector<Part> kinds;
    for (std::size_t kind = 0; kind < placed.kinds.size(); ++kind)
      kinds.push_back(part_of(placed.kinds[kind], passes[kind]));
    for (const plan::ChainRange& range : ranges) {
      Part& part = parts_.emplace_back();
      for (int place = range.first; place < range.last; ++place)
        part += kinds[static_cast<std::size_t>(placed.chain[static_cast<std::size_t>(place)])];
      if (!repeats_all_) {
        part.backward.kernels -= part.backward.repeated;
        part.backward.repeated = 0;
        part.backward.launches -= part.backward.repeated_launches;
      }
    }
  }

  const Part& part(const schedule::Seat& seat) const {
    return parts_[static_cast<std::size_t>(schedule::virtual_stage(shape_, seat))];
  }
  // All chunks, of both copies where there are two.
  Part whole(int stage) const {
    Part all;
    for (std::uint8_t copy = 0; copy < schedule::directions(shape_); ++copy)
      for (int chunk = 0; chunk < shape_.chunks; ++chunk)
        all += part({stage, chunk, copy});
    return all;
  }

  // Before a stage can begin: forward passes of one micro-batch, of the copy that is there first.
  double forward_before(int stage) const {
    double least = std::numeric_limits<double>::infinity();
    for (std::uint8_t copy = 0; copy < schedule::directions(shape_); ++copy) {
      const int place = schedule::virtual_stage(shape_, {stage, 0, copy});
      double before = 0;
      for (int above = 0; above < place; ++above)
        before += parts_[static_cast<std::size_t>(above)].forward.all();
      least = std::min(least, before);
    }
    return least;
  }

  void bound_time(int stage, const std::vector<double>& back, JobBound& longest) const {
    const plan::Rounds rounds = plan::rounds_of(recipe(), job_.plan);
    const bool together = rounds.count == 1 && !rounds.apart;
    if (!promise_.flushed || !together ||
        job_.plan.data_parallel.batch_split != recipe::BatchSplit::equal)
      return;
    const Part all = whole(stage);
    JobBound own;
    const double m = static_cast<double>(shape_.microbatches) / schedule::directions(shape_);
    own.kernels = m * (all.forward.kernels + all.backward.kernels);
    own.repeated = m * all.backward.repeated;
    if (promise_.in_turn) own.waits = m * (all.forward.waits + all.backward.waits);
    own.update = update(all);
    if (promise_.comes_down) own.fill = forward_before(stage);
    // Its optimizer may run beside them.
    if (promise_.goes_up)
      own.fill += std::max(*std::min_element(back.begin(), back.end()) - own.update, 0.0);
    // The host launches all of them from the beginning of the step on.
    const double launch = Seconds(law().launch + law().call).count();
    const double host = m * (all.forward.launches + all.backward.launches) * launch;
    own.waits += std::max(host - (own.kernels + own.waits + own.fill + own.update), 0.0);
    if (own.seconds() <= longest.seconds()) return;
    longest.kernels = own.kernels;
    longest.repeated = own.repeated;
    longest.waits = own.waits;
    longest.fill = own.fill;
    longest.update = own.update;
  }

  // What of a backward pass cannot run before its gradients arrive.
  double after_gradients(const Passes& backward) const {
    return recipe().recompute.ahead ? backward.kernels - backward.repeated : backward.all();
  }

  double update(const Part& all) const {
    const bool on_gpu = recipe().offload.optimizer == recipe::OffloadTo::none &&
                        !strategy_.updates_elsewhere && !strategy_.has_leader();
    // Two copies may divide it between them.
    const bool in_copies = schedule::directions(shape_) > 1;
    if (!trains() || !on_gpu || in_copies || recipe().optimizer == recipe::Optimizer::none)
      return 0;
    const models::MemoryBound kernel = plan::optimizer_kernel(all.parameters, recipe(), strategy_);
    return slowdown_ * law().compute->time(kernel).time.count();
  }

  // Micro-batches whose activations a stage keeps at once, at the least, in parts of a stage.
  int kept_at_once(int stage) const {
    const int m = shape_.microbatches, p = shape_.stages, v = shape_.chunks;
    if (promise_.all_first) return m * v;
    if (!promise_.one_by_one) return 1;
    if (v == 1) return std::min(m, p - stage);
    const int group = shape_.group > 0 ? shape_.group : p;
    return std::min(m * v, 2 * (p - stage - 1) + (v - 1) * group + 1);
  }

  Bytes memory(int stage) const {
    const Part all = schedule::directions(shape_) == 1 ? whole(stage) : Part();
    const Bytes states = held(all, [](const plan::StateBytes& bytes) {
      return bytes.parameters + bytes.optimizer_state;
    });
    const Bytes gradients =
        held(all, [](const plan::StateBytes& bytes) { return bytes.gradients; });
    const Bytes kept = this->kept(stage);
    // Gradients may not be there before the first backward, and with it what is kept is fewer.
    const bool beside = kept_at_once(stage) < shape_.microbatches * shape_.chunks;
    const Bytes held = states + (beside ? gradients + kept : std::max(gradients, kept));
    DeviceMemory device;
    device.blas_workspace = recipe().memory.blas_workspace;
    device.context = recipe().memory.context;
    constexpr double kMillion = 1e6;
    device.least_fragmentation_ppm = std::llround(recipe().memory.least_fragmentation * kMillion);
    return device.required(held);
  }

  Bytes kept(int stage) const {
    const bool stays = trains() && !recipe().offload.activations && repeats_all_ &&
                       shape_.placement == schedule::Placement::looped;
    if (!stays) return Bytes(0);
    Bytes least = part({stage, 0}).kept;
    for (int chunk = 1; chunk < shape_.chunks; ++chunk)
      least = std::min(least, part({stage, chunk}).kept);
    return kept_at_once(stage) * least;
  }

  // A sum over what a stage holds of its share of the network all the time.
  template <class Which>
  Bytes held(const Part& all, const Which& which) const {
    Bytes bytes;
    for (const bool routed : {false, true}) {
      const DataParallelStrategy& strategy = routed ? experts_ : strategy_;
      if (strategy.has_leader() || strategy.updates_elsewhere) continue;
      plan::StateBytes states =
          plan::state_bytes(routed ? all.experts : all.parameters, recipe(), strategy);
      const bool away = recipe().offload.optimizer != recipe::OffloadTo::none;
      if (recipe().offload.parameters != recipe::OffloadTo::none) states.parameters = Bytes(0);
      if (!trains() || away) states.optimizer_state = Bytes(0);
      if (!trains() || away || strategy.layer_units || strategy.fresh_gradients)
        states.gradients = Bytes(0);
      bytes = bytes + which(states);
    }
    return bytes;
  }

  const Job& job_;
  const Costs& costs_;
  const std::vector<int>& players_;
  PipelineShape shape_;
  DataParallelStrategy strategy_, experts_;
  Promise promise_;
  double slowdown_;
  std::vector<Part> parts_;  // by virtual stage
  bool repeats_all_ = true;
};

}  // namespace

JobBounds::JobBounds(const Job& job)
    : network_(job.network),
      costs_(costs_of(job)),
      launch_time_(job.recipe.launch_time),
      is_mixed_(gpu_kinds(job.cluster).size() > 1),
      layers_(std::make_unique<KnownLayers>()) {
  for (int server = 0; server < job.cluster.servers; ++server)
    players_.push_back(job.cluster.used_on(server));
}

JobBounds::~JobBounds() = default;

JobBound JobBounds::of(const Job& job) const {
  // GPUs of several kinds are as fast as the one that happens to do the work, and if that is one
  // kind, it need not be the first.
  if (is_mixed_) return {};
  if (!job.others.empty()) return {};
  // How a recommender's tables are divided is a member of its network, and others have few layers.
  const models::Transformer* stack = stack_of(job.network);
  const bool is_known = stack != nullptr && stack == stack_of(network_);
  KnownLayers* known = is_known ? layers_.get() : nullptr;
  if (job.recipe.launch_time == launch_time_) return Bounder(job, costs_, players_, known).bound();
  return Bounder(job, costs_of(job), players_, known).bound();
}

}  // namespace trainyard::simulate
