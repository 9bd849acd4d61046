#include "sim/scenario/software.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

#include "sim/base/text.h"
#include "sim/json/parse.h"
#include "sim/json/reader.h"
#include "sim/scenario/path_guard.h"

namespace trainyard::scenario {
namespace {

using json::Kind;
using json::Value;

constexpr const char* kFolder = "software";
constexpr std::array<std::pair<std::string_view, std::string_view>, 2> kOtherNames = {
    {{"deepspeed-zero", "deepspeed"}, {"axolotl", "hf-trainer"}}};

void error(std::vector<Diagnostic>& diagnostics, const json::Place& at, std::string message,
           std::string hint = {}) {
  diagnostics.push_back(
      {Severity::error, at.position(), "/software", std::move(message), std::move(hint)});
}

std::string cure(const std::string& name, const std::string& configs) {
  std::vector<std::string_view> others;
  for (const auto& [other, usual] : kOtherNames)
    others.push_back(other);
  const std::vector<std::string_view> near = near_names(name, others, 1);
  if (!near.empty()) return fmt::format("nearest: {}", near.front());
  return cure_of_preset(name, configs, kFolder);
}

// The file of the software that a scenario names; empty: none, or it is reported.
std::string file_of(const Value& scenario, const Places& places,
                    std::vector<Diagnostic>& diagnostics) {
  const Value* name = scenario.find("software");
  if (name == nullptr || !name->is(Kind::string)) return "";
  const std::string path = software_file(name->text, places.configs);
  if (!path.empty()) return preset_stays(path, *name, "/software", places, diagnostics) ? path : "";
  error(diagnostics, name->at, fmt::format("unknown software {}", json::quoted(*name)),
        cure(name->text, places.configs));
  return "";
}

// "above": the number is; a list: the value is one of it, null where nothing is said.
bool holds(const Value& wanted, const Value* said) {
  if (wanted.is(Kind::array))
    return std::any_of(wanted.items.begin(), wanted.items.end(), [&](const Value& one) {
      return said != nullptr ? json::same(one, *said) : one.is(Kind::null);
    });
  if (said == nullptr) return false;
  const Value* above = wanted.find("above");
  const std::optional<double> bound = above != nullptr ? find_number(*above) : std::nullopt;
  const std::optional<double> number = find_number(*said);
  return bound && number && *number > *bound;
}

bool is_condition(const Value& wanted) {
  if (wanted.is(Kind::array)) return !wanted.items.empty();
  const Value* above = wanted.find("above");
  return wanted.is(Kind::object) && wanted.members.size() == 1 && above != nullptr &&
         find_number(*above).has_value();
}

// A row of the file: {"key": POINTER, "value": ..., "when": {POINTER: [...]}, "source": TEXT}.
struct Habit {
  std::string key, source;
  const Value* value = nullptr;
  const Value* when = nullptr;
};

std::optional<Habit> habit_of(const Value& row, std::vector<Diagnostic>& diagnostics) {
  const Value* key = row.find("key");
  const Value* source = row.find("source");
  Habit habit;
  habit.value = row.find("value");
  habit.when = row.find("when");
  const bool has_all = key != nullptr && key->is(Kind::string) && key->text.starts_with('/') &&
                       source != nullptr && source->is(Kind::string) && habit.value != nullptr;
  const bool known = std::all_of(row.members.begin(), row.members.end(), [](const auto& member) {
    return member.key == "key" || member.key == "value" || member.key == "when" ||
           member.key == "source";
  });
  const bool conditions =
      habit.when == nullptr ||
      (habit.when->is(Kind::object) &&
       std::all_of(habit.when->members.begin(), habit.when->members.end(),
                   [](const json::Member& member) { return is_condition(member.value); }));
  if (!has_all || !known || !conditions) {
    error(diagnostics, row.at, "a habit has key, value and source, and may have conditions",
          R"({"key": "/training/execution", "value": "eager", "source": "...",)"
          R"( "when": {"/parallelism/pp": {"above": 1}}})");
    return std::nullopt;
  }
  habit.key = key->text;
  habit.source = source->text;
  return habit;
}

bool says(const Value& scenario, std::string_view pointer, const Value& wanted) {
  const Value* said = json::find(scenario, pointer);
  return said != nullptr && json::same(*said, wanted);
}

// Whether there is what the habit is about. A forward pass alone has no gradients and no states, so
// that of replicas only what divides weights means something; where nothing is updated, or servers
// do it with the sum as it is, nothing is clipped.
bool has_its_subject(const Habit& habit, const Value& scenario) {
  constexpr std::array<std::string_view, 4> kOfBackwardPasses = {
      "/training/recompute", "/training/offload", "/training/gradient_clipping",
      "/training/optimizer/gradient_passes"};
  constexpr std::array<std::string_view, 3> kDivideWeights = {"fsdp", "hsdp", "zero3"};
  const std::string_view key = habit.key;
  if (says(scenario, "/training/forward_only", Value::of(true))) {
    const auto is_of = [&](std::string_view pointer) { return key.starts_with(pointer); };
    if (std::any_of(kOfBackwardPasses.begin(), kOfBackwardPasses.end(), is_of)) return false;
    if (key == "/parallelism/data_parallel/kind")
      return std::find(kDivideWeights.begin(), kDivideWeights.end(), habit.value->text) !=
             kDivideWeights.end();
  }
  return key != "/training/gradient_clipping" ||
         (!says(scenario, "/training/optimizer/type", Value::of("none")) &&
          !says(scenario, "/parallelism/data_parallel/kind", Value::of("parameter_server")));
}

bool is_wanted(const Habit& habit, const Value& scenario) {
  if (json::find(scenario, habit.key) != nullptr) return false;
  if (!has_its_subject(habit, scenario)) return false;
  return habit.when == nullptr ||
         std::all_of(habit.when->members.begin(), habit.when->members.end(),
                     [&](const json::Member& member) {
                       return holds(member.value, json::find(scenario, member.key));
                     });
}

// Calls use(habit) for every row of a file of software; an empty path: none.
template <class Use>
void for_each_habit(const std::string& path, const Places& places,
                    std::vector<Diagnostic>& diagnostics, const Use& use) {
  if (path.empty()) return;
  const std::shared_ptr<const Value> file =
      places.files ? places.files->read(path, diagnostics)
                   : std::make_shared<const Value>(json::parse_file(path, diagnostics));
  const Value* habits = file->find("habits");
  if (habits == nullptr || !habits->is(Kind::array)) {
    if (!file->is(Kind::null)) error(diagnostics, file->at, "software is a list \"habits\"");
    return;
  }
  for (const Value& row : habits->items)
    if (const std::optional<Habit> habit = habit_of(row, diagnostics)) use(*habit);
}

bool stands_in(const Value& value, const std::string& path) {
  return value.at.file && *value.at.file == path;
}

// What is empty without its habits was made for them.
bool forget(Value& object, const std::string& path) {
  bool found = false;
  std::erase_if(object.members, [&](json::Member& member) {
    if (stands_in(member.value, path)) return found = true;
    if (!member.value.is(Kind::object) || !forget(member.value, path)) return false;
    found = true;
    return member.value.members.empty();
  });
  return found;
}

}  // namespace

std::string software_file(const std::string& name, const std::string& configs) {
  if (name.find_first_of("/\\") != std::string::npos) return "";
  if (std::string own = preset_path(configs, kFolder, name); is_file(own)) return own;
  for (const auto& [other, usual] : kOtherNames)
    if (name == other) return preset_path(configs, kFolder, std::string(usual));
  return "";
}

void apply_software(Value& scenario, const Places& places, std::vector<Diagnostic>& diagnostics) {
  const std::string path = file_of(scenario, places, diagnostics);
  Value* name = scenario.find("software");
  if (path.empty() && name != nullptr && name->is(Kind::string)) name->refused = true;
  for_each_habit(path, places, diagnostics, [&](const Habit& habit) {
    if (is_wanted(habit, scenario)) json::set(scenario, habit.key, *habit.value);
  });
}

void forget_software(Value& scenario, const Places& places) {
  std::vector<Diagnostic> known;  // reported when they were applied
  const std::string path = file_of(scenario, places, known);
  if (!path.empty()) forget(scenario, path);
}

std::vector<Assumption> habits_in_force(const Value& scenario, const Places& places) {
  std::vector<Diagnostic> known;  // reported when they were applied
  std::vector<Assumption> habits;
  const std::string path = file_of(scenario, places, known);
  for_each_habit(path, places, known, [&](const Habit& habit) {
    const Value* set = json::find(scenario, habit.key);
    if (set == nullptr || !stands_in(*set, path) || set->at.line != habit.value->at.line) return;
    habits.push_back({habit.key, json::to_text(*set, -1), habit.source});
  });
  return habits;
}

}  // namespace trainyard::scenario
