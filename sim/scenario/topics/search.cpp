// /search: keys, values and limits as written.
#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "sim/base/text.h"
#include "sim/json/reader.h"
#include "sim/scenario/topics/assemble.h"

namespace trainyard::scenario {

using json::Kind;
using json::Value;

std::string_view name(Objective objective) {
  for (const json::Choice<Objective>& choice : kObjectives)
    if (choice.value == objective) return choice.name;
  return "";
}

std::string pointer_of_key(std::string_view key) {
  std::string pointer(key);
  if (pointer.starts_with('/')) return pointer;
  std::replace(pointer.begin(), pointer.end(), '.', '/');
  return "/" + pointer;
}

bool overlap(std::string_view a, std::string_view b) {
  if (a.size() > b.size()) std::swap(a, b);
  return b.starts_with(a) && (a.size() == b.size() || b[a.size()] == '/');
}

void visit_fields(json::Fields& f, AtLeastAtMost& s) {
  f.field("at_least", s.at_least, json::at_least(1), "No less.");
  f.field("at_most", s.at_most, json::at_least(1), "No more.");
}

void visit_fields(json::Fields& f, SearchConstraints& s) {
  f.field("memory", s.memory, json::positive,
          "The most that a GPU may hold at its peak. Default: what it has.");
  f.field("step_time", s.step_time, json::positive, "The longest that a step may take.");
  f.section("batch", s.batch, json::optional,
            "What training.global_batch may be, where an axis varies it.");
  f.accepted("fixed", "Keys, as --set writes them, with the value that all configurations have.");
}

void visit_fields(json::Fields& f, SearchSection& s) {
  f.choice("objective", s.objective, kObjectives, json::optional,
           "What is made as small as can be; of two the Pareto front is found.", true);
  f.accepted("axes",
             "Keys, as --set writes them, each with the values to try: a list, a range {\"from\": "
             "1, \"to\": 8, \"times\": 2} (or \"plus\"), or \"auto\" for all that are valid. "
             "Default: the degrees of parallelism, micro-batch, recomputation and sharding.");
  f.section("constraints", s.constraints, json::optional, "What a configuration must keep.");
  f.field("best", s.best, json::optional, json::between(1, 1000),
          "How many configurations are ranked.");
}

namespace {

constexpr const char* kAxes = "/search/axes";
constexpr const char* kFixed = "/search/constraints/fixed";
constexpr std::size_t kMostValues = 10'000;

// What a configuration of a search cannot change.
constexpr std::array<std::string_view, 9> kKept = {"version", "name",     "label",
                                                   "extends", "variants", "baseline",
                                                   "outputs", "search",   "other_jobs"};

// A key of the format, or one of an object whose keys it does not know.
void check_key(const std::string& key, const std::string& at, Findings& findings) {
  const std::string pointer = pointer_of_key(key);
  const std::vector<std::string> tokens = json::split_pointer(pointer);
  if (tokens.empty() || tokens.front().empty())
    return findings.error(at, "expected a key of the scenario, e.g. parallelism.tp");
  if (std::find(kKept.begin(), kKept.end(), tokens.front()) != kKept.end())
    return findings.error(at, fmt::format("a search cannot change \"{}\"", tokens.front()));
  static const json::KeyIndex known = scenario_keys();
  const std::string section = pointer.substr(0, pointer.rfind('/'));
  std::vector<std::string_view> beside;
  for (const json::KnownKey& own : known) {
    if (own.section != section) continue;
    if (own.key == tokens.back()) return;
    beside.push_back(own.key);
  }
  const auto near = find_nearest(tokens.back(), beside);
  findings.error(at, fmt::format("\"{}\" is no key of a scenario", key),
                 near ? fmt::format("did you mean \"{}\"?", *near) : "");
}

// from, from + plus or from * times, ... up to `to`.
std::vector<Value> range(const Value& written, const std::string& at, Findings& findings) {
  const auto number = [&](const char* key) {
    const Value* value = written.find(key);
    return value != nullptr ? json::find_integer(*value) : std::nullopt;
  };
  const auto from = number("from"), to = number("to"), plus = number("plus"),
             times = number("times");
  const bool known = written.members.size() == 3;
  const bool is_range = known && from && to && plus.has_value() != times.has_value();
  if (!from && !to && !plus && !times) {
    findings.error(at, "an axis is a whole key with its values",
                   R"(write {"axes": {"parallelism.tp": [1, 2]}}, with the dots in the key)");
    return {};
  }
  if (!is_range) {
    findings.error(at, "a range has \"from\", \"to\" and one of \"plus\" and \"times\"",
                   R"({"from": 1, "to": 8, "times": 2})");
    return {};
  }
  if (*from > *to || (plus && *plus < 1) || (times && (*times < 2 || *from < 1))) {
    findings.error(at, fmt::format("the range from {} to {} has no end, or no value", *from, *to));
    return {};
  }
  std::vector<Value> values;
  for (std::int64_t value = *from; value <= *to && values.size() <= kMostValues;) {
    values.push_back(Value::of(value));
    values.back().at = written.at;
    if (times && value > *to / *times) break;
    value = times ? value * *times : value + *plus;
  }
  return values;
}

SearchAxis axis_of(const json::Member& member, const std::string& at, Findings& findings) {
  SearchAxis axis{member.key, pointer_of_key(member.key), false, {}, member.at};
  check_key(member.key, at, findings);
  const Value& written = member.value;
  if (written.is(Kind::string) && written.text == "auto") {
    axis.automatic = true;
  } else if (written.is(Kind::array)) {
    axis.values = written.items;
  } else if (written.is(Kind::object)) {
    axis.values = range(written, at, findings);
    if (axis.values.empty()) return axis;
  } else {
    findings.error(at, fmt::format("expected values to try, got {}", json::quoted(written)),
                   "write a list, a range or \"auto\"");
    return axis;
  }
  if (!axis.automatic && axis.values.empty())
    findings.error(at, "the axis has no value", "write a list, a range or \"auto\"");
  if (axis.values.size() > kMostValues)
    findings.error(at, fmt::format("more than {} values", kMostValues));
  std::set<std::string> seen;
  for (const Value& value : axis.values) {
    const std::optional<double> number = json::find_number(value);
    const std::string text = json::to_text(value, -1);
    if (!seen.insert(number ? fmt::format("{}", *number) : text).second)
      findings.error(at, fmt::format("{} stands twice", text));
  }
  return axis;
}

void read_axes(const Value* axes, SearchSpec& spec, Findings& findings) {
  if (axes == nullptr) return;
  if (!axes->is(Kind::object))
    return findings.error(kAxes, fmt::format("expected an object, got {}", json::quoted(*axes)));
  if (axes->members.empty()) return findings.error(kAxes, "there is no axis");
  for (const json::Member& member : axes->members) {
    const std::string at = fmt::format("{}/{}", kAxes, json::escape_pointer(member.key));
    SearchAxis axis = axis_of(member, at, findings);
    for (const SearchAxis& other : spec.axes)
      if (overlap(axis.pointer, other.pointer))
        findings.error(at, fmt::format("\"{}\" is varied by \"{}\" too", axis.key, other.key));
    spec.axes.push_back(std::move(axis));
  }
}

void read_fixed(const Value* fixed, SearchSpec& spec, Findings& findings) {
  if (fixed == nullptr) return;
  if (!fixed->is(Kind::object))
    return findings.error(kFixed, fmt::format("expected an object, got {}", json::quoted(*fixed)));
  for (const json::Member& member : fixed->members) {
    const std::string at = fmt::format("{}/{}", kFixed, json::escape_pointer(member.key));
    check_key(member.key, at, findings);
    SearchFixed own{pointer_of_key(member.key), member.value};
    for (const SearchAxis& axis : spec.axes)
      if (overlap(own.pointer, axis.pointer))
        findings.error(
            at, fmt::format("\"{}\" is fixed, and the axis \"{}\" varies it", member.key, axis.key),
            "take one of them away");
    for (const SearchFixed& other : spec.fixed)
      if (overlap(own.pointer, other.pointer))
        findings.error(at, fmt::format("\"{}\" is fixed by {} too", member.key, other.pointer),
                       "take one of them away");
    spec.fixed.push_back(std::move(own));
  }
}

void check_objectives(const SearchSpec& spec, const Scenario& scenario, Findings& findings) {
  constexpr const char* kAt = "/search/objective";
  const std::vector<Objective>& objectives = spec.objectives;
  if (objectives.empty() || objectives.size() > 2)
    findings.error(kAt, "one objective is minimised, or two make a Pareto front");
  if (objectives.size() == 2 && objectives[0] == objectives[1])
    findings.error(kAt, fmt::format("\"{}\" stands twice", name(objectives[0])));
  const bool varies = std::any_of(spec.axes.begin(), spec.axes.end(), [](const SearchAxis& axis) {
    return overlap(axis.pointer, "/training/global_batch");
  });
  for (const Objective objective : objectives) {
    const bool needs_length =
        objective == Objective::training_time || objective == Objective::dollars;
    if (needs_length && scenario.length.samples <= 0)
      findings.error(kAt,
                     fmt::format("\"{}\" needs to know how long the training is", name(objective)),
                     "set training.tokens, samples or epochs");
    if (objective == Objective::dollars && !scenario.length.gpu_hour)
      findings.error(kAt, "\"dollars\" needs a price", "set cost.gpu_hour or cost.server_hour");
    if (objective == Objective::energy && scenario.cluster.server.gpu.busy_power <= Watts(0))
      findings.error(kAt, "\"energy\" needs the power of the GPU",
                     "set cluster.node.gpu.power.busy");
    if (varies && (objective == Objective::step_time || objective == Objective::energy))
      findings.error(
          kAt, fmt::format("the batch varies, and the smallest has the least {}", name(objective)),
          "ask for training_time or dollars, which count the steps");
  }
}

void check_constraints(const SearchSpec& spec, const Scenario& scenario, Findings& findings) {
  const std::string at = "/search/constraints";
  const Bytes gpu = scenario.cluster.server.gpu.memory;
  if (spec.memory && gpu > Bytes(0) && *spec.memory > gpu)
    findings.error(at + "/memory", fmt::format("{} are more than a GPU has, {}",
                                               to_text(*spec.memory), to_text(gpu)));
  const auto least = spec.least_batch, most = spec.most_batch;
  if (least && most && *least > *most)
    findings.error(at + "/batch",
                   fmt::format("no batch is at least {} and at most {}", *least, *most));
  const auto named = [](const auto& list) {
    return std::any_of(list.begin(), list.end(), [](const auto& own) {
      return overlap(own.pointer, "/training/global_batch");
    });
  };
  const std::int64_t own = scenario.recipe.global_batch;
  const bool stays = !named(spec.axes) && !named(spec.fixed);
  if (stays && ((least && own < *least) || (most && own > *most)))
    findings.error(at + "/batch", fmt::format("the batch is {} in all configurations", own),
                   "make an axis of training.global_batch");
}

}  // namespace

SearchSpec assemble_search(const SearchSection& section, const Scenario& scenario,
                           Findings& findings) {
  SearchSpec spec;
  spec.objectives = section.objective;
  spec.memory = section.constraints.memory;
  spec.step_time = section.constraints.step_time;
  spec.least_batch = section.constraints.batch.at_least;
  spec.most_batch = section.constraints.batch.at_most;
  spec.best = static_cast<std::size_t>(section.best);
  read_axes(json::find(scenario.document, kAxes), spec, findings);
  read_fixed(json::find(scenario.document, kFixed), spec, findings);
  check_objectives(spec, scenario, findings);
  check_constraints(spec, scenario, findings);
  return spec;
}

}  // namespace trainyard::scenario
