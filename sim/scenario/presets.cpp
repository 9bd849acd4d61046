// Where presets live and which there are.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <filesystem>
#include <system_error>

#include "sim/base/text.h"
#include "sim/json/parse.h"
#include "sim/json/reader.h"
#include "sim/scenario/scenario.h"
#include "sim/scenario/sources.h"
#include "sim/scenario/topics/sections.h"

namespace trainyard::scenario {
namespace {

namespace fs = std::filesystem;

constexpr std::array<const char*, 6> kFolders = {"models",   "gpus",       "servers",
                                                 "clusters", "transports", "software"};

std::string description_of(const std::string& path) {
  std::vector<Diagnostic> ignored;  // a broken preset is reported when it is used
  const json::Value value = json::parse_file(path, ignored);
  const json::Value* description = value.find("description");
  return description != nullptr ? description->text : "";
}

// The folder as seen from the working directory where that is shorter, so that results and messages
// do not depend on where a checkout stands.
std::string spelled(const fs::path& folder) {
  std::error_code code;
  const fs::path near = folder.lexically_relative(fs::current_path(code));
  return near.empty() || *near.begin() == ".." ? folder.string() : near.string();
}

// Installed, the program is PREFIX/bin/trainyard; a build tree has such a folder too, which leads
// to the sources. So no path of the machine that built the program stands in it, and the files of a
// package may be put anywhere.
fs::path shipped_folder() {
  std::error_code code;
  const fs::path program = fs::read_symlink("/proc/self/exe", code);
  for (fs::path at = program.parent_path(); !at.empty(); at = at.parent_path()) {
    const fs::path folder = at / "share" / "trainyard" / "configs";
    if (fs::is_directory(folder, code)) return fs::canonical(folder, code);
    if (at == at.root_path()) break;
  }
  return {};
}

// A folder of one's own may have one kind of preset only.
bool holds_presets(const fs::path& folder) {
  std::error_code code;
  return std::any_of(kFolders.begin(), kFolders.end(),
                     [&](const char* kind) { return fs::is_directory(folder / kind, code); });
}

bool lists_device(const json::Value& preset, const std::string& device) {
  const json::Value* names = preset.find("device_names");
  return names != nullptr &&
         std::any_of(names->items.begin(), names->items.end(), [&](const json::Value& name) {
           return name.is(json::Kind::string) && name.text == device;
         });
}

// Where a scenario names a file of each folder.
struct PresetPlace {
  std::string_view folder, place;
};
constexpr std::string_view kSoftware = "software";
constexpr std::array<PresetPlace, 6> kPlaces = {{{"models", "/model/preset"},
                                                 {"gpus", "/cluster/node/gpu"},
                                                 {"servers", "/cluster/node"},
                                                 {"clusters", "/cluster/preset"},
                                                 {"transports", "/cluster/node/nic/transport"},
                                                 {kSoftware, "/software"}}};

bool is_preset_folder(const std::string& name) {
  return std::any_of(kPlaces.begin(), kPlaces.end(),
                     [&](const PresetPlace& known) { return name == known.folder; });
}

}  // namespace

std::string configs_folder(const std::string& from) {
  if (const char* chosen = std::getenv("TRAINYARD_CONFIGS"); chosen != nullptr && *chosen != '\0')
    return chosen;
  std::error_code code;
  const fs::path start = fs::weakly_canonical(fs::absolute(from, code), code);
  for (fs::path at = start; !at.empty(); at = at.parent_path()) {
    for (const fs::path& folder : {at, at / "configs"}) {
      if (folder.filename() == "configs" && holds_presets(folder)) return spelled(folder);
    }
    if (at == at.root_path()) break;
  }
  return shipped_configs();
}

std::string shipped_configs() {
  static const fs::path folder = shipped_folder();  // asked for with every diagnostic
  return folder.empty() ? "" : spelled(folder);
}

bool is_preset_file(const std::string& file, const std::string& configs) {
  return std::any_of(kPlaces.begin(), kPlaces.end(), [&](const PresetPlace& known) {
    const auto is_in = [&](const std::string& folder) {
      return !folder.empty() && file.starts_with(fmt::format("{}/{}/", folder, known.folder));
    };
    return known.folder != kSoftware && (is_in(configs) || is_in(shipped_configs()));
  });
}

std::string cure_of_preset(const std::string& name, const std::string& configs,
                           const std::string& folder) {
  constexpr std::size_t kMostListed = 16;
  // A profile has the name of its GPU, which is none to write elsewhere.
  const bool may_be_other =
      is_preset_folder(folder) && name.find_first_of("/\\") == std::string::npos;
  for (const auto& [other, place] : kPlaces)
    if (may_be_other && other != folder && is_file(preset_path(configs, std::string(other), name)))
      return fmt::format("it is a {} preset: write it at {}", singular(other), place);
  const std::vector<std::string> known = preset_names(configs, folder);
  const std::vector<std::string_view> views(known.begin(), known.end());
  const std::vector<std::string_view> near = near_names(name, views, 3);
  if (!near.empty()) return fmt::format("nearest: {}", fmt::join(near, ", "));
  if (known.size() <= kMostListed) return fmt::format("known: {}", fmt::join(known, ", "));
  return fmt::format("none of the {} is near it; 'trainyard presets' lists them", known.size());
}

std::vector<std::string> shipped_models() {
  return preset_names(shipped_configs(), "models");
}
std::vector<std::string> shipped_gpus() {
  return preset_names(shipped_configs(), "gpus");
}
std::vector<std::string> shipped_servers() {
  return preset_names(shipped_configs(), "servers");
}
std::vector<std::string> shipped_software() {
  return preset_names(shipped_configs(), "software");
}
std::vector<std::string> shipped_transports() {
  return preset_names(shipped_configs(), "transports");
}
std::vector<std::string> shipped_clusters() {
  return preset_names(shipped_configs(), "clusters");
}

topologies::GpuSpec gpu_of_preset(const std::string& configs, const std::string& name) {
  std::vector<Diagnostic> found;
  const json::Value preset = json::parse_file(preset_path(configs, "gpus", name), found);
  topologies::GpuSpec gpu;
  // Beside a duplicate key there is an object to complain of, too.
  if (found.empty() || preset.is(json::Kind::object)) json::read_object(preset, "", gpu, found);
  if (!found.empty()) throw ScenarioError(std::move(found));
  return gpu;
}

std::optional<topologies::GpuSpec> gpu_of_device(const std::string& configs,
                                                 const std::string& device_name) {
  for (const std::string& name : preset_names(configs, "gpus")) {
    std::vector<Diagnostic> ignored;  // a broken preset is reported when it is used
    const json::Value preset = json::parse_file(preset_path(configs, "gpus", name), ignored);
    if (lists_device(preset, device_name)) return gpu_of_preset(configs, name);
  }
  return std::nullopt;
}

std::vector<Preset> list_presets(const std::string& configs) {
  std::vector<Preset> presets;
  for (const std::string folder : kFolders) {
    for (const std::string& name : preset_names(configs, folder)) {
      const std::string path = preset_path(configs, folder, name);
      presets.push_back({std::string(singular(folder)), name, path, description_of(path)});
    }
  }
  std::stable_sort(presets.begin(), presets.end(), [](const Preset& a, const Preset& b) {
    return a.kind != b.kind ? a.kind < b.kind : a.name < b.name;
  });
  return presets;
}

}  // namespace trainyard::scenario
