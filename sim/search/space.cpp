#include "sim/search/space.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>
#include <utility>

#include "models/transformer/networks.h"
#include "sim/scenario/sources.h"

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

std::vector<SearchAxis> usual_axes(const scenario::Scenario& scenario) {
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
    if (!automatic_values(axis.pointer, scenario).empty()) axes.push_back(std::move(axis));
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
  for (const SearchAxis& axis : spec.axes.empty() ? usual_axes(base_) : spec.axes)
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

bool Space::is_idle(const SpaceAxis& axis, const ChosenDegrees& degrees) const {
  const auto below = [&](std::string_view pointer) {
    return axis.pointer.starts_with(pointer) && scenario::overlap(axis.pointer, pointer);
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
    configuration.same =
        configuration.same || (configuration.values[axis] > 0 && is_idle(axes_[axis], degrees));
  return configuration;
}

Value Space::plain_patch() const {
  Value patch = Value::object();
  if (drops_data_) json::set(patch, "/parallelism/dp", Value::null());
  for (const scenario::SearchFixed& fixed : fixed_)
    json::set(patch, fixed.pointer, fixed.value);
  return patch;
}

Value Space::patch(const Configuration& configuration) const {
  Value patch = plain_patch();
  const ChosenDegrees degrees = this->degrees(configuration.values);
  for (std::size_t axis = 0; axis < axes_.size(); ++axis) {
    const bool idle = is_idle(axes_[axis], degrees);
    json::set(patch, axes_[axis].pointer,
              idle ? Value::null() : axes_[axis].values[configuration.values[axis]]);
  }
  scenario::spell_out_names(patch);
  return patch;
}

std::vector<std::string> Space::sets(const Configuration& configuration) const {
  std::vector<std::string> sets;
  const ChosenDegrees degrees = this->degrees(configuration.values);
  const auto add = [&](const std::string& pointer, const Value& value) {
    std::string key = pointer.substr(1);
    if (key.find('.') != std::string::npos)
      key = pointer;
    else
      std::replace(key.begin(), key.end(), '/', '.');
    // A word is read as one unless it is JSON of another kind.
    const bool plain = value.is(json::Kind::string);
    sets.push_back(fmt::format("{}={}", key, plain ? value.text : json::to_text(value, -1)));
  };
  if (drops_data_ && json::find(base_.document, "/parallelism/dp") != nullptr)
    sets.emplace_back("parallelism.dp=null");
  for (const scenario::SearchFixed& fixed : fixed_)
    add(fixed.pointer, fixed.value);
  for (std::size_t axis = 0; axis < axes_.size(); ++axis) {
    const bool idle = is_idle(axes_[axis], degrees);
    if (!idle)
      add(axes_[axis].pointer, axes_[axis].values[configuration.values[axis]]);
    else if (json::find(base_.document, axes_[axis].pointer) != nullptr)
      add(axes_[axis].pointer, Value::null());
  }
  return sets;
}

}  // namespace trainyard::search
