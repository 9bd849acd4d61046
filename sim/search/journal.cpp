#include "sim/search/journal.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <iterator>
#include <optional>

#include "sim/base/text.h"
#include "sim/base/version.h"
#include "sim/json/parse.h"
#include "sim/scenario/gpu_origin.h"
#include "sim/scenario/loaded.h"
#include "sim/scenario/sources.h"

namespace trainyard::search {

using json::Value;

namespace {

// Below these a scenario names files: profiles, networks, presets, habits.
constexpr std::array kNaming = {"/model", "/cluster", "/software"};

// FNV-1a, 64 bits.
class Digest {
 public:
  void add(std::string_view text) {
    for (const char c : text)
      value_ = (value_ ^ static_cast<unsigned char>(c)) * 0x100000001B3ULL;
    value_ = (value_ ^ 0xFF) * 0x100000001B3ULL;
  }
  // Nothing where it cannot be read, which is reported where it is used.
  void add_file(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    add(std::string(std::istreambuf_iterator<char>(file), {}));
  }
  std::string text() const { return fmt::format("{:016x}", value_); }

 private:
  std::uint64_t value_ = 0xCBF29CE484222325ULL;
};

[[noreturn]] void refuse(const std::string& file, int line, std::string message,
                         std::string hint = {}) {
  Diagnostic diagnostic;
  diagnostic.at = {file, line, 1};
  diagnostic.message = std::move(message);
  diagnostic.hint = std::move(hint);
  throw ScenarioError({std::move(diagnostic)});
}

Value numbers(const std::vector<double>& values) {
  Value list = Value::array();
  for (const double value : values)
    list.append(Value::of(value));
  return list;
}

std::vector<double> numbers_of(const Value* list) {
  std::vector<double> values;
  if (list == nullptr) return values;
  for (const Value& item : list->items)
    values.push_back(json::find_number(item).value_or(0));
  return values;
}

std::optional<std::int64_t> integer(const Value& object, const char* key) {
  const Value* value = object.find(key);
  return value != nullptr ? json::find_integer(*value) : std::nullopt;
}

std::string word(const Value& object, const char* key) {
  const Value* value = object.find(key);
  return value != nullptr ? value->text : "";
}

std::optional<TrialResult> result_of(const Value* object) {
  if (object == nullptr) return std::nullopt;
  const auto step = integer(*object, "step_ps"), memory = integer(*object, "memory_bytes");
  const Value* mfu = object->find("mfu");
  const Value* breakdown = object->find("breakdown_ps");
  const bool whole = step && memory && mfu != nullptr && breakdown != nullptr &&
                     breakdown->items.size() == simulate::kTimeCategories;
  if (!whole) return std::nullopt;
  TrialResult result{Duration(*step), Bytes(*memory), json::find_number(*mfu).value_or(0), {}};
  for (std::size_t category = 0; category < simulate::kTimeCategories; ++category)
    result.breakdown[category] =
        Duration(json::find_integer(breakdown->items[category]).value_or(0));
  return result;
}

std::optional<Trial> trial_of(const Value& line) {
  const auto number = integer(line, "number");
  const std::optional<Verdict> verdict = find_verdict(word(line, "verdict"));
  if (!number || *number < 0 || !verdict) return std::nullopt;
  Trial trial;
  trial.number = static_cast<std::uint64_t>(*number);
  trial.verdict = *verdict;
  trial.why = word(line, "why");
  trial.least = numbers_of(line.find("least"));
  trial.least_memory = Bytes(integer(line, "least_memory_bytes").value_or(0));
  trial.least_step = Duration(integer(line, "least_step_ps").value_or(0));
  trial.causes = numbers_of(line.find("causes_s"));
  trial.result = result_of(line.find("result"));
  trial.objectives = numbers_of(line.find("objectives"));
  if (trial.verdict == Verdict::simulated && (!trial.result || trial.objectives.empty()))
    return std::nullopt;
  if (trial.verdict == Verdict::unwanted && trial.least_memory > Bytes(0) && !trial.result &&
      trial.least_step == Duration(0))
    return std::nullopt;  // of a version that did not say how long it is
  return trial;
}

// A scenario with what stands in no document of it.
void add(Digest& digest, const scenario::Scenario& scenario, const std::string& configs) {
  digest.add(json::to_text(scenario.document, -1));
  for (const std::string& profile : scenario::profile_files(scenario))
    digest.add_file(profile);
  if (!scenario.software.empty())
    digest.add_file(scenario::preset_path(configs, "software", scenario.software));
}

bool has_words(const Value& value) {
  return value.is(json::Kind::string) ||
         std::any_of(value.items.begin(), value.items.end(), has_words) ||
         std::any_of(value.members.begin(), value.members.end(),
                     [](const json::Member& member) { return has_words(member.value); });
}

// Files that a value of an axis names, as they are read where only that value is another.
void add_named(Digest& digest, const scenario::ScenarioSet& set, const Space& space) {
  std::optional<scenario::ChangedDocument> changed;
  const scenario::Places places{set.base.configs, set.base.root};
  for (const SpaceAxis& axis : space.axes()) {
    const bool may_name = std::any_of(kNaming.begin(), kNaming.end(), [&](const char* pointer) {
      return scenario::overlap(axis.pointer, pointer);
    });
    for (const Value& value : axis.values) {
      if (!may_name || !has_words(value)) continue;
      if (!changed) changed.emplace(set.written, places);
      Value patch = Value::object();
      json::set(patch, axis.pointer, value);
      scenario::spell_out_names(patch);
      scenario::Scenario scenario = changed->with(patch).scenario;
      scenario.take_place_of(set.base);
      if (scenario.document.is(json::Kind::object)) add(digest, scenario, places.configs);
    }
  }
}

JournalHead head_of(const Value& line, const std::string& file) {
  const auto size = integer(line, "configurations"), index = integer(line, "shard"),
             count = integer(line, "shards");
  if (line.find("search") == nullptr || !size || !index || !count || *index < 1 || *count < *index)
    refuse(file, 1, "this is no log of a search",
           "its first line says what was searched: write one with 'trainyard search --log'");
  return {word(line, "search"),
          word(line, "space"),
          static_cast<std::uint64_t>(*size),
          {static_cast<std::uint64_t>(*index - 1), static_cast<std::uint64_t>(*count)},
          line.find("exhaustive") != nullptr};
}

}  // namespace

JournalHead head_of(const scenario::ScenarioSet& set, const scenario::SearchSpec& spec,
                    const Space& space, const Shard& shard, bool exhaustive) {
  Digest digest;
  digest.add(kVersion);
  add(digest, set.base, set.base.configs);
  add_named(digest, set, space);
  for (const scenario::Objective objective : spec.objectives)
    digest.add(name(objective));
  digest.add(fmt::format("{}", spec.best));
  for (const SpaceAxis& axis : space.axes()) {
    digest.add(axis.pointer);
    for (const Value& value : axis.values)
      digest.add(json::to_text(value, -1));
  }
  return {set.base.name, digest.text(), space.size(), shard, exhaustive};
}

std::string to_line(const JournalHead& head) {
  Value line = Value::object();
  line.set("search", Value::of(head.name));
  line.set("space", Value::of(head.space));
  line.set("configurations", Value::of(static_cast<std::int64_t>(head.size)));
  line.set("shard", Value::of(static_cast<std::int64_t>(head.shard.index + 1)));
  line.set("shards", Value::of(static_cast<std::int64_t>(head.shard.count)));
  if (head.exhaustive) line.set("exhaustive", Value::of(true));
  return json::to_text(line, -1);
}

std::string to_line(const Trial& trial, const Space& space) {
  Value line = Value::object();
  line.set("number", Value::of(static_cast<std::int64_t>(trial.number)));
  Value set = Value::array();
  if (trial.verdict != Verdict::same && trial.verdict != Verdict::invalid)
    for (const std::string& option : space.sets(space.configuration(trial.number)))
      set.append(Value::of(option));
  if (!set.items.empty()) line.set("set", std::move(set));
  line.set("verdict", Value::of(name(trial.verdict)));
  if (!trial.why.empty()) line.set("why", Value::of(trial.why));
  if (!trial.least.empty()) line.set("least", numbers(trial.least));
  if (trial.least_memory > Bytes(0))
    line.set("least_memory_bytes", Value::of(trial.least_memory.count()));
  if (trial.least_step > Duration(0))
    line.set("least_step_ps", Value::of(trial.least_step.count()));
  if (!trial.causes.empty()) line.set("causes_s", numbers(trial.causes));
  if (!trial.objectives.empty()) line.set("objectives", numbers(trial.objectives));
  if (trial.result) {
    Value& result = line.set("result", Value::object());
    result.set("step_ps", Value::of(trial.result->step.count()));
    result.set("memory_bytes", Value::of(trial.result->memory.count()));
    result.set("mfu", Value::of(trial.result->mfu));
    Value& breakdown = result.set("breakdown_ps", Value::array());
    for (const Duration part : trial.result->breakdown)
      breakdown.append(Value::of(part.count()));
  }
  return json::to_text(line, -1);
}

Journal read_journal(std::string_view text, const std::string& file) {
  Journal journal;
  int number = 0;
  while (!text.empty()) {
    const std::size_t end = text.find('\n');
    if (end == std::string_view::npos) break;  // the search was stopped while it wrote this
    ++number;
    std::vector<Diagnostic> found;
    const Value line = json::parse_text(text.substr(0, end), file, found);
    if (number == 1) {
      journal.head = head_of(line, file);
    } else {
      std::optional<Trial> trial = found.empty() ? trial_of(line) : std::nullopt;
      if (!trial || trial->number >= journal.head.size)
        refuse(file, number, "this line is no configuration of the search",
               "cut the file before it, and --resume does the rest again");
      journal.trials.insert_or_assign(trial->number, std::move(*trial));
    }
    journal.whole += end + 1;
    text.remove_prefix(end + 1);
  }
  if (number == 0) refuse(file, 1, "this is no log of a search", "it has no whole line");
  return journal;
}

}  // namespace trainyard::search
