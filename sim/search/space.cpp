#include "sim/search/space.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>
#include <set>
#include <utility>

#include "sim/scenario/loaded.h"
#include "sim/scenario/sources.h"
#include "sim/search/set_text.h"

namespace trainyard::search {

using json::Value;
using scenario::SearchAxis;
using scenario::SearchSpec;

namespace {

constexpr std::array<const char*, 4> kDecisive = {"/model", "/cluster", "/training/global_batch",
                                                  "/training/sequence_length"};
constexpr std::size_t kMostDecisive = 4096;
constexpr std::size_t kMostChecked = 64;
constexpr std::size_t kMostProblems = 8;

constexpr std::uint64_t kCountless = std::numeric_limits<std::uint64_t>::max();

[[noreturn]] void refuse(const SearchAxis& axis, std::string message, std::string hint) {
  Diagnostic diagnostic;
  diagnostic.at = axis.at.position();
  diagnostic.pointer = "/search/axes/" + json::escape_pointer(axis.key);
  diagnostic.message = std::move(message);
  diagnostic.hint = std::move(hint);
  throw ScenarioError({std::move(diagnostic)});
}

// What the reader says of a value by itself, put where it stands; nothing where it can be read.
void add_problems(const scenario::ChangedDocument& changed, const std::string& pointer,
                  const Value& value, const std::string& place, std::vector<Diagnostic>& problems) {
  Value patch = Value::object();
  json::set(patch, pointer, value);
  scenario::spell_out_names(patch);
  const scenario::Loaded loaded = changed.with(patch);
  // Of what can be read all but unknown keys depends on the rest of the scenario.
  const bool is_read = loaded.scenario.document.is(json::Kind::object);
  for (Diagnostic problem : loaded.diagnostics) {
    if (!scenario::is_error(problem) || !scenario::overlap(problem.pointer, pointer)) continue;
    if (is_read && !problem.harmless) continue;
    if (problem.pointer.size() < pointer.size()) problem.pointer = pointer;
    problem.pointer = place + problem.pointer.substr(pointer.size());
    problem.at = value.at.position();
    if (value.is(json::Kind::string) && value.text == "auto")
      problem.hint = "\"auto\" stands for all values, where the list stands";
    problems.push_back(std::move(problem));
  }
}

// Values that no configuration could have, beside which others would be searched in vain.
void check_values(const scenario::ChangedDocument& changed, const SearchSpec& spec) {
  std::vector<Diagnostic> problems;
  for (const SearchAxis& axis : spec.axes) {
    // Of a long range the ends and some between.
    const std::size_t step = 1 + axis.values.size() / kMostChecked;
    for (std::size_t i = 0; i < axis.values.size() && problems.size() < kMostProblems; ++i)
      if (i % step == 0 || i + 1 == axis.values.size())
        add_problems(changed, axis.pointer, axis.values[i],
                     fmt::format("/search/axes/{}/{}", json::escape_pointer(axis.key), i),
                     problems);
  }
  for (const scenario::SearchFixed& fixed : spec.fixed)
    add_problems(changed, fixed.pointer, fixed.value, "/search/constraints/fixed" + fixed.pointer,
                 problems);
  if (!problems.empty()) throw ScenarioError(std::move(problems));
}

// What "auto" stands for follows from these.
bool decides_values(std::string_view pointer) {
  return std::any_of(kDecisive.begin(), kDecisive.end(),
                     [&](const char* key) { return scenario::overlap(pointer, key); });
}

// The scenarios that axes and fixed values make of what decides the values of others, each with all
// GPUs as replicas; the scenario itself where they leave that alone.
std::vector<scenario::Scenario> decisive_scenarios(const scenario::Scenario& base,
                                                   const scenario::ChangedDocument& changed,
                                                   const SearchSpec& spec) {
  std::vector<SpaceAxis> axes;
  for (const SearchAxis& axis : spec.axes)
    if (!axis.automatic && decides_values(axis.pointer))
      axes.push_back({axis.key, axis.pointer, axis.values});
  for (const scenario::SearchFixed& fixed : spec.fixed)
    if (decides_values(fixed.pointer))
      axes.push_back({fixed.pointer, fixed.pointer, {fixed.value}});
  if (axes.empty()) return {base};
  std::size_t size = 1;
  for (const SpaceAxis& axis : axes)
    size = std::min(size * std::min(axis.values.size(), kMostDecisive + 1), kMostDecisive + 1);
  const auto automatic = std::find_if(spec.axes.begin(), spec.axes.end(),
                                      [](const SearchAxis& axis) { return axis.automatic; });
  if (automatic == spec.axes.end() && !spec.axes.empty()) return {};
  if (size > kMostDecisive && automatic != spec.axes.end())
    refuse(
        *automatic,
        fmt::format("\"auto\" beside more than {} networks, clusters and batches", kMostDecisive),
        "list its values");
  std::vector<scenario::Scenario> scenarios;
  for (std::size_t number = 0; number < size; ++number) {
    Value patch = Value::object();
    json::set(patch, "/parallelism", Value::null());
    std::size_t left = number;
    for (const SpaceAxis& axis : axes) {
      json::set(patch, axis.pointer, axis.values[left % axis.values.size()]);
      left /= axis.values.size();
    }
    scenario::spell_out_names(patch);
    scenario::Loaded loaded = changed.with(patch);
    // One that cannot be read is refused where it is judged.
    if (loaded.scenario.document.is(json::Kind::object))
      scenarios.push_back(std::move(loaded.scenario));
  }
  return scenarios;
}

// Of any of the scenarios: numbers in order, words as they come.
std::vector<Value> automatic_values_of_any(const std::string& pointer,
                                           const std::vector<scenario::Scenario>& scenarios) {
  std::vector<Value> all;
  std::set<std::string> seen;
  for (const scenario::Scenario& scenario : scenarios)
    for (Value& value : automatic_values(pointer, scenario))
      if (seen.insert(json::to_text(value)).second) all.push_back(std::move(value));
  std::stable_sort(all.begin(), all.end(), [](const Value& a, const Value& b) {
    return json::find_integer(a).value_or(0) < json::find_integer(b).value_or(0);
  });
  return all;
}

std::vector<SearchAxis> usual_axes(const std::vector<scenario::Scenario>& scenarios,
                                   const SearchSpec& spec) {
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
    if (!is_fixed && !automatic_values_of_any(axis.pointer, scenarios).empty())
      axes.push_back(std::move(axis));
  }
  return axes;
}

SpaceAxis with_values(const SearchAxis& axis, const std::vector<scenario::Scenario>& scenarios) {
  SpaceAxis own{axis.key, axis.pointer, axis.values};
  if (!axis.automatic) return own;
  const std::vector<std::string> known = automatic_keys();
  std::string key = axis.pointer.substr(1);
  std::replace(key.begin(), key.end(), '/', '.');
  if (std::find(known.begin(), known.end(), key) == known.end())
    refuse(axis, fmt::format("\"auto\" is not known for \"{}\"", axis.key),
           fmt::format("list its values; \"auto\" is for {}", fmt::join(known, ", ")));
  own.values = automatic_values_of_any(axis.pointer, scenarios);
  if (own.values.empty())
    refuse(axis, fmt::format("no value of \"{}\" is valid for this network and cluster", axis.key),
           "take the axis away");
  return own;
}

}  // namespace

Space::Space(const scenario::ScenarioSet& set, const SearchSpec& spec)
    : base_(set.base), written_(set.written), fixed_(spec.fixed) {
  const scenario::ChangedDocument changed(set.written,
                                          scenario::Places{set.base.configs, set.base.root});
  check_values(changed, spec);
  const std::vector<scenario::Scenario> scenarios = decisive_scenarios(base_, changed, spec);
  for (const SearchAxis& axis : spec.axes.empty() ? usual_axes(scenarios, spec) : spec.axes)
    axes_.push_back(with_values(axis, scenarios));
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

bool Space::is_idle(const std::string& pointer, const Value& value,
                    const ChosenDegrees& degrees) const {
  const auto below = [&](std::string_view above) {
    return pointer.starts_with(above) && scenario::overlap(pointer, above);
  };
  // The one key of the pipeline that means something without stages.
  const bool overlaps = pointer == "/parallelism/pipeline/overlap_passes" ||
                        (pointer == "/parallelism/pipeline" && value.is(json::Kind::object) &&
                         value.find("overlap_passes") != nullptr);
  if (below("/parallelism/pipeline")) return degrees.pipeline == 1 && !overlaps;
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
  for (std::size_t axis = 0; axis < axes_.size(); ++axis) {
    const auto idle = [&](std::size_t value) {
      return is_idle(axes_[axis].pointer, axes_[axis].values[value], degrees);
    };
    const std::size_t own = configuration.values[axis];
    configuration.same = configuration.same || (own > 0 && idle(0) && idle(own));
  }
  return configuration;
}

std::vector<scenario::SearchFixed> Space::said(const Configuration& configuration) const {
  constexpr const char* kSequence = "/parallelism/sequence_parallel";
  const ChosenDegrees degrees = this->degrees(configuration.values);
  std::vector<scenario::SearchFixed> said;
  const auto say = [&](const std::string& pointer, const Value& value) {
    said.push_back({pointer, is_idle(pointer, value, degrees) ? Value::null() : value});
  };
  if (drops_data_) say("/parallelism/dp", Value::null());
  // Which a file may not ask for without tensor parallelism.
  if (is_idle(kSequence, Value::null(), degrees)) say(kSequence, Value::null());
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
// not. `written`: what the file says there; may be null.
void add_sets(const std::string& pointer, const Value& value, const Value* written,
              std::vector<std::string>& sets) {
  const bool merges = written != nullptr && written->is(json::Kind::object);
  if (value.is(json::Kind::object) && (merges || !value.members.empty())) {
    for (const json::Member& member : value.members)
      add_sets(fmt::format("{}/{}", pointer, json::escape_pointer(member.key)), member.value,
               merges ? written->find(member.key) : nullptr, sets);
    return;
  }
  sets.push_back(set_text(pointer, value));
}

// A name is spelled out where it is merged with what else the file says there.
Value merged_with(const Value& value, const std::string& pointer, const Value* written) {
  if (!value.is(json::Kind::string) || written == nullptr || !written->is(json::Kind::object) ||
      written->members.size() == (written->find("preset") != nullptr ? 1U : 0U))
    return value;
  Value patch = Value::object();
  json::set(patch, pointer, value);
  scenario::spell_out_names(patch);
  return *json::find(patch, pointer);
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
    const Value* written = json::find(written_, own.pointer);
    add_sets(own.pointer, merged_with(own.value, own.pointer, written), written, sets);
  }
  return sets;
}

}  // namespace trainyard::search
