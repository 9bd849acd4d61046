// The order of reading: bases, --set, variant, presets, fields, checks.
#include <fmt/format.h>

#include <algorithm>
#include <tuple>

#include "sim/json/parse.h"
#include "sim/plan/step_memory.h"
#include "sim/scenario/loaded.h"
#include "sim/scenario/scenario.h"
#include "sim/scenario/software.h"
#include "sim/scenario/sources.h"
#include "sim/scenario/topics/assemble.h"
#include "sim/scenario/topics/sections.h"
#include "topologies/server_board.h"

namespace trainyard::scenario {
namespace {

using json::Kind;
using json::Value;

// A variant's patch, or nothing with diagnostics.
std::optional<Value> patch_of(const Value& variant, std::size_t index,
                              std::vector<Diagnostic>& diagnostics) {
  const std::string pointer = fmt::format("/variants/{}/with", index);
  const Value* with = variant.find("with");
  const auto fail = [&](const json::Place& at, std::string message) {
    diagnostics.push_back({Severity::error, at.position(), pointer, std::move(message), ""});
    return std::nullopt;
  };
  if (with == nullptr) return Value::object();
  if (!with->is(Kind::object))
    return fail(with->at, fmt::format("expected an object, got {}", json::quoted(*with)));
  for (const char* key :
       {"version", "name", "extends", "variants", "baseline", "search", "outputs"}) {
    if (const json::Member* member = with->find_member(key))
      return fail(member->at, fmt::format("a variant cannot change \"{}\"", key));
  }
  Value patch = *with;
  spell_out_names(patch);
  return patch;
}

// What variants and configurations of a search patch. It is copied for each of them, so they must
// not be in it.
Value without_variants(const Value& document) {
  Value plain = Value::object();
  for (const json::Member& member : document.members)
    if (member.key != "variants" && member.key != "baseline" && member.key != "search")
      plain.members.push_back(member);
  plain.at = document.at;
  return plain;
}

void sort_by_place(std::vector<Diagnostic>& list, const std::string& first_file) {
  std::stable_sort(list.begin(), list.end(), [&](const Diagnostic& a, const Diagnostic& b) {
    const auto key = [&](const Diagnostic& d) {
      return std::tuple(d.at.file != first_file, std::string_view(d.at.file), d.at.line,
                        d.at.column);
    };
    return key(a) < key(b);
  });
}

[[noreturn]] void refuse(std::vector<Diagnostic> diagnostics, const std::string& path) {
  diagnostics.erase(std::remove_if(diagnostics.begin(), diagnostics.end(),
                                   [](const Diagnostic& d) { return !is_error(d); }),
                    diagnostics.end());
  sort_by_place(diagnostics, path);
  if (diagnostics.size() > kMostDiagnostics) {
    const std::size_t more = diagnostics.size() - kMostDiagnostics;
    diagnostics.resize(kMostDiagnostics);
    Diagnostic& rest = diagnostics.emplace_back();
    rest.at.file = path;
    rest.message = fmt::format("and {} more", more);
  }
  throw ScenarioError(std::move(diagnostics));
}

// The diagnostics of a variant that the base does not have, with the variant's name. All of them,
// those of the base too, are the scenario's warnings.
std::vector<Diagnostic> add_variant(const std::vector<Diagnostic>& base, Loaded& loaded,
                                    const std::string& name) {
  std::vector<Diagnostic> own;
  for (Diagnostic& diagnostic : loaded.diagnostics) {
    if (contains(base, diagnostic)) continue;
    diagnostic.message = fmt::format("in variant \"{}\": {}", name, diagnostic.message);
    own.push_back(diagnostic);
  }
  loaded.scenario.warnings = std::move(loaded.diagnostics);
  return own;
}

// Whether a merge of `patch` leaves something else than what was given.
bool changes(const Value& patch, const Value& given) {
  if (patch.is(Kind::object) && given.is(Kind::object))
    return std::any_of(patch.members.begin(), patch.members.end(), [&](const json::Member& own) {
      const Value* there = given.find(own.key);
      return there != nullptr && changes(own.value, *there);
    });
  const auto number = json::find_number(patch);
  return !json::same(patch, given) && (!number || number != json::find_number(given));
}

// What a patch writes at a pointer, or in the place of something around it; null: nothing.
const Value* find_written(const Value& patch, std::string pointer) {
  if (const Value* own = json::find(patch, pointer)) return own;
  while (!pointer.empty()) {
    pointer.resize(pointer.rfind('/'));
    const Value* around = json::find(patch, pointer);
    if (around != nullptr) return around->is(Kind::object) ? nullptr : around;
  }
  return nullptr;
}

// What was set is written before a variant changes the file.
void warn_of_lost_sets(const std::vector<std::string>& sets, const Value& document,
                       const Value& patch, const std::string& variant, std::size_t index,
                       std::vector<Diagnostic>& warnings) {
  for (auto at = sets.begin(); at != sets.end(); ++at) {
    const std::string& set = *at;
    const std::string pointer = pointer_of_set(set);
    const Value* kept = find_written(patch, pointer);
    const Value* given = json::find(document, pointer);
    if (kept == nullptr || (given != nullptr && !changes(*kept, *given))) continue;
    if (std::find(std::next(at), sets.end(), set) != sets.end()) continue;  // told once
    Diagnostic& lost = warnings.emplace_back();
    lost.severity = Severity::warning;
    lost.at = kept->at.position();
    lost.pointer = pointer;
    lost.message = fmt::format("in variant \"{}\": it sets this to {}, not --set {}", variant,
                               json::to_text(*kept, -1), set);
    lost.hint =
        fmt::format("variants come after --set; --set variants.{}.with.{} reaches it", index,
                    set.starts_with('/') ? pointer.substr(1) + set.substr(set.find('=')) : set);
  }
}

// Each takes about a millisecond to read and its step to simulate, and the results of all of them
// are held together.
constexpr std::size_t kMostVariants = std::size_t{1} << 14;

Diagnostic too_many_variants(std::size_t count) {
  Diagnostic found;
  found.pointer = "/variants";
  found.message = fmt::format("{} variants, at most {} are read together", count, kMostVariants);
  found.hint = "run one of them with --variant NAME, or divide the list into files";
  return found;
}

SearchSpec read_search(const Loaded& base, std::vector<Diagnostic>& diagnostics) {
  Findings findings;
  SearchSpec spec = assemble_search(base.sections.search, base.scenario, findings);
  for (Diagnostic& diagnostic : findings.found) {
    diagnostic.at = locate(base.scenario.document, diagnostic.pointer);
    diagnostics.push_back(std::move(diagnostic));
  }
  return spec;
}

// What is wrong with the list of variants itself, whichever of them is wanted.
bool is_of_variants(const Diagnostic& diagnostic) {
  return diagnostic.pointer.starts_with("/variants") || diagnostic.pointer.starts_with("/baseline");
}

}  // namespace

ScenarioSet load_scenario(const std::string& path, const std::vector<std::string>& sets,
                          const LoadOptions& options) {
  std::vector<Diagnostic> all;
  Value document = read_with_bases(path, options.root, all);
  // Without its bases a file cannot be judged.
  const bool incomplete = document.find("extends") != nullptr && !all.empty();
  if (!document.is(Kind::object) || incomplete) refuse(std::move(all), path);
  for (const std::string& set : sets)
    apply_set(document, set, all);
  const Places places{configs_folder(path), options.root};

  Loaded base = load_document(document, places);
  ScenarioSet out;
  for (const VariantSection& variant : base.sections.variants)
    out.names.push_back(variant.name);
  const bool is_one = options.variant && std::find(out.names.begin(), out.names.end(),
                                                   *options.variant) != out.names.end();
  // What the one variant takes over of it is found again when that is read.
  for (const Diagnostic& diagnostic : base.diagnostics)
    if (!is_one || is_of_variants(diagnostic)) all.push_back(diagnostic);
  const Value* variants = document.find("variants");
  const std::size_t count =
      variants != nullptr && variants->is(Kind::array) ? variants->items.size() : 0;
  if (!options.variant && count > kMostVariants) {
    all.push_back(too_many_variants(count));
    all.back().at = variants->at.position();
    refuse(std::move(all), path);
  }
  Value plain = without_variants(document);
  if (document.find("search") != nullptr && !has_errors(base.diagnostics))
    out.search = read_search(base, all);
  out.written = plain;
  const ChangedDocument changed(std::move(plain), places);
  for (std::size_t i = 0; i < count && i < base.sections.variants.size(); ++i) {
    if (options.variant && out.names[i] != *options.variant) continue;
    const std::optional<Value> patch = patch_of(variants->items[i], i, all);
    if (!patch) continue;
    Loaded loaded = changed.with(*patch);
    const VariantSection& section = base.sections.variants[i];
    const std::vector<Diagnostic> unknown = add_variant(base.diagnostics, loaded, section.name);
    const std::vector<Diagnostic>& own = is_one ? loaded.scenario.warnings : unknown;
    all.insert(all.end(), own.begin(), own.end());
    warn_of_lost_sets(sets, document, *patch, section.name, i, loaded.scenario.warnings);
    loaded.scenario.variant = section.name;
    loaded.scenario.label = section.label.empty() ? section.name : section.label;
    loaded.scenario.file = path;
    loaded.scenario.root = options.root;
    loaded.scenario.configs = places.configs;
    out.variants.push_back(std::move(loaded.scenario));
  }
  if (has_errors(all)) refuse(std::move(all), path);
  sort_by_place(base.diagnostics, path);
  out.base = std::move(base.scenario);
  out.base.file = path;
  out.base.root = options.root;
  out.base.configs = places.configs;
  out.base.warnings = std::move(base.diagnostics);
  out.baseline = base.sections.baseline;
  return out;
}

Scenario scenario_of(Value document, const LoadOptions& options) {
  const std::string file = document.at.position().file;
  const std::string here = file.empty() ? "." : file;
  spell_out_names(document);
  const Places places{configs_folder(here), options.root};
  Loaded loaded = load_document(without_variants(document), places);
  if (has_errors(loaded.diagnostics)) refuse(std::move(loaded.diagnostics), here);
  loaded.scenario.file = here;
  loaded.scenario.root = options.root;
  loaded.scenario.configs = places.configs;
  loaded.scenario.warnings = std::move(loaded.diagnostics);
  return std::move(loaded.scenario);
}

models::Network network_of(Value document, const LoadOptions& options) {
  std::vector<Diagnostic> found;
  expand_presets(document, {configs_folder("."), options.root}, found);
  ModelSection section;
  if (std::none_of(found.begin(), found.end(), is_error))
    json::read_object(*document.find("model"), "/model", section, found);
  if (std::any_of(found.begin(), found.end(), is_error)) refuse(std::move(found), "");
  Findings findings;
  models::Network network = assemble_network(section, document, findings);
  if (findings.has_errors()) refuse(std::move(findings.found), "");
  return network;
}

std::optional<Scenario> with_patch(const Scenario& scenario, const Value& patch) {
  const Places places{scenario.configs, scenario.root};
  Value document = without_variants(scenario.document);
  forget_software(document, places);
  json::merge_patch(document, patch);
  std::vector<Diagnostic> found;
  apply_software(document, places, found);
  const bool is_same = patch.find("model") == nullptr && patch.find("cluster") == nullptr;
  Loaded loaded = load_expanded(std::move(document), places, std::move(found),
                                is_same ? scenario.shared : nullptr);
  loaded.scenario.other_jobs = scenario.other_jobs;
  if (!has_errors(loaded.diagnostics)) judge_other_jobs(loaded, places.configs);
  if (has_errors(loaded.diagnostics)) return std::nullopt;
  loaded.scenario.label = scenario.label;
  loaded.scenario.variant = scenario.variant;
  loaded.scenario.take_place_of(scenario);
  loaded.scenario.warnings = std::move(loaded.diagnostics);
  return std::move(loaded.scenario);
}

std::string schema_json() {
  const json::Schema schema = json::schema_of([](json::Fields& f) {
    ScenarioSections sections;
    visit_fields(f, sections);
  });
  Value out = Value::object();
  out.set("$schema", Value::of("http://json-schema.org/draft-07/schema#"));
  out.set("title", Value::of("trainyard scenario"));
  for (const json::Member& member : schema.shape.members)
    out.set(member.key, member.value);
  for (const json::Member& member : schema.complete.members)
    out.set(member.key, member.value);
  return json::to_text(out) + "\n";
}

namespace {

// The links of a server that others decide where the file does not say them; a value that is left
// 0 is none that is used. The same server with them is the same machine.
void fill_links(topologies::ServerSpec& server) {
  const BytesPerSecond sockets = socket_bandwidth(server);
  if (server.sockets > 1) server.socket_bandwidth = sockets;
  if (!joins_by_pcie(server.intra)) return;
  server.intra_bandwidth = stated_pcie_bandwidth(server);
  // Without a word, NICs have links that never limit them.
  if (server.nics == 0 && server.pcie_bandwidth.count() == 0)
    server.pcie_bandwidth = server.intra_bandwidth;
}

}  // namespace

std::vector<json::Explained> explain(const Scenario& scenario) {
  std::vector<Diagnostic> none;
  ScenarioSections sections = read_sections(scenario.document, none);
  if (sections.label.empty()) sections.label = sections.name;
  fill_links(sections.cluster.spec.server);
  for (topologies::OtherServers& other : sections.cluster.spec.others)
    fill_links(other.server);
  sections.parallelism.dp = scenario.plan.degrees.data;
  sections.training.recipe.micro_batch.sequence_length =
      scenario.recipe.micro_batch.sequence_length.value();
  const recipe::TrainingRecipe& recipe = scenario.recipe;
  recipe::Precision& precision = sections.training.recipe.precision;
  precision = recipe.precision;
  sections.training.recipe.micro_batch.size = recipe.micro_batch.size.value();
  OptimizerSection& optimizer = sections.training.optimizer;
  optimizer.type = recipe.optimizer == recipe::Optimizer::sgd_momentum ? recipe::Optimizer::sgd
                                                                       : recipe.optimizer;
  if (recipe.optimizer == recipe::Optimizer::sgd_momentum) optimizer.momentum = true;
  precision.parameters = plan::weight_type(recipe);
  if (!precision.keeps_master()) precision.master_weights = recipe::MasterWeights::none;
  recipe::MemoryAllowance& memory = sections.training.recipe.memory;
  memory.context = recipe.memory.context.value();
  memory.fragmentation = recipe.memory.fragmentation.value();
  memory.least_fragmentation = recipe.memory.least_fragmentation.value();
  memory.blas_workspace = recipe.memory.blas_workspace.value();
  const ProfileChoice& profile = scenario.profiles.front();
  sections.cluster.calibration = profile.of_kind        ? "kind"
                                 : profile.path.empty() ? "none"
                                                        : profile.path;
  for (const std::unique_ptr<ModelFamily>& family : sections.model.families)
    family->fill_from(scenario.network);
  std::vector<json::Explained> values =
      json::explain(scenario.document, [&](json::Fields& f) { visit_fields(f, sections); });
  if (!json::find(scenario.document, "/search"))  // one run asks for no search's defaults
    std::erase_if(values, [](const auto& value) { return value.pointer.starts_with("/search/"); });
  return values;
}

}  // namespace trainyard::scenario
