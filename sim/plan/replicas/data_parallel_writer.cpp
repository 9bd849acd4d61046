#include "sim/plan/replicas/data_parallel_writer.h"

#include <fmt/format.h>

#include <algorithm>

#include "sim/base/check.h"
#include "sim/plan/replicas/data_parallel_owners.h"
#include "sim/plan/step_memory.h"
#include "sim/plan/tied_matrix.h"

namespace trainyard::plan {

using models::Dtype;
using models::MemoryBound;
using schedule::Pass;

namespace {

std::int64_t divide_up(std::int64_t dividend, std::int64_t divisor) {
  return (dividend + divisor - 1) / divisor;
}

// What is divided at all is divided among `replicas`; with several copies of the shards, among
// those of one copy.
DataParallelStrategy among(int replicas, DataParallelStrategy strategy) {
  replicas /= strategy.replicas;
  for (int* shards :
       {&strategy.parameter_shards, &strategy.gradient_shards, &strategy.optimizer_shards})
    *shards = *shards > 1 ? replicas : 1;
  return strategy;
}

bool has_experts(const models::NetworkWork& work) {
  return std::any_of(work.kinds.begin(), work.kinds.end(),
                     [](const models::LayerWork& kind) { return kind.expert_parameters > 0; });
}

recipe::TensorBuckets tensor_buckets(const recipe::ParallelPlan& plan,
                                     const recipe::TrainingRecipe& recipe) {
  const auto elements = [&](Bytes size) {
    return std::max<std::int64_t>(1, size.count() / size_of(recipe.precision.gradients).count());
  };
  return {elements(plan.data_parallel.first_bucket_size), elements(plan.data_parallel.bucket_size)};
}

StateBytes operator+(const StateBytes& a, const StateBytes& b) {
  return {a.parameters + b.parameters, a.gradients + b.gradients,
          a.optimizer_state + b.optimizer_state};
}

}  // namespace

DataParallelWriter::DataParallelWriter(ProgramBuilder& builder, const StepPlan& step,
                                       const models::NetworkWork& work,
                                       const recipe::TrainingRecipe& recipe,
                                       const recipe::ParallelPlan& plan, bool updates_once)
    : builder_(builder),
      step_(step),
      work_(work),
      recipe_(recipe),
      plan_(plan),
      strategy_(strategy_of(plan, recipe)),
      expert_strategy_(among(plan.expert_replicas() * directions(step.shape), strategy_)),
      exchanges_(plan.degrees.replicas() * directions(step.shape) > 1),
      exchanges_experts_(plan.expert_replicas() * directions(step.shape) > 1 && has_experts(work)),
      updates_once_(updates_once),
      // Between the forward and the backward pass of a micro-batch a stage runs others.
      whole_step_(step.shape.stages > 1),
      compresses_(plan.data_parallel.compression.used()),
      buckets_(plan.data_parallel.first_bucket_size, plan.data_parallel.bucket_size),
      expert_buckets_(plan.data_parallel.first_bucket_size, plan.data_parallel.bucket_size),
      tensors_(tensor_buckets(plan, recipe)),
      expert_tensors_(tensors_) {}

bool DataParallelWriter::gradients_come_and_go() const {
  return recipe_.kernels.fusion != models::Fusion::by_hand && step_.shape.microbatches == 1 &&
         updates_once_ && !exchanges_ && !exchanges_experts_;
}

Bytes DataParallelWriter::gradient_bytes(std::int64_t parameters) const {
  return state_bytes(parameters, recipe_, strategy_).gradients;
}

std::vector<models::WorkItem> DataParallelWriter::accumulation(std::int64_t parameters) const {
  if (strategy_.layer_units) return {};
  return accumulation_work(parameters, recipe_, step_.shape.microbatches > 1);
}

void DataParallelWriter::hold_states(const StageParameters& parameters, int versions) {
  StateBytes states = state_bytes(parameters.dense, recipe_, strategy_) +
                      state_bytes(parameters.experts, recipe_, expert_strategy_);
  move_states(parameters, states);
  builder_.resident(MemoryKind::parameters, states.parameters, "parameters");
  if (!strategy_.layer_units && !gradients_come_and_go())
    builder_.resident(MemoryKind::gradients, states.gradients, kGradients);
  builder_.resident(MemoryKind::optimizer_state, states.optimizer_state, "optimizer state");
  builder_.resident(MemoryKind::parameters, (versions - 1) * states.parameters,
                    "older versions of the parameters");
  builder_.resident(MemoryKind::parameters, parameters.fp8_copies, "fp8 copies of the weights");
  if (strategy_.bucket_copies && (exchanges_ || exchanges_experts_))
    builder_.resident(MemoryKind::communication_buffers, states.gradients, "gradient buckets");
  builder_.resident(MemoryKind::gradients, compression_state_of(parameters), "unsent gradients");
  if (strategy_.outer_period > 0)
    builder_.resident(MemoryKind::optimizer_state,
                      2 * (parameters.dense + parameters.experts) * size_of(Dtype::fp32),
                      "outer optimizer state");
}

// Gradients that are not kept whole cannot wait for the optimizer step. Copies of the network
// finish at different times on the ranks that share gradients: they are reduced after the last
// backward, in an order on which all agree.
bool DataParallelWriter::reduces_in_backward() const {
  return (exchanges_ || exchanges_experts_ || offloads()) && directions(step_.shape) == 1 &&
         strategy_.outer_period == 0 &&
         (plan_.data_parallel.overlap_backward || strategy_.each_microbatch ||
          strategy_.layer_units || compresses_);
}

PassRole DataParallelWriter::role(const std::vector<schedule::Slot>& order, std::size_t at,
                                  bool completes) {
  if (ends_[0].empty()) {
    for (std::vector<Ends>& ends : ends_)
      ends.assign(static_cast<std::size_t>(parts(step_.shape)), {order.size(), 0});
    for (std::size_t i = 0; i < order.size(); ++i) {
      const bool forward = order[i].pass == Pass::forward;
      if (!forward && !ends_backward(order[i].pass)) continue;
      Ends& ends = ends_[forward ? 0 : 1][static_cast<std::size_t>(part(step_.shape, order[i]))];
      ends.first = std::min(ends.first, i);
      ends.last = std::max(ends.last, i);
    }
  }
  const bool forward = order[at].pass == Pass::forward;
  const Ends& ends = ends_[forward ? 0 : 1][static_cast<std::size_t>(part(step_.shape, order[at]))];
  const bool keeps = strategy_.gathering == Gathering::each_pass && whole_step_;
  PassRole role;
  if (forward) {
    role.first = at == ends.first && (keeps || strategy_.gathering == Gathering::first_forward);
    return role;
  }
  role.first = at == ends.first && (strategy_.layer_units || accumulates_on_host());
  role.last = completes && (keeps || (reduces_in_backward() && !strategy_.each_microbatch));
  return role;
}

const models::LayerWork& DataParallelWriter::layer(int place) const {
  return work_.kinds[static_cast<std::size_t>(work_.chain[static_cast<std::size_t>(place)])];
}

// A matrix that several places of the rank share is updated and reduced once, as soon as the
// backward pass of the first of them has added its part of the gradient.
std::int64_t DataParallelWriter::parameters_of(int place) const {
  return layer(place).parameters - tied_with_earlier(step_, work_, place);
}

// Its gradient is there from the first part on.
std::int64_t DataParallelWriter::gradients_from(int place) const {
  return layer(place).parameters - tied_with_later(step_, work_, place);
}

void DataParallelWriter::begin(Pass pass, ChainRange range, PassRole role) {
  pass_ = pass;
  range_ = range;
  role_ = role;
  units_.clear();
  fetched_ = read_ = 0;
  if (!exchanges_) return;
  if (strategy_.gathering == Gathering::each_pass)
    list_units(range);
  else if (strategy_.gathering == Gathering::first_forward && pass == Pass::forward && role.first)
    list_buckets(range);
  // The first units are needed by the first places.
  fetch_until(static_cast<std::size_t>(std::max(1, strategy_.prefetch)));
}

void DataParallelWriter::before(int place) {
  for (std::size_t number = 0; number < units_.size(); ++number)
    if (units_[number].enters == place) arrive(number);
  if (!exchanges_ || !ends_backward(pass_)) return;
  const std::int64_t parameters = gradients_from(place), experts = layer(place).expert_parameters;
  if (strategy_.layer_units)
    builder_.hold(MemoryKind::gradients,
                  (parameters + experts) * size_of(stored_type(recipe_.precision.compute)),
                  kUnreduced);
  else if (strategy_.gradient_shards > 1)
    builder_.hold(
        MemoryKind::gradients,
        (parameters + (expert_strategy_.gradient_shards > 1 || gradients_leave() ? experts : 0)) *
            size_of(recipe_.precision.gradients),
        kUnreduced);
}

void DataParallelWriter::after(int place) {
  for (const Unit& unit : units_)
    if (unit.leaves == place) leave(unit);
  if (strategy_.layer_units || !reduces_in_backward() || !ends_backward(pass_)) return;
  // A layer may have no kernel in this half of its backward pass, as an embedding has none in that
  // for the weights.
  if (strategy_.gradient_shards > 1) builder_.settle(kUnreduced);
  if (strategy_.each_microbatch || role_.last) reduce_place(place);
}

void DataParallelWriter::end() {
  if (strategy_.layer_units || !reduces_in_backward() || !ends_backward(pass_)) return;
  if (strategy_.each_microbatch || role_.last) reduce_rest();
}

void DataParallelWriter::reduce_place(int place) {
  if (compresses_) return compress_place(place);
  const Bytes each = size_of(recipe_.precision.gradients);
  if (exchanges_ || offloads())
    reduce(buckets_.add(parameters_of(place) * each), CollectivePort::data);
  if (exchanges_experts_ || offloads())
    reduce(expert_buckets_.add(layer(place).expert_parameters * each), CollectivePort::expert_data);
}

void DataParallelWriter::reduce_rest() {
  if (compresses_) {
    if (exchanges_) exchange(tensors_.flush(), CollectivePort::data);
    if (exchanges_experts_) exchange(expert_tensors_.flush(), CollectivePort::expert_data);
    return;
  }
  if (exchanges_ || offloads()) reduce(buckets_.flush(), CollectivePort::data);
  if (exchanges_experts_ || offloads())
    reduce(expert_buckets_.flush(), CollectivePort::expert_data);
}

void DataParallelWriter::copy(const std::string& what, Bytes read, Bytes written, OpGroup group) {
  builder_.work(
      {models::NamedKernel{what, MemoryBound{models::MemoryOp::elementwise, read, written}}},
      "data parallel", group);
}

void DataParallelWriter::reduce(const std::vector<Bytes>& buckets, CollectivePort port) {
  const bool scatters = strategy_.reduction == CollectiveKind::reduce_scatter;
  const bool dense = port == CollectivePort::data;
  const bool exchanges = dense ? exchanges_ : exchanges_experts_;
  const int shards = (dense ? strategy_ : expert_strategy_).optimizer_shards;
  unsigned waits = stream_bit(StreamKind::compute) | stream_bit(StreamKind::tensor) |
                   stream_bit(StreamKind::context) | stream_bit(StreamKind::expert);
  if (strategy_.gathering == Gathering::each_pass) waits |= kGatherStreams;
  for (const Bytes bytes : buckets) {
    const std::string name = fmt::format("gradient bucket {}", buckets_sent_++);
    const Bytes own(divide_up(bytes.count(), shards));
    if (exchanges) {
      if (strategy_.bucket_copies)
        copy("copy gradients into bucket", bytes, bytes, OpGroup::compute);
      builder_.collective(StreamKind::data, port, {strategy_.reduction, bytes},
                          static_cast<StreamSet>(waits),
                          (scatters ? "reduce-scatter " : "all-reduce ") + name);
      if ((dense ? strategy_ : expert_strategy_).gradient_shards > 1)
        builder_.last_gives_back(MemoryKind::gradients, bytes, kUnreduced);
      take_leaving_gradients(own);
    }
    if (!offloads()) continue;
    if (exchanges)
      copy_gradients(own, stream_bit(StreamKind::data), name, MemoryKind::communication_buffers,
                     kLeaving);
    else
      copy_gradients(own, waits, name, MemoryKind::gradients, kUnreduced);
  }
  if (exchanges && !buckets.empty() && !plan_.data_parallel.overlap_backward)
    builder_.compute_waits_for(stream_bit(StreamKind::data));
}

// Every rank sums the squares of its own gradients; the sum over all is one number. Source:
// Megatron and PyTorch's clip_grad_norm_ both scale in a second pass.
void DataParallelWriter::clip(Bytes gradients) {
  if (offloads()) return clip_on_host(gradients);
  copy("gradient norm", gradients, Bytes(0), OpGroup::optimizer);
  if (norm_ranks() > 1) {
    builder_.collective(StreamKind::data, CollectivePort::norm,
                        {CollectiveKind::all_reduce, size_of(Dtype::fp32)},
                        stream_bit(StreamKind::compute), "all-reduce gradient norm");
    builder_.compute_waits_for(stream_bit(StreamKind::data));
  }
  copy("clip gradients", gradients, gradients, OpGroup::optimizer);
}

// That have parts of the gradients.
int DataParallelWriter::norm_ranks() const {
  return plan_.degrees.tensor * plan_.degrees.pipeline *
         (step_.norm_over_all ? plan_.degrees.replicas() : 1);
}

void DataParallelWriter::reduce_all(const StageParameters& parameters,
                                    const std::vector<ChainRange>& copies) {
  for (const ChainRange& range : copies) {
    for (int place = range.last - 1; place >= range.first; --place)
      reduce_place(place);
    reduce_rest();
  }
  if (!copies.empty()) return;
  const Bytes each = size_of(recipe_.precision.gradients);
  if (exchanges_ || offloads()) reduce(buckets_.add(parameters.dense * each), CollectivePort::data);
  if (exchanges_experts_ || offloads())
    reduce(expert_buckets_.add(parameters.experts * each), CollectivePort::expert_data);
  reduce_rest();
}

void DataParallelWriter::optimize(const StageParameters& parameters) {
  if (offloads()) return update_on_host(parameters);
  if (converts_for_optimizer(recipe_, strategy_)) {
    const Bytes workspace = optimizer_workspace(parameters.dense, recipe_, strategy_);
    builder_.hold(MemoryKind::workspace, workspace, "optimizer");
    builder_.work(converting_optimizer(parameters.dense, recipe_, strategy_), "optimizer",
                  OpGroup::optimizer);
    builder_.release(MemoryKind::workspace, workspace, "optimizer");
    return;
  }
  MemoryBound kernel = optimizer_kernel(parameters.dense, recipe_, strategy_);
  const MemoryBound experts = optimizer_kernel(parameters.experts, recipe_, expert_strategy_);
  kernel.read = kernel.read + experts.read;
  kernel.written = kernel.written + experts.written;
  builder_.work({models::NamedKernel{"optimizer step", kernel}}, "optimizer", OpGroup::optimizer);
}

void DataParallelWriter::step(const StageParameters& parameters,
                              const std::vector<ChainRange>& copies) {
  const bool exchanges = exchanges_ || exchanges_experts_;
  if ((exchanges || offloads()) && !reduces_in_backward() && strategy_.outer_period == 0)
    reduce_all(parameters, copies);
  if (exchanges) builder_.compute_waits_for(stream_bit(StreamKind::data));
  if (strategy_.replicas > 1) builder_.compute_waits_for(stream_bit(StreamKind::replica));
  if (strategy_.bucket_copies && exchanges) {
    const Bytes whole =
        (parameters.dense + parameters.experts) * size_of(recipe_.precision.gradients);
    copy("copy buckets into gradients", whole, whole, OpGroup::compute);
  }
  if (recipe_.gradient_clipping) clip(updated_gradients(parameters));
  optimize(parameters);
  if (gradients_come_and_go())
    builder_.release(MemoryKind::gradients, gradient_bytes(parameters.dense), kGradients);
  if (gradient_shards_held_ > 0)
    builder_.release(MemoryKind::gradients, Bytes(gradient_shards_held_), kGradients);
  if (strategy_.outer_period > 0) {
    if (exchanges_) meet(parameters.dense, CollectivePort::data);
    if (exchanges_experts_) meet(parameters.experts, CollectivePort::expert_data);
  }
  if (strategy_.gathering != Gathering::after_step) return;
  if (exchanges_) gather_updated(parameters.dense, CollectivePort::data);
  if (exchanges_experts_) gather_updated(parameters.experts, CollectivePort::expert_data);
}

// One H-th of: the change since the last meeting is computed and all-reduced, the outer momentum
// and the common parameters are updated and copied into the weights.
void DataParallelWriter::meet(std::int64_t parameters, CollectivePort port) {
  const std::int64_t part = divide_up(parameters, strategy_.outer_period);
  const Bytes single = part * size_of(Dtype::fp32);
  const Bytes weights = part * size_of(weight_type(recipe_));
  if (part == 0) return;
  copy("change of parameters", 2 * single, single, OpGroup::optimizer);
  builder_.collective(StreamKind::data, port, {CollectiveKind::all_reduce, single},
                      stream_bit(StreamKind::compute), "all-reduce change of parameters");
  builder_.compute_waits_for(stream_bit(StreamKind::data));
  copy("outer optimizer step", 3 * single, 3 * single + weights, OpGroup::optimizer);
}

void DataParallelWriter::gather_updated(std::int64_t parameters, CollectivePort port) {
  GradientBuckets buckets(plan_.data_parallel.bucket_size, plan_.data_parallel.bucket_size);
  std::vector<Bytes> sizes = buckets.add(parameters * size_of(weight_type(recipe_)));
  for (const Bytes rest : buckets.flush())
    sizes.push_back(rest);
  for (std::size_t i = 0; i < sizes.size(); ++i)
    builder_.collective(
        StreamKind::gather, port, {CollectiveKind::all_gather, sizes[i]},
        static_cast<StreamSet>(stream_bit(StreamKind::compute) | stream_bit(StreamKind::data)),
        fmt::format("gather updated {} {}", port == CollectivePort::data ? "parameters" : "experts",
                    i));
}

}  // namespace trainyard::plan
