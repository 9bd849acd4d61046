#include "sim/validation/records.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <map>
#include <span>
#include <string_view>
#include <utility>

#include "sim/base/text.h"
#include "sim/json/parse.h"
#include "sim/json/reader.h"
#include "sim/scenario/sources.h"

namespace trainyard::validation {
namespace {

using json::Kind;
using json::Value;

struct Unit {
  std::string_view name;
  double scale;
};
constexpr std::array<Unit, 3> kTimes = {{{"s", 1}, {"ms", 1e-3}, {"us", 1e-6}}};
constexpr std::array<Unit, 5> kSizes = {
    {{"B", 1}, {"MB", 1e6}, {"GB", 1e9}, {"MiB", 0x1p20}, {"GiB", 0x1p30}}};

constexpr std::array<std::string_view, 3> kStepTimes = {"step_time", "iteration_time",
                                                        "e2e_latency"};

struct MemoryMetric {
  std::string_view name;
  MemorySum sum;
};
constexpr std::array<MemoryMetric, 7> kMemories = {{
    {"allocated_memory", MemorySum::allocated},
    {"peak_allocated_memory", MemorySum::allocated},
    {"gpu_memory_alloc", MemorySum::allocated},
    {"gpu_memory", MemorySum::allocated},
    {"reserved_memory", MemorySum::reserved},
    {"peak_reserved_memory", MemorySum::reserved},
    {"device_memory", MemorySum::device},
}};

// Of a measured number in its unit: others are slips, and would make scores infinite.
bool is_plausible(double number) {
  return number >= 1e-9 && number <= 1e15;
}

std::string text_of(const Value& object, std::string_view key) {
  const Value* value = object.find(key);
  return value != nullptr && value->is(Kind::string) ? value->text : "";
}

bool has_word(std::string text, std::string_view word) {
  std::transform(text.begin(), text.end(), text.begin(), [](char c) {
    return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  });
  const std::size_t at = text.find(word);
  const auto is_letter = [&](std::size_t i) {
    return i < text.size() && text[i] >= 'a' && text[i] <= 'z';
  };
  return at != std::string::npos && !(at > 0 && is_letter(at - 1)) && !is_letter(at + word.size());
}

bool is_out_of_memory(std::string outcome) {
  std::replace_if(
      outcome.begin(), outcome.end(), [](char c) { return c == '-' || c == '_'; }, ' ');
  return has_word(outcome, "oom") || has_word(outcome, "out of memory");
}

// What a name that means nothing is a slip of, by a letter or two; empty: of nothing.
std::string_view slip_of(std::string_view name, std::span<const std::string_view> known) {
  constexpr int kSlip = 2;
  const bool is_known = std::any_of(known.begin(), known.end(), [&](std::string_view own) {
    return own == name || name.starts_with(std::string(own) + "_");
  });
  if (is_known) return {};
  const std::string_view near = find_nearest(name, known).value_or(std::string_view());
  return edit_distance(name, near) <= kSlip ? near : std::string_view();
}

std::vector<std::string_view> metric_names() {
  std::vector<std::string_view> names(kStepTimes.begin(), kStepTimes.end());
  for (const MemoryMetric& metric : kMemories)
    names.push_back(metric.name);
  names.emplace_back("outcome");
  return names;
}

// One record, read by hand: a record may say of the run whatever its source says.
class RecordReader {
 public:
  RecordReader(const Value& value, std::string pointer, std::vector<Diagnostic>& found)
      : value_(value), found_(found) {
    record_.at = value.at.position();
    record_.pointer = std::move(pointer);
  }

  // Nothing if it is wrong; or, then `unmeasured` grows, if it says that nothing was measured.
  std::optional<Record> read(std::size_t& unmeasured) {
    if (!value_.is(Kind::object)) {
      wrong(value_, "", fmt::format("expected an object, got {}", json::quoted(value_)),
            "a record has \"id\", \"scenario\" and \"metrics\"");
      return std::nullopt;
    }
    record_.name = text_of(value_, "id");
    if (record_.name.empty()) wrong(value_, "/id", "is required and missing", "name the record");
    refuse_slips();
    record_.group = text_of(value_, "group");
    std::string outcome = text_of(value_, "outcome");
    read_metrics(outcome);
    if (outcome.starts_with("failed") && !is_wrong_) {
      ++unmeasured;
      return std::nullopt;
    }
    record_.fits = !is_out_of_memory(outcome);
    if (!is_wrong_ && *record_.fits && !record_.seconds && !record_.memory)
      wrong(value_, "/metrics", "has neither a step_time nor a memory",
            "add {\"name\": \"step_time\", \"value\": 1.5, \"unit\": \"s\"}, or \"outcome\": \"out "
            "of memory\", or \"failed\" where nothing was measured");
    read_scenario();
    if (is_wrong_) return std::nullopt;
    return std::move(record_);
  }

 private:
  void wrong(const Value& value, std::string_view below, std::string message,
             std::string cure = {}) {
    is_wrong_ = true;
    found_.push_back({Severity::error, value.at.position(), record_.pointer + std::string(below),
                      std::move(message), std::move(cure)});
  }

  // Other keys are for people, but for those that are taken for one that counts.
  void refuse_slips() {
    constexpr std::array<std::string_view, 3> kOptional = {"group", "outcome", "metrics"};
    for (const json::Member& member : value_.members)
      if (const std::string_view meant = slip_of(member.key, kOptional); !meant.empty())
        wrong(member.value, "/" + member.key, "is no key that counts",
              fmt::format("write \"{}\", or another name", meant));
  }

  void read_scenario() {
    const Value* scenario = value_.find("scenario");
    if (scenario == nullptr) {
      wrong(value_, "/scenario", "is required and missing",
            "write what was measured as a scenario; calibrate/proof/compare.py --write makes it of "
            "what calibrate/proof/measure.py has measured");
    } else if (scenario->is(Kind::array) && !scenario->items.empty()) {
      for (std::size_t i = 0; i < scenario->items.size(); ++i)
        add_scenario(scenario->items[i], fmt::format("/scenario/{}", i));
    } else {
      add_scenario(*scenario, "/scenario");
    }
  }

  void add_scenario(const Value& scenario, const std::string& below) {
    if (scenario.is(Kind::object)) {
      record_.scenarios.push_back({scenario, record_.pointer + below});
      return;
    }
    wrong(scenario, below, fmt::format("expected an object, got {}", json::quoted(scenario)),
          R"(a file is named by {"extends": "FILE"})");
  }

  void read_metrics(std::string& outcome) {
    const Value* metrics = value_.find("metrics");
    if (metrics == nullptr) return;
    if (!metrics->is(Kind::array)) {
      wrong(*metrics, "/metrics", fmt::format("expected a list, got {}", json::quoted(*metrics)));
      return;
    }
    for (std::size_t i = 0; i < metrics->items.size(); ++i)
      read_metric(metrics->items[i], fmt::format("/metrics/{}", i), outcome);
  }

  void read_metric(const Value& metric, const std::string& below, std::string& outcome) {
    const std::string name = text_of(metric, "name");
    if (name.empty()) {
      wrong(metric, below, "is no metric", "write {\"name\": ..., \"value\": ..., \"unit\": ...}");
      return;
    }
    if (name == "outcome") outcome = text_of(metric, "value");
    if (const std::string_view meant = slip_of(name, metric_names()); !meant.empty())
      wrong(metric, below + "/name", fmt::format("no metric is called \"{}\"", name),
            fmt::format("write \"{}\", or another name", meant));
    if (std::find(kStepTimes.begin(), kStepTimes.end(), name) != kStepTimes.end()) {
      if (!record_.seconds)
        record_.seconds = amount(metric, below, kTimes);
      else if (name == time_)  // of two names for it the first counts
        wrong(metric, below, "is a second time of the step", "write a record for each measurement");
      if (time_.empty()) time_ = name;
    }
    const auto memory = std::find_if(kMemories.begin(), kMemories.end(),
                                     [&](const MemoryMetric& known) { return known.name == name; });
    if (memory == kMemories.end() || record_.memory) return;
    const Value* rank = metric.find("rank");
    if (rank != nullptr && find_number(*rank) != 0.0)
      wrong(*rank, below + "/rank",
            fmt::format("only rank 0 can be named, got {}", json::quoted(*rank)),
            "leave it out where the fullest GPU was measured");
    if (const std::optional<double> bytes = amount(metric, below, kSizes))
      record_.memory = MeasuredMemory{memory->sum, *bytes, rank != nullptr};
  }

  std::optional<double> amount(const Value& metric, const std::string& below,
                               std::span<const Unit> units) {
    const Value* value = metric.find("value");
    const std::optional<double> number = value != nullptr ? find_number(*value) : std::nullopt;
    if (!number || !is_plausible(*number)) {
      const std::string got = value != nullptr ? json::quoted(*value) : "nothing";
      wrong(value != nullptr ? *value : metric, below + "/value",
            fmt::format("expected a positive number, got {}", got));
      return std::nullopt;
    }
    const std::string said = text_of(metric, "unit");
    std::string known;
    for (const Unit& unit : units) {
      if (unit.name == said) return *number * unit.scale;
      known += fmt::format("{}{}", known.empty() ? "" : ", ", unit.name);
    }
    wrong(metric, below + "/unit", fmt::format("unknown unit \"{}\"", said), "one of " + known);
    return std::nullopt;
  }

  const Value& value_;
  std::vector<Diagnostic>& found_;
  Record record_;
  std::string time_;  // the metric that says how long a step took
  bool is_wrong_ = false;
};

void read_list(const Value& records, RecordSet& set, std::vector<Diagnostic>& found) {
  std::map<std::string, std::size_t> named;  // which has a name first
  for (std::size_t i = 0; i < records.items.size(); ++i) {
    RecordReader reader(records.items[i], fmt::format("/records/{}", i), found);
    const std::size_t unmeasured = set.unmeasured;
    std::optional<Record> record = reader.read(set.unmeasured);
    if (!record && set.unmeasured == unmeasured) ++set.wrong;
    if (!record) continue;
    if (const auto [first, is_new] = named.emplace(record->name, i); !is_new) {
      found.push_back({Severity::error, record->at, record->pointer + "/id",
                       fmt::format("\"{}\" is record {} already", record->name, first->second),
                       "give each a name of its own"});
      ++set.wrong;
      continue;
    }
    set.records.push_back(std::move(*record));
  }
}

// What is measured of a variant; nothing with a diagnostic if not one thing is.
std::optional<Record> measured_of(const Value& variant, const std::string& pointer,
                                  std::vector<Diagnostic>& found) {
  Record record;
  record.at = variant.at.position();
  record.pointer = pointer;
  int known = 0;
  if (const Value* references = json::find(variant, "/with/references")) {
    for (const Value& reference : references->items) {
      const std::string metric = text_of(reference, "metric");
      const Value* value = reference.find("value");
      const double number =
          value != nullptr ? find_number(*value).value_or(0) : 0;  // measured ones are positive
      const auto memory = std::find_if(kMemories.begin(), kMemories.end(),
                                       [&](const MemoryMetric& one) { return one.name == metric; });
      if ((metric != "step_time" && memory == kMemories.end()) || !is_plausible(number)) continue;
      ++known;
      record.name = text_of(reference, "label");
      if (metric == "step_time") record.seconds = number;
      if (memory != kMemories.end()) record.memory = MeasuredMemory{memory->sum, number * 0x1p30};
    }
  }
  if (known == 1 && !record.name.empty()) return record;
  found.push_back({Severity::error, record.at, pointer + "/with/references",
                   fmt::format("has {} references of what was measured, not one", known),
                   "a reference has a label, a positive value and one of the metrics step_time, "
                   "allocated_memory, reserved_memory"});
  return std::nullopt;
}

bool is_same_measurement(const Record& a, const Record& b) {
  const auto bytes = [](const Record& record) { return record.memory ? record.memory->bytes : 0; };
  return a.seconds == b.seconds && bytes(a) == bytes(b);
}

// Variants with one label are one row: what the source does not print was tried.
void read_variants(const Value& variants, RecordSet& set, std::vector<Diagnostic>& found) {
  for (std::size_t i = 0; i < variants.items.size(); ++i) {
    const Value& variant = variants.items[i];
    const std::string pointer = fmt::format("/variants/{}", i);
    std::optional<Record> record = measured_of(variant, pointer, found);
    if (!record) ++set.wrong;
    if (!record) continue;
    const auto same = std::find_if(set.records.begin(), set.records.end(),
                                   [&](const Record& other) { return other.name == record->name; });
    if (same != set.records.end() && !is_same_measurement(*same, *record)) {
      found.push_back({Severity::error, record->at, pointer + "/with/references",
                       fmt::format("\"{}\" has another value in an earlier variant", record->name),
                       "variants of one label are one measured step"});
      ++set.wrong;
      continue;
    }
    Record& row = same != set.records.end() ? *same : set.records.emplace_back(std::move(*record));
    Value patch = *variant.find("with");
    patch.erase("references");
    row.scenarios.push_back({std::move(patch), pointer + "/with"});
  }
}

RecordSet read_file(const std::string& path, const std::string& root,
                    std::vector<Diagnostic>& found) {
  RecordSet set;
  set.name = std::filesystem::path(path).stem().string();
  set.file = path;
  set.base = Value::object();
  const std::size_t before = found.size();
  Value document = json::parse_file(path, found);
  const Value* records = document.find("records");
  const Value* variants = document.find("variants");
  if (found.size() > before) return set;
  if (records != nullptr && records->is(Kind::array)) {
    set.source = text_of(document, "source");
    set.license = text_of(document, "license");
    const Value* base = document.find("scenario");
    set.base.at = document.at;
    set.base_pointer = "/scenario";
    if (base != nullptr && !base->is(Kind::object))
      found.push_back({Severity::error, base->at.position(), "/scenario",
                       fmt::format("expected an object, got {}", json::quoted(*base)),
                       R"(a file is named by {"extends": "FILE"})"});
    else if (base != nullptr)
      set.base = scenario::with_bases(*base, root, found);
    // Without what they have in common no record can be judged.
    if (found.size() == before) read_list(*records, set, found);
  } else if (variants != nullptr && variants->is(Kind::array)) {
    set.source = text_of(document, "description");
    read_variants(*variants, set, found);
    document.erase("variants");
    document.erase("baseline");
    const std::size_t of_variants = found.size();
    set.base = scenario::with_bases(std::move(document), root, found);
    if (found.size() > of_variants) set.records.clear();
  } else {
    found.push_back({Severity::error,
                     {path, 0, 0},
                     "",
                     "holds no records",
                     R"(expected {"records": [...]}, or a scenario with variants)"});
  }
  return set;
}

}  // namespace

RecordSet read_records(const std::string& path, const std::string& root,
                       std::vector<Diagnostic>& found) {
  const std::size_t before = found.size();
  RecordSet set = read_file(path, root, found);
  if (set.records.empty() && set.wrong == 0) set.wrong = found.size() - before;
  return set;
}

}  // namespace trainyard::validation
