#include "sim/scenario/loaded.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <tuple>
#include <utility>

#include "sim/json/reader.h"
#include "sim/scenario/other_jobs.h"
#include "sim/scenario/software.h"
#include "sim/scenario/words/translations.h"

namespace trainyard::scenario {

using json::Value;

namespace {

bool same(const Diagnostic& a, const Diagnostic& b) {
  return std::tie(a.at.file, a.at.line, a.at.column, a.pointer, a.message) ==
         std::tie(b.at.file, b.at.line, b.at.column, b.pointer, b.message);
}

}  // namespace

bool contains(const std::vector<Diagnostic>& list, const Diagnostic& diagnostic) {
  return std::any_of(list.begin(), list.end(),
                     [&](const Diagnostic& other) { return same(other, diagnostic); });
}

namespace {

// The value of a pointer or of the nearest object around it, at which the pointer ends then.
const Value& find_around(const Value& document, std::string& pointer) {
  while (true) {
    if (const Value* value = json::find(document, pointer)) return *value;
    pointer.resize(pointer.rfind('/') == std::string::npos ? 0 : pointer.rfind('/'));
  }
}

bool is_of_preset(const Value& value, const std::string& configs) {
  return value.at.file && is_preset_file(*value.at.file, configs);
}

// Whether a text has the key as a word of its own.
bool names(const std::string& text, const std::string& key) {
  const auto is_of_key = [&](std::size_t at) {
    return at < text.size() &&
           (std::isalnum(static_cast<unsigned char>(text[at])) != 0 || text[at] == '_');
  };
  for (std::size_t at = text.find(key); at != text.npos; at = text.find(key, at + 1))
    if (!is_of_key(at - 1) && !is_of_key(at + key.size())) return true;
  return false;
}

// Of the keys beside that of `pointer`, one that the scenario says itself and the message names.
const Value* find_said_beside(const Value& document, const std::string& configs,
                              const std::string& pointer, const std::string& message) {
  const Value* around = json::find(document, pointer.substr(0, pointer.rfind('/')));
  for (const json::Member& member : around->members)
    if (!is_of_preset(member.value, configs) && names(message, member.key)) return &member.value;
  return nullptr;
}

// Puts a diagnostic to its pointer's place. An error in a preset's field is told where the scenario
// says what contradicts it, else where it names the preset, as that is what its author can change.
void set_place(const Value& document, const std::string& configs, Diagnostic& diagnostic) {
  std::string pointer = diagnostic.pointer;
  const Value& wrong = find_around(document, pointer);
  diagnostic.at = wrong.at.position();
  if (!is_error(diagnostic) || !is_of_preset(wrong, configs)) return;
  const Value* said = nullptr;
  if (pointer == diagnostic.pointer) {
    said = find_said_beside(document, configs, pointer, diagnostic.message);
    diagnostic.hint += fmt::format("{}{} is of {}:{}:{}", diagnostic.hint.empty() ? "" : "; ",
                                   json::split_pointer(pointer).back(), diagnostic.at.file,
                                   diagnostic.at.line, diagnostic.at.column);
  }
  while (said == nullptr) {
    pointer.resize(pointer.rfind('/'));
    const Value& above = find_around(document, pointer);
    if (!is_of_preset(above, configs)) said = &above;
  }
  diagnostic.at = said->at.position();
}

}  // namespace

Position locate(const Value& document, std::string pointer) {
  return find_around(document, pointer).at.position();
}

bool is_error(const Diagnostic& diagnostic) {
  return diagnostic.severity == Severity::error;
}

ScenarioSections read_sections(const Value& document, std::vector<Diagnostic>& diagnostics) {
  static const json::KeyIndex known = scenario_keys();
  ScenarioSections sections;
  json::read_object(document, "", sections, diagnostics, &known);
  translate(document, diagnostics);
  return sections;
}

Loaded load_expanded(Value document, const Places& places, std::vector<Diagnostic> diagnostics,
                     std::shared_ptr<const NetworkAndMachine> known) {
  Loaded out;
  out.diagnostics = std::move(diagnostics);
  const auto refuse = [&](bool refused) {
    for (const char* key : {"model", "cluster"})
      if (known != nullptr) document.find(key)->refused = refused;
  };
  refuse(true);
  out.sections = read_sections(document, out.diagnostics);
  refuse(false);
  const auto spoils = [](const Diagnostic& d) { return is_error(d) && !d.harmless; };
  if (std::any_of(out.diagnostics.begin(), out.diagnostics.end(), spoils)) return out;
  Findings findings;
  out.scenario = assemble(out.sections, std::move(document), places, findings, std::move(known));
  if (!findings.has_errors()) validate(out.scenario, out.sections, findings);
  for (Diagnostic& diagnostic : findings.found) {
    set_place(out.scenario.document, places.configs, diagnostic);
    out.diagnostics.push_back(std::move(diagnostic));
  }
  return out;
}

bool has_errors(const std::vector<Diagnostic>& diagnostics) {
  return std::any_of(diagnostics.begin(), diagnostics.end(), is_error);
}

void judge_other_jobs(Loaded& loaded, const std::string& configs) {
  Findings findings;
  validate_other_jobs(loaded.scenario, findings);
  for (Diagnostic& diagnostic : findings.found) {
    set_place(loaded.scenario.document, configs, diagnostic);
    loaded.diagnostics.push_back(std::move(diagnostic));
  }
}

Loaded load_document(Value document, const Places& places) {
  const Value written = document.find("other_jobs") != nullptr ? document : Value();
  std::vector<Diagnostic> diagnostics;
  expand_presets(document, places, diagnostics);
  apply_software(document, places, diagnostics);
  Loaded out = load_expanded(std::move(document), places, std::move(diagnostics));
  if (out.sections.other_jobs.empty() || has_errors(out.diagnostics)) return out;
  const std::vector<Diagnostic> own = out.diagnostics;
  for (std::size_t at = 0; at < out.sections.other_jobs.size(); ++at) {
    const OtherJobSection& section = out.sections.other_jobs[at];
    std::optional<Value> job = document_of_job(written, at, out.diagnostics);
    if (!job) continue;
    Loaded loaded = load_document(std::move(*job), places);
    for (Diagnostic& diagnostic : loaded.diagnostics) {
      if (contains(own, diagnostic)) continue;
      diagnostic.message =
          fmt::format("in the other job \"{}\": {}", section.name, diagnostic.message);
      out.diagnostics.push_back(std::move(diagnostic));
    }
    out.scenario.other_jobs.push_back({section.name, std::move(loaded.scenario)});
  }
  if (!has_errors(out.diagnostics)) judge_other_jobs(out, places.configs);
  return out;
}

namespace {

// The network and the machine of an expanded document, unless there is anything to say of them:
// that has to be said of every document that has them.
std::shared_ptr<const NetworkAndMachine> read_unchanged(const Value& expanded,
                                                        const Places& places) {
  Value document = Value::object();
  for (const char* key : {"model", "cluster"}) {
    const Value* section = expanded.find(key);
    if (section == nullptr || section->refused) return nullptr;
    document.set(key, *section);
  }
  std::vector<Diagnostic> diagnostics;
  ScenarioSections sections;
  json::read_object(*document.find("model"), "/model", sections.model, diagnostics);
  json::read_object(*document.find("cluster"), "/cluster", sections.cluster, diagnostics);
  if (!diagnostics.empty()) return nullptr;
  Findings findings;
  auto read = std::make_shared<const NetworkAndMachine>(
      assemble_network_and_machine(sections, document, places, findings));
  check_cluster(read->machine.cluster, findings);
  return findings.found.empty() ? read : nullptr;
}

}  // namespace

ChangedDocument::ChangedDocument(Value plain, Places places)
    : plain_(std::move(plain)), places_(std::move(places)) {
  places_.files = std::make_shared<ReadFiles>();
  if (plain_.find("other_jobs") != nullptr) return;
  std::vector<Diagnostic> diagnostics;
  expanded_ = plain_;
  expand_presets(expanded_, places_, diagnostics);
  if (diagnostics.empty()) unchanged_ = read_unchanged(expanded_, places_);
}

Loaded ChangedDocument::with(const Value& patch) const {
  const bool is_known = unchanged_ && patch.find("model") == nullptr &&
                        patch.find("cluster") == nullptr && patch.find("other_jobs") == nullptr;
  Value document = is_known ? expanded_ : plain_;
  json::merge_patch(document, patch);
  if (!is_known) return load_document(std::move(document), places_);
  std::vector<Diagnostic> diagnostics;
  apply_software(document, places_, diagnostics);
  return load_expanded(std::move(document), places_, std::move(diagnostics), unchanged_);
}

}  // namespace trainyard::scenario
