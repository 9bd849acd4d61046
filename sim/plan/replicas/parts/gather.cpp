#include "sim/plan/replicas/parts/gather.h"

#include <algorithm>

#include "sim/plan/replicas/parts/owners.h"
#include "sim/plan/replicas/parts/parts.h"

namespace trainyard::plan {

using schedule::Pass;

namespace {

StreamSet limit(const GatherOptions& options) {
  return options.limited ? stream_bit(StreamKind::compute) : 0;
}

}  // namespace

Gather::Gather(ReplicaContext& context, const GatherOptions& options)
    : context_(context), options_(options), shards_(context, limit(options)) {}

PassRole Gather::distinguishes(bool forward) const {
  const bool keeps = each_pass() && keeps_whole_step(context_);
  return {.first = forward && (keeps || !each_pass()), .last = !forward && keeps};
}

void Gather::begin() {
  fetched_ = 0;
  shards_.begin();
  units_.clear();
  if (each_pass())
    units_ = layer_units(context_, options_);
  else if (context_.pass == Pass::forward && context_.role.first && !context_.recipe.forward_only)
    units_ = bucket_units(context_, options_);
  entering_.clear();
  leaving_.clear();
  for (std::size_t number = 0; number < units_.size(); ++number) {
    entering_.emplace(units_[number].enters, number);
    leaving_.emplace(units_[number].leaves, number);
  }
  // The first units are needed by the first places.
  fetch_until(static_cast<std::size_t>(std::max(1, options_.prefetch)));
}

void Gather::before(int place) {
  const auto [first, last] = entering_.equal_range(place);
  for (auto at = first; at != last; ++at)
    arrive(at->second);
}

void Gather::after(int place) {
  for (const GatherUnit& unit : leaving(place))
    leave(unit);
}

std::vector<GatherUnit> Gather::leaving(int place) const {
  std::vector<GatherUnit> units;
  const auto [first, last] = leaving_.equal_range(place);
  for (auto at = first; at != last; ++at)
    units.push_back(units_[at->second]);
  return units;
}

bool Gather::travels(const GatherUnit& unit, std::size_t group) const {
  const ReplicaGroup& own = context_.groups[group];
  if (!own.experts) return true;
  const bool divided = each_pass() ? own.strategy.parameter_shards > 1 : own.exchanges;
  return divided && (unit.parameters[group] > 0 || unit.frozen[group] > Bytes(0));
}

Bytes Gather::gathered_bytes(const GatherUnit& unit) const {
  Bytes gathered;
  for (std::size_t group = 0; group < unit.parameters.size(); ++group)
    if (travels(unit, group)) gathered = gathered + bytes(unit, group);
  return gathered;
}

Bytes Gather::bytes(const GatherUnit& unit, std::size_t group) const {
  const bool as_computed = context_.strategy().layer_units;
  const models::Dtype type =
      as_computed ? weight_type(context_.recipe) : trained_type(context_.recipe);
  return unit.parameters[group] * size_of(type) + unit.frozen[group];
}

Bytes Gather::copied_bytes(const GatherUnit& unit) const {
  if (!context_.strategy().layer_units) return gathered_bytes(unit);
  return bytes(unit, 0) + bytes(unit, 1);
}

void Gather::fetch_until(std::size_t end) {
  for (; fetched_ < std::min(end, units_.size()); ++fetched_)
    if (units_[fetched_].gathers) fetch(fetched_);
}

void Gather::fetch(std::size_t number) {
  const GatherUnit& unit = units_[number];
  StreamSet waits = (kGatherStreams | stream_bit(StreamKind::data)) & ~stream_bit(unit.stream);
  waits |= limit(options_);
  waits |= shards_.fetch(units_, number);
  for (std::size_t i = 0; i < unit.parameters.size(); ++i) {
    if (!travels(unit, i)) continue;
    const ReplicaGroup& group = context_.groups[i];
    const Bytes gathered = bytes(unit, i);
    context_.builder.collective(unit.stream, context_.within(group),
                                {CollectiveKind::all_gather, gathered}, waits,
                                "gather " + (group.prefix + unit.name));
    if (!each_pass()) continue;
    context_.builder.last_takes(context_.strategy().layer_units ? MemoryKind::communication_buffers
                                                                : MemoryKind::parameters,
                                gathered, kGathered);
    if (!group.experts) shards_.leave(unit);
  }
}

void Gather::arrive(std::size_t number) {
  fetch_until(number + 1);
  const GatherUnit& unit = units_[number];
  if (unit.gathers) {
    context_.builder.compute_waits_for(stream_bit(unit.stream));
    if (context_.strategy().layer_units)
      copy_out(unit);
    else if (options_.prefetch > 0)
      context_.builder.settle_waits("wait for parameters of " + unit.name);
  }
  fetch_until(number + 1 + static_cast<std::size_t>(options_.prefetch));
}

void Gather::copy_out(const GatherUnit& unit) {
  const Bytes gathered = gathered_bytes(unit), copied = copied_bytes(unit);
  Bytes kept;
  for (std::size_t i = 0; i < unit.parameters.size(); ++i) {
    const DataParallelStrategy& strategy = context_.groups[i].strategy;
    if (!travels(unit, i))
      kept = kept + state_bytes(unit.parameters[i], context_.recipe, strategy).parameters +
             unit.frozen[i];
  }
  context_.builder.hold(MemoryKind::parameters, copied, kGathered);
  context_.copy("copy gathered " + unit.name, gathered + kept, copied, OpGroup::compute);
  context_.builder.release(MemoryKind::communication_buffers, gathered, kGathered);
}

void Gather::leave(const GatherUnit& unit) {
  if (unit.frees) context_.builder.release(MemoryKind::parameters, copied_bytes(unit), kGathered);
}

PartMaker gather_in_passes(const GatherOptions& options) {
  return [options](ReplicaContext& context) { return std::make_unique<Gather>(context, options); };
}

}  // namespace trainyard::plan
