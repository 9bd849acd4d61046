// The part of DataParallelWriter that moves units: places whose parameters are gathered and, with
// layer units, whose gradients are reduced together. Routed experts of a unit go the same way in
// the group of their own replicas; where there is one, they are only cast.
#include <fmt/format.h>

#include <algorithm>

#include "sim/plan/replicas/data_parallel_owners.h"
#include "sim/plan/replicas/data_parallel_writer.h"
#include "sim/plan/step_memory.h"

namespace trainyard::plan {

using schedule::Pass;

bool DataParallelWriter::is_root(int place) const {
  return strategy_.keeps_ends && !work_.divisible[static_cast<std::size_t>(place)];
}

bool DataParallelWriter::is_kept(int place) const {
  if (strategy_.keeps_layers) return true;
  if (!strategy_.keeps_ends || whole_step_) return false;
  const auto after = work_.divisible.begin() + place + 1;
  return std::find(after, work_.divisible.end(), true) == work_.divisible.end();
}

// The gradients of weights need no parameters: with a divided backward pass its first half gathers.
void DataParallelWriter::add_unit(int enters, int leaves, std::int64_t parameters, bool kept,
                                  std::string name) {
  const bool forward = pass_ == Pass::forward;
  const bool is_end = forward ? role_.first : role_.last;
  Unit unit{.enters = enters, .leaves = leaves, .parameters = parameters, .name = std::move(name)};
  if (strategy_.gathering == Gathering::each_pass) {
    const bool held_on = kept && (!whole_step_ || is_end);
    unit.gathers = forward ? !kept || !whole_step_ || is_end : !kept;
    unit.frees = forward ? !kept : !kept || held_on;
    if (pass_ == Pass::backward_input) unit.frees = !kept;
    if (pass_ == Pass::backward_weight) {
      unit.gathers = false;
      unit.frees = held_on;
    }
  } else {
    unit.gathers = true;  // list_buckets() is called for the first forward pass only
  }
  // Depth 2 takes turns on the two streams.
  const bool second = strategy_.prefetch > 1 && units_.size() % 2 == 1;
  unit.stream = second ? StreamKind::gather_second : StreamKind::gather;
  units_.push_back(std::move(unit));
}

// In the order of the pass. The root unit is gathered before all others and is done with the last
// of its places backward.
void DataParallelWriter::list_units(ChainRange range) {
  const bool forward = pass_ == Pass::forward;
  const int entry = forward ? range.first : range.last - 1;
  const int exit = forward ? range.last - 1 : range.first;
  std::int64_t root = 0;
  for (int place = range.first; place < range.last; ++place)
    root += is_root(place) ? gradients_from(place) : 0;
  if (root > 0) add_unit(entry, exit, root, true, "embedding and logits");
  for (int i = 0; i < range.last - range.first; ++i) {
    const int place = forward ? range.first + i : range.last - 1 - i;
    if (is_root(place)) continue;
    // A layer that is dropped after its pass is gathered by each place that reads it.
    add_unit(place, place, layer(place).parameters, is_kept(place), place_name(work_, place));
    units_.back().experts = layer(place).expert_parameters;
  }
}

// Places that fill a bucket.
void DataParallelWriter::list_buckets(ChainRange range) {
  int first = range.first;
  std::int64_t parameters = 0, experts = 0;
  for (int place = range.first; place < range.last; ++place) {
    parameters += parameters_of(place);
    experts += layer(place).expert_parameters;
    const bool full = (parameters + experts) * size_of(recipe_.precision.gradients) >=
                      plan_.data_parallel.bucket_size;
    if (parameters + experts == 0 || (!full && place + 1 < range.last)) continue;
    add_unit(first, place, parameters, true, place_name(work_, first));
    units_.back().experts = experts;
    first = place + 1;
    parameters = experts = 0;
  }
}

bool DataParallelWriter::experts_travel(const Unit& unit) const {
  return unit.experts > 0 && expert_strategy_.parameter_shards > 1;
}

Bytes DataParallelWriter::gathered_bytes(const Unit& unit) const {
  return (unit.parameters + (experts_travel(unit) ? unit.experts : 0)) *
         size_of(weight_type(recipe_));
}

Bytes DataParallelWriter::copied_bytes(const Unit& unit) const {
  const bool casts = strategy_.layer_units && !experts_travel(unit);
  return gathered_bytes(unit) + (casts ? unit.experts : 0) * size_of(weight_type(recipe_));
}

void DataParallelWriter::fetch_until(std::size_t end) {
  for (; fetched_ < std::min(end, units_.size()); ++fetched_)
    if (units_[fetched_].gathers) fetch(units_[fetched_]);
}

void DataParallelWriter::fetch(Unit& unit) {
  const Bytes each = size_of(weight_type(recipe_));
  const bool each_pass = strategy_.gathering == Gathering::each_pass;
  unsigned waits = (kGatherStreams | stream_bit(StreamKind::data)) & ~stream_bit(unit.stream);
  if (strategy_.limited) waits |= stream_bit(StreamKind::compute);
  const auto gather = [&](CollectivePort port, std::int64_t parameters, const char* what) {
    builder_.collective(unit.stream, port, {CollectiveKind::all_gather, parameters * each},
                        static_cast<StreamSet>(waits), what + unit.name);
    if (each_pass)
      builder_.last_takes(
          strategy_.layer_units ? MemoryKind::communication_buffers : MemoryKind::parameters,
          parameters * each, kGathered);
  };
  waits |= fetch_shard(unit);
  gather(CollectivePort::data, unit.parameters, "gather ");
  if (each_pass) leave_shard(unit);
  const bool moves = each_pass ? experts_travel(unit) : exchanges_experts_ && unit.experts > 0;
  if (moves) gather(CollectivePort::expert_data, unit.experts, "gather experts of ");
}

// The computation of a unit waits for its parameters, and those of the units after it are enqueued.
void DataParallelWriter::arrive(std::size_t number) {
  fetch_until(number + 1);
  const Unit& unit = units_[number];
  if (unit.gathers) {
    builder_.compute_waits_for(stream_bit(unit.stream));
    if (strategy_.layer_units) {
      // Out of the gathered buffer, in which the shards of a parameter lie apart, into the
      // parameters.
      const Bytes gathered = gathered_bytes(unit), copied = copied_bytes(unit);
      const Bytes kept = experts_travel(unit)
                             ? Bytes(0)
                             : state_bytes(unit.experts, recipe_, expert_strategy_).parameters;
      builder_.hold(MemoryKind::parameters, copied, kGathered);
      copy("copy gathered " + unit.name, gathered + kept, copied, OpGroup::compute);
      builder_.release(MemoryKind::communication_buffers, gathered, kGathered);
    } else if (strategy_.prefetch > 0) {
      builder_.settle_waits("wait for parameters of " + unit.name);
    }
  }
  fetch_until(number + 1 + static_cast<std::size_t>(strategy_.prefetch));
}

void DataParallelWriter::leave(const Unit& unit) {
  if (unit.frees) builder_.release(MemoryKind::parameters, copied_bytes(unit), kGathered);
  if (strategy_.layer_units && ends_backward(pass_)) reduce_unit(unit);
}

// The gradients of a layer go, cast, into a buffer that is scattered; one such buffer is in flight
// at a time. Where only the last micro-batch is reduced, the others add to whole gradients.
void DataParallelWriter::reduce_unit(const Unit& unit) {
  const Bytes produced =
      (unit.parameters + unit.experts) * size_of(stored_type(recipe_.precision.compute));
  const Bytes cast = (unit.parameters + unit.experts) * size_of(strategy_.reduced_as);
  const bool accumulates = !strategy_.each_microbatch && step_.shape.microbatches > 1;
  const bool reduces = strategy_.each_microbatch || !accumulates || role_.last;
  if (!reduces) {
    if (role_.first) builder_.hold(MemoryKind::gradients, cast, kAccumulated);
    copy("accumulate gradients of " + unit.name, role_.first ? produced : produced + cast, cast,
         OpGroup::compute);
    builder_.release(MemoryKind::gradients, produced, kUnreduced);
    return;
  }
  const Bytes sent =
      (unit.parameters + (exchanges_experts_ ? unit.experts : 0)) * size_of(strategy_.reduced_as);
  builder_.compute_waits_for(stream_bit(StreamKind::data));
  builder_.hold(MemoryKind::communication_buffers, sent, kReduceBuffer);
  // What nobody else holds is added to its sum at once.
  if (!exchanges_experts_)
    builder_.hold(MemoryKind::gradients, kept_gradients(unit.experts, expert_strategy_),
                  kGradients);
  copy("copy gradients of " + unit.name, accumulates ? produced + cast : produced, cast,
       OpGroup::compute);
  builder_.release(MemoryKind::gradients, produced, kUnreduced);
  if (accumulates) builder_.release(MemoryKind::gradients, cast, kAccumulated);

  scatter(unit.parameters, strategy_, CollectivePort::data, CollectivePort::replica, unit.name);
  if (unit.experts > 0 && exchanges_experts_)
    scatter(unit.experts, expert_strategy_, CollectivePort::expert_data,
            CollectivePort::expert_replica, "experts of " + unit.name);
  if (offloads())
    copy_gradients(state_bytes(unit.parameters, recipe_, strategy_).gradients +
                       state_bytes(unit.experts, recipe_, expert_strategy_).gradients,
                   stream_bit(StreamKind::compute) | stream_bit(StreamKind::data) |
                       stream_bit(StreamKind::replica),
                   "gradients of " + unit.name, MemoryKind::gradients, kGradients);
  if (!plan_.data_parallel.overlap_backward)
    builder_.compute_waits_for(
        static_cast<StreamSet>(stream_bit(StreamKind::data) | stream_bit(StreamKind::replica)));
}

// Of the gradients that stay until the step, what a reduction in this pass is the first to need;
// all that it makes if they leave for the host.
Bytes DataParallelWriter::kept_gradients(std::int64_t parameters,
                                         const DataParallelStrategy& strategy) {
  if (offloads()) return state_bytes(parameters, recipe_, strategy).gradients;
  if (strategy_.each_microbatch && !role_.first) return Bytes(0);
  const Bytes own = state_bytes(parameters, recipe_, strategy).gradients;
  gradient_shards_held_ += own.count();
  return own;
}

void DataParallelWriter::scatter(std::int64_t parameters, const DataParallelStrategy& strategy,
                                 CollectivePort port, CollectivePort across,
                                 const std::string& name) {
  const Bytes sent = parameters * size_of(strategy.reduced_as);
  const bool scatters = strategy.gradient_shards > 1;
  if (scatters) {
    builder_.collective(StreamKind::data, port, {CollectiveKind::reduce_scatter, sent},
                        static_cast<StreamSet>(stream_bit(StreamKind::compute) | kGatherStreams),
                        "reduce-scatter gradients of " + name);
    builder_.last_gives_back(MemoryKind::communication_buffers, sent, kReduceBuffer);
    builder_.last_takes(MemoryKind::gradients, kept_gradients(parameters, strategy), kGradients);
  }
  if (strategy.replicas == 1) return;
  const Bytes shard(shard_of(sent.count(), strategy.gradient_shards));
  builder_.collective(
      StreamKind::replica, across, {CollectiveKind::all_reduce, shard},
      static_cast<StreamSet>(stream_bit(StreamKind::data) | stream_bit(StreamKind::compute)),
      "all-reduce gradient shards of " + name);
  if (scatters) return;
  builder_.last_gives_back(MemoryKind::communication_buffers, sent, kReduceBuffer);
  builder_.last_takes(MemoryKind::gradients, kept_gradients(parameters, strategy), kGradients);
}

}  // namespace trainyard::plan
