#include "sim/scenario/sources.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <optional>
#include <system_error>
#include <utility>

#include "sim/json/parse.h"
#include "sim/json/reader.h"
#include "sim/scenario/path_guard.h"

namespace trainyard::scenario {

namespace {

namespace fs = std::filesystem;
using json::Kind;
using json::Value;

constexpr std::size_t kDeepestChain = 32;
constexpr int kMostFiles = 256;

void error(std::vector<Diagnostic>& diagnostics, const json::Place& at, std::string pointer,
           std::string message, std::string hint = {}) {
  diagnostics.push_back(
      {Severity::error, at.position(), std::move(pointer), std::move(message), std::move(hint)});
}

// Reads a file and its bases; `chain` holds the files being read, for cycles.
class BaseReader {
 public:
  BaseReader(std::string root, std::vector<Diagnostic>& diagnostics)
      : root_(std::move(root)), diagnostics_(diagnostics) {}

  Value read(const std::string& path) {
    std::error_code code;
    const std::string id = fs::weakly_canonical(path, code).string();
    chain_.push_back({path, id});
    Value own = json::parse_file(path, diagnostics_);
    if (own.is(Kind::object))
      own = merged_over_bases(std::move(own));
    else if (!own.is(Kind::null) || own.at.line > 0)
      error(diagnostics_, own.at, "", fmt::format("expected an object, got {}", json::quoted(own)));
    chain_.pop_back();
    return own;
  }

  // Of an object that stands in a file, as if it were all of it.
  Value complete(Value own) {
    const std::string path = own.at.position().file;
    std::error_code code;
    chain_.push_back({path, fs::weakly_canonical(path, code).string()});
    Value merged = merged_over_bases(std::move(own));
    chain_.pop_back();
    return merged;
  }

 private:
  struct Link {
    std::string path, id;
  };

  Value merged_over_bases(Value own) {
    spell_out_names(own);
    const Value* extends = own.find("extends");
    if (extends == nullptr) return own;
    std::vector<const Value*> bases;
    if (extends->is(Kind::array)) {
      for (const Value& item : extends->items)
        bases.push_back(&item);
    } else {
      bases.push_back(extends);
    }
    Value merged = Value::object();
    merged.at = own.at;
    for (const Value* base : bases) {
      if (!base->is(Kind::string)) {
        error(diagnostics_, base->at, "/extends",
              fmt::format("expected the path of a file, got {}", json::quoted(*base)));
        continue;
      }
      const Value read_base = read_base_file(*base);
      if (read_base.is(Kind::object)) json::merge_patch(merged, read_base);
    }
    merged.erase("extends");
    json::merge_patch(merged, own);
    return merged;
  }

  Value read_base_file(const Value& base) {
    const std::string path = resolve_path(base, "/extends", root_, diagnostics_);
    if (path.empty()) return Value::null();
    std::error_code code;
    const std::string id = fs::weakly_canonical(path, code).string();
    for (std::size_t i = 0; i < chain_.size(); ++i) {
      if (chain_[i].id != id) continue;
      std::string cycle;
      for (std::size_t k = i; k < chain_.size(); ++k)
        cycle.append(chain_[k].path).append(" -> ");
      error(diagnostics_, base.at, "/extends", "a file extends itself: " + cycle.append(path));
      return Value::null();
    }
    if (chain_.size() >= kDeepestChain || ++files_ > kMostFiles) {
      error(diagnostics_, base.at, "/extends",
            fmt::format("more than {} files deep or {} files in all", kDeepestChain, kMostFiles));
      return Value::null();
    }
    return read(path);
  }

  std::string root_;
  std::vector<Diagnostic>& diagnostics_;
  std::vector<Link> chain_;
  int files_ = 0;
};

void spell_out_name(Value* object, std::string_view key) {
  Value* value = object != nullptr ? object->find(key) : nullptr;
  if (value == nullptr || !value->is(Kind::string)) return;
  Value spelled = Value::object();
  spelled.at = value->at;
  spelled.set("preset", *value);
  *value = std::move(spelled);
}

// The cure of a file where a name is expected.
std::string named_not_filed(const Value& name, std::string_view folder,
                            const std::vector<std::string>& known) {
  const std::string stem = fs::path(name.text).stem().string();
  const bool is_known = std::find(known.begin(), known.end(), stem) != known.end();
  return fmt::format(
      "a preset is a file of configs/{}, named without path and .json{}; your own stand in a "
      "folder "
      "configs/{} beside the scenario",
      folder, is_known ? fmt::format(": \"{}\"", stem) : "", folder);
}

// `key` names files of `folder`: "preset", or a word of its own.
void unknown_preset(const Value& name, std::string_view key, const std::string& pointer,
                    const std::string& folder, const std::string& configs,
                    std::vector<Diagnostic>& diagnostics) {
  const std::string what =
      key == "preset" ? fmt::format("{} preset", singular(folder)) : std::string(key);
  std::string hint = configs.empty() ? "no configs folder was found; set TRAINYARD_CONFIGS" : "";
  const bool is_file_name =
      name.text.find_first_of("/\\") != std::string::npos || name.text.ends_with(".json");
  if (is_file_name)
    hint = named_not_filed(name, folder, preset_names(configs, folder));
  else if (hint.empty())
    hint = cure_of_preset(name.text, configs, folder);
  error(diagnostics, name.at, pointer, fmt::format("unknown {} {}", what, json::quoted(name)),
        hint);
}

// What a preset says of its NVLinks is no number for the PCIe that the file puts in their place.
void drop_links_of_another_kind(Value& preset, const Value& section) {
  const Value* before = json::find(preset, "/intra/kind");
  const Value* after = json::find(section, "/intra/kind");
  if (before != nullptr && after != nullptr && before->text != after->text) preset.erase("intra");
}

// The file that `section` names under `key`; nothing if it names none, or none that can be read,
// which is reported.
std::optional<Value> named_by(Value* section, std::string_view key, const std::string& pointer,
                              const std::string& folder, const Places& places,
                              std::vector<Diagnostic>& diagnostics) {
  if (section == nullptr || !section->is(Kind::object)) return std::nullopt;
  const Value* preset = section->find(key);
  if (preset == nullptr) return std::nullopt;
  const std::string at = fmt::format("{}/{}", pointer, key);
  section->refused = true;  // unless the file is found
  if (!preset->is(Kind::string)) {
    error(diagnostics, preset->at, at,
          fmt::format("expected a name, got {}", json::quoted(*preset)));
    return std::nullopt;
  }
  const std::string path = preset_path(places.configs, folder, preset->text);
  const bool plain = preset->text.find_first_of("/\\") == std::string::npos;
  const bool is_known = !places.configs.empty() && plain && is_file(path);
  if (!is_known) unknown_preset(*preset, key, at, folder, places.configs, diagnostics);
  if (!is_known || !preset_stays(path, *preset, at, places, diagnostics)) return std::nullopt;
  Value whole =
      places.files ? *places.files->read(path, diagnostics) : json::parse_file(path, diagnostics);
  if (!whole.is(Kind::object)) return std::nullopt;
  section->refused = false;
  whole.erase("$schema");
  return whole;
}

// visit(element, its number) for each of an array that an object may have.
template <class Visit>
void for_each_of(Value* object, std::string_view key, const Visit& visit) {
  Value* array = object != nullptr ? object->find(key) : nullptr;
  if (array == nullptr || !array->is(Kind::array)) return;
  for (std::size_t at = 0; at < array->items.size(); ++at)
    visit(array->items[at], at);
}

void spell_out_gpus(Value* server) {
  spell_out_name(server, "gpu");
  for_each_of(server, "other_gpus", [](Value& gpus, std::size_t) { spell_out_name(&gpus, "gpu"); });
}

void spell_out_cluster(Value* cluster) {
  const auto servers = [](Value* holder) {
    spell_out_name(holder, "node");
    spell_out_gpus(holder != nullptr ? holder->find("node") : nullptr);
  };
  servers(cluster);
  for_each_of(cluster, "other_nodes", [&](Value& others, std::size_t) { servers(&others); });
}

// Puts the fields of `whole` below those that `section` has itself.
void put_below(Value& section, Value whole) {
  json::merge_patch(whole, section);
  whole.at = section.at;
  section = std::move(whole);
}

// Puts the fields of the preset that `section` names below those it has itself.
void expand(Value* section, const std::string& pointer, const std::string& folder,
            const Places& places, std::vector<Diagnostic>& diagnostics) {
  std::optional<Value> named = named_by(section, "preset", pointer, folder, places, diagnostics);
  if (!named) return;
  Value whole = std::move(*named);
  if (folder == "servers") spell_out_gpus(&whole);
  if (folder == "clusters") spell_out_cluster(&whole);
  if (folder == "servers") drop_links_of_another_kind(whole, *section);
  put_below(*section, std::move(whole));
}

// What collectives between servers take beside their bytes, which is the transport's.
constexpr std::array<const char*, 5> kOfTransport = {"start", "steps", "tree_steps",
                                                     "exchange_steps", "exchange_efficiency"};

void expand_transport(Value* nic, const std::string& node, const Places& places,
                      std::vector<Diagnostic>& diagnostics) {
  std::optional<Value> named =
      named_by(nic, "transport", node + "/nic", "transports", places, diagnostics);
  if (!named) return;
  for (const char* key : {"name", "description", "source"})
    named->erase(key);
  put_below(*nic, std::move(*named));
}

// A transport that the file names takes the place of what the server's preset says of one.
void expand_server(Value* node, const std::string& pointer, const Places& places,
                   std::vector<Diagnostic>& diagnostics) {
  if (node == nullptr || !node->is(Kind::object))
    return expand(node, pointer, "servers", places, diagnostics);
  Value* own = node->find("nic");
  const bool names = own != nullptr && own->is(Kind::object) && own->find("transport") != nullptr;
  if (names) expand_transport(own, pointer, places, diagnostics);
  const Value said = names ? *own : Value::null();
  expand(node, pointer, "servers", places, diagnostics);
  Value* nic = node->find("nic");
  if (!names) return expand_transport(nic, pointer, places, diagnostics);
  for (const char* key : kOfTransport)
    if (said.find(key) == nullptr) nic->erase(key);
}

// The server of a cluster, or of some of its servers, with its GPUs.
void expand_node(Value* holder, const std::string& at, const Places& places,
                 std::vector<Diagnostic>& diagnostics) {
  Value* node = holder != nullptr ? holder->find("node") : nullptr;
  const std::string pointer = at + "/node";
  expand_server(node, pointer, places, diagnostics);
  expand(node != nullptr ? node->find("gpu") : nullptr, pointer + "/gpu", "gpus", places,
         diagnostics);
  for_each_of(node, "other_gpus", [&](Value& gpus, std::size_t number) {
    expand(gpus.find("gpu"), fmt::format("{}/other_gpus/{}/gpu", pointer, number), "gpus", places,
           diagnostics);
  });
}

void expand_hugging_face(Value* model, const std::string& root,
                         std::vector<Diagnostic>& diagnostics) {
  if (model == nullptr || !model->is(Kind::object)) return;
  const Value* path = model->find("hf_config");
  if (path == nullptr) return;
  model->refused = true;  // until it is read
  if (model->find("preset") != nullptr) {
    error(diagnostics, path->at, "/model/hf_config",
          "a model has a preset or a hf_config, not both");
    return;
  }
  const std::string file = resolve_path(*path, "/model/hf_config", root, diagnostics);
  if (file.empty()) return;
  const Value config = json::parse_file(file, diagnostics);
  if (config.is(Kind::null)) return;
  Value fields = from_hugging_face(config, diagnostics);
  if (!fields.is(Kind::object)) return;
  json::merge_patch(fields, *model);
  fields.at = model->at;
  *model = std::move(fields);
  model->refused = false;
}

}  // namespace

std::shared_ptr<const Value> ReadFiles::read(const std::string& path,
                                             std::vector<Diagnostic>& diagnostics) {
  const std::scoped_lock lock(mutex_);
  const auto [at, is_new] = files_.try_emplace(path);
  File& file = at->second;
  if (is_new) file.value = std::make_shared<const Value>(json::parse_file(path, file.diagnostics));
  diagnostics.insert(diagnostics.end(), file.diagnostics.begin(), file.diagnostics.end());
  return file.value;
}

std::string_view singular(std::string_view folder) {
  return folder.substr(0, folder.find_last_not_of('s') + 1);
}

bool is_file(const std::string& path) {
  std::error_code code;
  return fs::is_regular_file(path, code);
}

std::string preset_path(const std::string& configs, const std::string& folder,
                        const std::string& name) {
  const std::string own = fmt::format("{}/{}/{}.json", configs, folder, name);
  if (is_file(own)) return own;
  const std::string shipped = fmt::format("{}/{}/{}.json", shipped_configs(), folder, name);
  return is_file(shipped) ? shipped : own;
}

std::vector<std::string> preset_names(const std::string& configs, const std::string& folder) {
  std::vector<std::string> names;
  std::error_code code;
  for (const std::string& place : {configs, shipped_configs()}) {
    for (const fs::directory_entry& entry :
         fs::directory_iterator(fs::path(place) / folder, code)) {
      if (entry.path().extension() == ".json") names.push_back(entry.path().stem().string());
    }
  }
  std::sort(names.begin(), names.end());
  names.erase(std::unique(names.begin(), names.end()), names.end());
  return names;
}

void spell_out_names(Value& scenario) {
  spell_out_cluster(scenario.find("cluster"));
}

Value read_with_bases(const std::string& path, const std::string& root,
                      std::vector<Diagnostic>& diagnostics) {
  return BaseReader(root, diagnostics).read(path);
}

Value with_bases(Value document, const std::string& root, std::vector<Diagnostic>& diagnostics) {
  return BaseReader(root, diagnostics).complete(std::move(document));
}

std::string pointer_of_set(const std::string& set) {
  std::string pointer = set.substr(0, set.find('='));
  if (pointer.starts_with('/')) return pointer;
  std::replace(pointer.begin(), pointer.end(), '.', '/');
  return "/" + pointer;
}

void apply_set(Value& scenario, const std::string& set, std::vector<Diagnostic>& diagnostics) {
  const json::Place at = json::place_of("--set " + set);
  const std::size_t split = set.find('=');
  if (split == std::string::npos || split == 0) {
    error(diagnostics, at, "", "expected KEY=VALUE, e.g. parallelism.tp=8");
    return;
  }
  const std::string pointer = pointer_of_set(set);
  if (json::split_pointer(pointer).front() == "extends") {
    error(diagnostics, at, "/extends", "bases are read before --set changes anything",
          "write a file that extends this one and them");
    return;
  }
  const std::string text = set.substr(split + 1);
  std::vector<Diagnostic> not_json;
  Value value = json::parse_text(text, "--set " + set, not_json);
  if (!not_json.empty()) value = Value::of(text);
  value.at = at;
  const bool removed = value.is(Kind::null);
  if (!json::set(scenario, pointer, std::move(value)))
    error(diagnostics, at, pointer, "there is nothing of that name to set");
  if (removed) {
    Value cleaned = Value::object();
    cleaned.at = scenario.at;
    json::merge_patch(cleaned, scenario);
    scenario = std::move(cleaned);
  }
  spell_out_names(scenario);
}

void expand_presets(Value& scenario, const Places& places, std::vector<Diagnostic>& diagnostics) {
  expand(scenario.find("model"), "/model", "models", places, diagnostics);
  expand_hugging_face(scenario.find("model"), places.root, diagnostics);
  Value* cluster = scenario.find("cluster");
  expand(cluster, "/cluster", "clusters", places, diagnostics);
  expand_node(cluster, "/cluster", places, diagnostics);
  for_each_of(cluster, "other_nodes", [&](Value& others, std::size_t number) {
    expand_node(&others, fmt::format("/cluster/other_nodes/{}", number), places, diagnostics);
  });
}

}  // namespace trainyard::scenario
