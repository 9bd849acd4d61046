#include "sim/search/space.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>
#include <set>
#include <utility>

#include "sim/scenario/sources.h"
#include "sim/search/set_text.h"

namespace trainyard::search {

using json::Value;
using scenario::SearchAxis;
using scenario::SearchSpec;

namespace {

constexpr std::uint64_t kCountless = std::numeric_limits<std::uint64_t>::max();

[[noreturn]] void refuse(const SearchAxis& axis, std::string message, std::string hint) {
  Diagnostic diagnostic;
  diagnostic.at = axis.at.position();
  diagnostic.pointer = "/search/axes/" + json::escape_pointer(axis.key);
  diagnostic.message = std::move(message);
  diagnostic.hint = std::move(hint);
  throw ScenarioError({std::move(diagnostic)});
}

std::vector<SearchAxis> usual_axes(const scenario::Scenario& scenario, const SearchSpec& spec) {
  std::vector<SearchAxis> axes;
  for (const std::string& key :
       {std::string("parallelism.tp"), std::string("parallelism.pp"), std::string("parallelism.ep"),
        std::string("training.micro_batch"), std::string("training.recompute"),
        std::string("parallelism.sequence_parallel"),
        std::string("parallelism.data_parallel.kind")}) {
    SearchAxis axis;
    axis.key = key;
    axis.pointer = scenario::pointer_of_key(key);
    axis.automatic = true;
    const bool is_fixed =
        std::any_of(spec.fixed.begin(), spec.fixed.end(), [&](const scenario::SearchFixed& own) {
          return scenario::overlap(own.pointer, axis.pointer);
        });
    if (!is_fixed && !automatic_values(axis.pointer, scenario).empty())
      axes.push_back(std::move(axis));
  }
  return axes;
}

SpaceAxis with_values(const SearchAxis& axis, const scenario::Scenario& scenario) {
  SpaceAxis own{axis.key, axis.pointer, axis.values};
  if (!axis.automatic) return own;
  const std::vector<std::string> known = automatic_keys();
  std::string key = axis.pointer.substr(1);
  std::replace(key.begin(), key.end(), '/', '.');
  if (std::find(known.begin(), known.end(), key) == known.end())
    refuse(axis, fmt::format("\"auto\" is not known for \"{}\"", axis.key),
           fmt::format("list its values; \"auto\" is for {}", fmt::join(known, ", ")));
  own.values = automatic_values(axis.pointer, scenario);
  if (own.values.empty())
    refuse(axis, fmt::format("no value of \"{}\" is valid for this network and cluster", axis.key),
           "take the axis away");
  return own;
}

}  // namespace

Space::Space(const scenario::ScenarioSet& set, const SearchSpec& spec)
    : base_(set.base), fixed_(spec.fixed) {
  for (const SearchAxis& axis : spec.axes.empty() ? usual_axes(base_, spec) : spec.axes)
    axes_.push_back(with_values(axis, base_));
  const auto is_said = [&](std::string_view pointer) {
    const auto says = [&](const auto& own) { return scenario::overlap(own.pointer, pointer); };
    return std::any_of(axes_.begin(), axes_.end(), says) ||
           std::any_of(fixed_.begin(), fixed_.end(), says);
  };
  drops_data_ = !is_said("/parallelism/dp");
  if (!is_said("/cluster")) gpus_ = base_.plan.degrees.world_size();
}

std::uint64_t Space::size() const {
  std::uint64_t size = 1;
  for (const SpaceAxis& axis : axes_)
    if (__builtin_mul_overflow(size, axis.values.size(), &size)) return kCountless;
  return size;
}

std::string Space::sizes() const {
  std::string text;
  for (const SpaceAxis& axis : axes_)
    text += fmt::format("{}{} {}", text.empty() ? "" : " x ", axis.key, axis.values.size());
  return text;
}

std::vector<std::size_t> Space::values_of(std::uint64_t number) const {
  std::vector<std::size_t> values(axes_.size());
  for (std::size_t axis = axes_.size(); axis-- > 0;) {
    values[axis] = static_cast<std::size_t>(number % axes_[axis].values.size());
    number /= axes_[axis].values.size();
  }
  return values;
}

ChosenDegrees Space::degrees(const std::vector<std::size_t>& values) const {
  ChosenDegrees degrees{base_.plan.degrees.tensor,
                        base_.plan.degrees.context,
                        base_.plan.degrees.pipeline,
                        base_.plan.experts.ranks,
                        {}};
  const auto take = [&](const std::string& pointer, const Value& value) {
    const std::optional<std::int64_t> number = json::find_integer(value);
    if (!number) return;
    if (pointer == "/parallelism/tp") degrees.tensor = *number;
    if (pointer == "/parallelism/cp") degrees.context = *number;
    if (pointer == "/parallelism/pp") degrees.pipeline = *number;
    if (pointer == "/parallelism/ep") degrees.expert = *number;
    if (pointer == "/parallelism/dp") degrees.data = *number;
  };
  for (const scenario::SearchFixed& fixed : fixed_)
    take(fixed.pointer, fixed.value);
  for (std::size_t axis = 0; axis < axes_.size(); ++axis)
    take(axes_[axis].pointer, axes_[axis].values[values[axis]]);
  return degrees;
}

bool Space::is_idle(const std::string& pointer, const ChosenDegrees& degrees) const {
  const auto below = [&](std::string_view above) {
    return pointer.starts_with(above) && scenario::overlap(pointer, above);
  };
  if (below("/parallelism/pipeline")) return degrees.pipeline == 1;
  if (below("/parallelism/sequence_parallel") || below("/parallelism/tensor_parallel"))
    return degrees.tensor == 1;
  if (below("/parallelism/context_parallel")) return degrees.context == 1;
  if (below("/parallelism/expert_parallel")) return degrees.expert == 1;
  if (!below("/parallelism/data_parallel") || gpus_ == 0) return false;
  return gpus_ == degrees.tensor * degrees.pipeline;  // cp shares parameters as dp does
}

Configuration Space::configuration(std::uint64_t number) const {
  Configuration configuration{values_of(number), false, {}};
  const ChosenDegrees degrees = this->degrees(configuration.values);
  const std::int64_t most = gpus_ > 0 ? gpus_ : std::int64_t{1} << 20;
  for (const std::int64_t degree : {degrees.tensor, degrees.context, degrees.pipeline,
                                    degrees.expert, degrees.data.value_or(1)})
    if (degree < 1 || degree > most)
      configuration.impossible = fmt::format("/parallelism: {} ranks of {} GPUs", degree, most);
  if (!configuration.impossible.empty()) return configuration;
  // Of numbers of GPUs, so that none of these products outgrows its type.
  if (gpus_ > 0) {
    const std::int64_t model = degrees.tensor * degrees.context * degrees.pipeline;
    const bool fits = degrees.data ? model * *degrees.data == gpus_ : gpus_ % model == 0;
    if (!fits)
      configuration.impossible =
          fmt::format("/parallelism: tp x cp x pp {} {} GPUs",
                      degrees.data ? "x dp are not all" : "do not divide the", gpus_);
    if (!fits) return configuration;
  }
  for (std::size_t axis = 0; axis < axes_.size(); ++axis)
    configuration.same = configuration.same ||
                         (configuration.values[axis] > 0 && is_idle(axes_[axis].pointer, degrees));
  return configuration;
}

std::vector<scenario::SearchFixed> Space::said(const Configuration& configuration) const {
  constexpr const char* kSequence = "/parallelism/sequence_parallel";
  const ChosenDegrees degrees = this->degrees(configuration.values);
  std::vector<scenario::SearchFixed> said;
  const auto say = [&](const std::string& pointer, const Value& value) {
    said.push_back({pointer, is_idle(pointer, degrees) ? Value::null() : value});
  };
  if (drops_data_) say("/parallelism/dp", Value::null());
  // Which a file may not ask for without tensor parallelism.
  if (is_idle(kSequence, degrees)) say(kSequence, Value::null());
  for (const scenario::SearchFixed& fixed : fixed_)
    say(fixed.pointer, fixed.value);
  for (std::size_t axis = 0; axis < axes_.size(); ++axis)
    say(axes_[axis].pointer, axes_[axis].values[configuration.values[axis]]);
  return said;
}

Value Space::patch(const Configuration& configuration) const {
  Value patch = Value::object();
  for (const scenario::SearchFixed& own : said(configuration))
    json::set(patch, own.pointer, own.value);
  scenario::spell_out_names(patch);
  return patch;
}

namespace {

// A value and where it goes; of an object each of its own, as a patch merges them and --set does
// not.
void add_sets(const std::string& pointer, const Value& value, std::vector<std::string>& sets) {
  if (value.is(json::Kind::object) && !value.members.empty()) {
    for (const json::Member& member : value.members)
      add_sets(fmt::format("{}/{}", pointer, json::escape_pointer(member.key)), member.value, sets);
    return;
  }
  sets.push_back(set_text(pointer, value));
}

}  // namespace

std::vector<std::string> Space::sets(const Configuration& configuration) const {
  std::vector<std::string> sets;
  std::set<std::string> taken_away;
  for (const scenario::SearchFixed& own : said(configuration)) {
    const bool is_null = own.value.is(json::Kind::null);
    if (is_null && (json::find(base_.document, own.pointer) == nullptr ||
                    !taken_away.insert(own.pointer).second))
      continue;
    add_sets(own.pointer, own.value, sets);
  }
  return sets;
}

}  // namespace trainyard::search
