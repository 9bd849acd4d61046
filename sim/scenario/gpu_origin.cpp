#include "sim/scenario/gpu_origin.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <optional>
#include <set>
#include <tuple>
#include <utility>

#include "models/layer/peak.h"
#include "sim/json/reader.h"
#include "sim/scenario/scenario.h"
#include "sim/scenario/sources.h"
#include "sim/scenario/topics/sections.h"

namespace trainyard::scenario {

using json::Value;
using topologies::GpuSpec;
using topologies::ServerSpec;

namespace {

// A broken preset is reported when it is used.
std::optional<GpuSpec> read_gpu(const std::string& name, const std::string& configs) {
  try {
    GpuSpec gpu = gpu_of_preset(configs, name);
    if (gpu.name.empty()) gpu.name = name;
    return gpu;
  } catch (const ScenarioError&) {
    return std::nullopt;
  }
}

std::string profile_of(const std::string& gpu, const std::string& configs) {
  const std::string path = preset_path(configs, "profiles", gpu);
  return is_file(path) ? path : "";
}

// Two spellings of a number ("2039GB/s", "2.039TB/s") may differ in its last digit. Of memory
// datasheets say up to a tenth more than the driver gives.
bool same(const std::string& key, double a, double b) {
  const double apart = key == "memory" ? 0.1 : 1e-9;
  return std::abs(a - b) <= apart * std::max(std::abs(a), std::abs(b));
}

std::vector<std::string> differences(const GpuSpec& a, const GpuSpec& b) {
  const std::array<std::tuple<const char*, double, double>, 8> numbers = {
      {{"peak/fp32", a.fp32.count(), b.fp32.count()},
       {"peak/tf32", a.tf32.count(), b.tf32.count()},
       {"peak/fp16", a.fp16.count(), b.fp16.count()},
       {"peak/bf16", a.bf16.count(), b.bf16.count()},
       {"peak/fp8", a.fp8.count(), b.fp8.count()},
       {"memory", static_cast<double>(a.memory.count()), static_cast<double>(b.memory.count())},
       {"memory_bandwidth", a.memory_bandwidth.count(), b.memory_bandwidth.count()},
       {"l2", static_cast<double>(a.l2.count()), static_cast<double>(b.l2.count())}}};
  std::vector<std::string> keys;
  for (const auto& [key, mine, other] : numbers)
    if (!same(key, mine, other)) keys.emplace_back(key);
  return keys;
}

double fastest_16_bit(const GpuSpec& gpu) {
  return std::max(gpu.fp16.count(), gpu.bf16.count());
}

bool is_for_graphics(const GpuSpec& gpu) {
  return 6 * gpu.fp32.count() > fastest_16_bit(gpu);
}

// Boards for games and for export: less than what the chip's tensor cores could do, which they
// reach nearly, as neither power nor memory holds them up.
bool has_slowed_tensor_cores(const GpuSpec& gpu) {
  return fastest_16_bit(gpu) <= 3.5 * gpu.fp32.count();
}

// Beside CUDA cores as fast as those of another, within a fifth: neither or both are slowed.
bool has_such_tensor_cores(const GpuSpec& gpu, const GpuSpec& other) {
  const double mine = fastest_16_bit(gpu) * other.fp32.count();
  const double others = fastest_16_bit(other) * gpu.fp32.count();
  return std::max(mine, others) <= 1.2 * std::min(mine, others);
}

// "9" of "9.0"
std::string design(const GpuSpec& gpu) {
  return gpu.compute_capability.substr(0, gpu.compute_capability.find('.'));
}

// Since compute capability 7.0; a GPU that states none is taken to have them.
bool has_tensor_cores(const GpuSpec& gpu) {
  return gpu.compute_capability.empty() || gpu.capability_major() >= 7;
}

bool has_same_types(const GpuSpec& a, const GpuSpec& b) {
  return (a.bf16.count() > 0) == (b.bf16.count() > 0) && (a.fp8.count() > 0) == (b.fp8.count() > 0);
}

// Presets of which it may take what products reach, by name.
std::map<std::string, GpuSpec> neighbours_of(const GpuSpec& gpu, const std::string& configs) {
  std::map<std::string, GpuSpec> neighbours;
  if (gpu.compute_capability.empty()) return neighbours;
  for (const std::string& name : preset_names(configs, "gpus")) {
    const std::optional<GpuSpec> preset = read_gpu(name, configs);
    if (preset && preset->compute_capability == gpu.compute_capability &&
        has_such_tensor_cores(*preset, gpu))
      neighbours.emplace(name, *preset);
  }
  return neighbours;
}

// Server presets by the GPU they hold; nothing of those without a switch.
std::vector<std::pair<std::string, BytesPerSecond>> switches(const std::string& configs) {
  std::vector<std::pair<std::string, BytesPerSecond>> links;
  for (const std::string& name : preset_names(configs, "servers")) {
    Value node = Value::object();
    node.set("preset", Value::of(name));
    Value document = Value::object();
    document.set("cluster", Value::object()).set("node", std::move(node));
    std::vector<Diagnostic> found;
    expand_presets(document, {configs, ""}, found);
    const Value* expanded = json::find(document, "/cluster/node");
    ServerSpec server;
    if (found.empty() && expanded != nullptr) json::read_object(*expanded, "", server, found);
    if (found.empty() && server.intra == topologies::IntraKind::nvswitch)
      links.emplace_back(server.gpu.name, server.intra_bandwidth);
  }
  return links;
}

}  // namespace

std::string own_profile(const GpuSpec& gpu, const std::string& configs) {
  const std::string own = gpu.name.empty() ? "" : profile_of(gpu.name, configs);
  if (!own.empty()) return own;
  for (const std::string& name : preset_names(configs, "gpus")) {
    const std::string path = profile_of(name, configs);
    if (!path.empty() && differences_from(name, gpu, configs).empty()) return path;
  }
  return "";
}

std::vector<std::string> differences_from(const std::string& name, const GpuSpec& gpu,
                                          const std::string& configs) {
  const bool is_preset = !name.empty() && is_file(preset_path(configs, "gpus", name));
  const std::optional<GpuSpec> preset = is_preset ? read_gpu(name, configs) : std::nullopt;
  if (preset) return differences(gpu, *preset);
  return name == gpu.name ? std::vector<std::string>() : std::vector<std::string>{"name"};
}

std::vector<FittedGpu> fitted_kin(const GpuSpec& gpu, const std::string& configs) {
  std::vector<GpuSpec> fitted;
  for (const std::string& name : preset_names(configs, "gpus")) {
    if (name == gpu.name || profile_of(name, configs).empty()) continue;
    if (const std::optional<GpuSpec> preset = read_gpu(name, configs)) fitted.push_back(*preset);
  }
  std::erase_if(fitted, [&](const GpuSpec& other) { return other.kind != gpu.kind; });
  const auto keep = [&fitted](auto belongs) {
    if (std::any_of(fitted.begin(), fitted.end(), belongs))
      std::erase_if(fitted, [&](const GpuSpec& other) { return !belongs(other); });
  };
  keep([&](const GpuSpec& other) {
    return has_slowed_tensor_cores(other) == has_slowed_tensor_cores(gpu);
  });
  keep([&](const GpuSpec& other) {
    return !gpu.compute_capability.empty() && other.compute_capability == gpu.compute_capability;
  });
  keep([&](const GpuSpec& other) { return has_tensor_cores(other) == has_tensor_cores(gpu); });
  keep([&](const GpuSpec& other) { return is_for_graphics(other) == is_for_graphics(gpu); });
  keep([&](const GpuSpec& other) { return has_same_types(other, gpu); });
  keep([&](const GpuSpec& other) { return design(other) == design(gpu); });
  std::vector<FittedGpu> kin;
  if (fitted.empty()) return kin;
  const std::vector<std::pair<std::string, BytesPerSecond>> links = switches(configs);
  const double rate = fastest_16_bit(gpu);
  for (const GpuSpec& one : fitted) {
    const auto link = std::find_if(links.begin(), links.end(),
                                   [&](const auto& known) { return known.first == one.name; });
    kin.push_back({profile_of(one.name, configs),
                   link != links.end() ? link->second : BytesPerSecond(0), one.multiprocessors,
                   rate > 0 ? fastest_16_bit(one) / rate : 1});
  }
  return kin;
}

topologies::SustainedShares sustained_of(const std::string& name, const std::string& configs) {
  const std::optional<GpuSpec> preset = read_gpu(name, configs);
  return preset ? preset->sustained : topologies::SustainedShares();
}

std::vector<NeighbourShares> neighbour_shares(const GpuSpec& gpu, const std::string& configs) {
  const std::map<std::string, GpuSpec> neighbours = neighbours_of(gpu, configs);
  std::vector<NeighbourShares> shares;
  for (const models::Dtype dtype : models::kDtypes) {
    if (models::peak_of(gpu, dtype).count() <= 0) continue;
    std::vector<double> measured;
    std::vector<std::string> names;
    for (const auto& [name, neighbour] : neighbours) {
      const double share = models::peak_of(neighbour.sustained, dtype);
      if (share <= 0) continue;
      measured.push_back(share);
      names.push_back(name);
    }
    if (measured.empty()) continue;
    shares.push_back({dtype, std::move(measured), fmt::format("{}", fmt::join(names, ", "))});
  }
  return shares;
}

std::vector<std::string> profile_files(const Scenario& scenario) {
  std::set<std::string> files;
  const std::vector<topologies::GpuKind> kinds = gpu_kinds(scenario.cluster);
  for (std::size_t kind = 0; kind < kinds.size(); ++kind) {
    const ProfileChoice& choice = scenario.profiles[kind];
    if (!choice.path.empty()) files.insert(choice.path);
    if (!choice.of_kind) continue;
    for (const FittedGpu& kin : fitted_kin(*kinds[kind].gpu, scenario.configs))
      files.insert(kin.profile);
    for (const auto& [name, gpu] : neighbours_of(*kinds[kind].gpu, scenario.configs))
      files.insert(preset_path(scenario.configs, "gpus", name));
  }
  return {files.begin(), files.end()};
}

int multiprocessors_of(const std::string& name, const std::string& configs) {
  const std::optional<GpuSpec> preset = read_gpu(name, configs);
  return preset ? preset->multiprocessors : 1;
}

}  // namespace trainyard::scenario
