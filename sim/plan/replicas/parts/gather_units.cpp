#include "sim/plan/replicas/parts/gather_units.h"

#include <algorithm>
#include <utility>

#include "sim/plan/stage/place_labels.h"
#include "sim/plan/step_memory.h"

namespace trainyard::plan {

using schedule::Pass;

namespace {

// Depth 2 takes turns on the two streams.
StreamKind stream_of_unit(std::size_t number, const GatherOptions& options) {
  const bool second = options.prefetch > 1 && number % 2 == 1;
  return second ? StreamKind::gather_second : StreamKind::gather;
}

bool is_root(const ReplicaContext& context, const GatherOptions& options, int place) {
  return options.keeps_ends && !context.work.divisible[static_cast<std::size_t>(place)];
}

// Whether the parameters of a layer stay from its forward to its backward pass.
bool is_kept(const ReplicaContext& context, const GatherOptions& options, int place) {
  if (context.recipe.forward_only) return false;
  if (options.keeps_layers) return true;
  if (!options.keeps_ends || keeps_whole_step(context)) return false;
  const auto after = context.work.divisible.begin() + place + 1;
  return std::find(after, context.work.divisible.end(), true) == context.work.divisible.end();
}

// The gradients of weights need no parameters: with a divided backward pass its first half gathers.
void set_ends(GatherUnit& unit, const ReplicaContext& context, bool kept) {
  const bool forward = context.pass == Pass::forward;
  const bool whole_step = keeps_whole_step(context);
  const bool is_end = forward ? context.role.first : context.role.last;
  const bool held_on = kept && (!whole_step || is_end);
  unit.gathers = forward ? !kept || !whole_step || is_end : !kept;
  unit.frees = forward ? !kept : !kept || held_on;
  if (context.pass == Pass::backward_input) unit.frees = !kept;
  if (context.pass == Pass::backward_weight) {
    unit.gathers = false;
    unit.frees = held_on;
  }
}

}  // namespace

std::vector<GatherUnit> layer_units(const ReplicaContext& context, const GatherOptions& options) {
  std::vector<GatherUnit> units;
  const auto add = [&](GatherUnit unit, bool kept) {
    set_ends(unit, context, kept);
    unit.stream = stream_of_unit(units.size(), options);
    units.push_back(std::move(unit));
  };
  const ChainRange range = context.range;
  const bool forward = context.pass == Pass::forward;
  const int entry = forward ? range.first : range.last - 1;
  const int exit = forward ? range.last - 1 : range.first;
  std::int64_t root = 0;
  Bytes frozen;
  for (int place = range.first; place < range.last; ++place) {
    if (!is_root(context, options, place)) continue;
    root += context.gradients_from(context.groups[0], place);
    frozen = frozen + context.frozen_at(place)[0];
  }
  if (root > 0 || frozen > Bytes(0))
    add({.enters = entry,
         .leaves = exit,
         .parameters = {root, 0},
         .frozen = {frozen, Bytes(0)},
         .name = "embedding and logits"},
        !context.recipe.forward_only);
  for (int i = 0; i < range.last - range.first; ++i) {
    const int place = forward ? range.first + i : range.last - 1 - i;
    if (is_root(context, options, place)) continue;
    const models::LayerWork& layer = context.layer(place);
    // A layer that is dropped after its pass is gathered by each place that reads it.
    add({.enters = place,
         .leaves = place,
         .parameters = {layer.parameters, layer.expert_parameters},
         .frozen = frozen_bytes(layer.frozen, context.recipe),
         .name = place_sign(place)},
        is_kept(context, options, place));
  }
  return units;
}

std::vector<GatherUnit> bucket_units(const ReplicaContext& context, const GatherOptions& options) {
  std::vector<GatherUnit> units;
  const ChainRange range = context.range;
  int first = range.first;
  ByGroup parameters = {};
  for (int place = range.first; place < range.last; ++place) {
    for (std::size_t i = 0; i < parameters.size(); ++i)
      parameters[i] += context.updated_at(context.groups[i], place);
    const std::int64_t all = parameters[0] + parameters[1];
    const bool full =
        all * size_of(context.recipe.precision.gradients) >= context.plan.data_parallel.bucket_size;
    if (all == 0 || (!full && place + 1 < range.last)) continue;
    units.push_back({.enters = first,
                     .leaves = place,
                     .parameters = parameters,
                     .frozen = {},
                     .gathers = true,
                     .stream = stream_of_unit(units.size(), options),
                     .name = place_sign(first)});
    first = place + 1;
    parameters = {};
  }
  return units;
}

}  // namespace trainyard::plan
