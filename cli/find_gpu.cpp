#include "cli/find_gpu.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <vector>

#include "cli/exit_code.h"
#include "sim/base/text.h"
#include "sim/json/parse.h"
#include "sim/scenario/scenario.h"
#include "sim/simulate/step.h"

namespace trainyard::cli {
namespace {

std::vector<scenario::Preset> gpu_presets() {
  std::vector<scenario::Preset> gpus;
  for (scenario::Preset& preset : scenario::list_presets(scenario::configs_folder(".")))
    if (preset.kind == "gpu") gpus.push_back(std::move(preset));
  return gpus;
}

std::string capability_of(const scenario::Preset& preset) {
  std::vector<Diagnostic> ignored;  // a broken preset is reported when it is used
  const json::Value document = json::parse_file(preset.path, ignored);
  const json::Value* value = document.find("compute_capability");
  return value != nullptr && value->is(json::Kind::string) ? value->text : "";
}

// Measured on P100 (cuDNN 6), V100 and T4 (cuDNN 7).
cost::WinogradUse winograd(const topologies::GpuSpec& spec) {
  if (spec.capability_major() >= 7) return cost::WinogradUse::separate;
  return spec.capability_major() == 6 ? cost::WinogradUse::fused : cost::WinogradUse::none;
}

fit::FitGpu fit_gpu(const topologies::GpuSpec& spec) {
  fit::FitGpu gpu;
  gpu.name = spec.name;
  gpu.peaks = simulate::peaks(spec);
  gpu.multiprocessors = spec.multiprocessors;
  gpu.winograd = winograd(spec);
  return gpu;
}

topologies::GpuSpec read_spec(const std::string& name) {
  return scenario::gpu_of_preset(scenario::configs_folder("."), name);
}

fit::FitGpu read(const std::string& name) {
  fit::FitGpu gpu = fit_gpu(read_spec(name));
  if (gpu.name.empty()) gpu.name = name;
  return gpu;
}

std::vector<std::string> words_of(std::string_view name) {
  std::vector<std::string> words(1);
  for (const char c : name) {
    const bool parts = c == '-' || c == '_' || c == ' ';
    if (parts && !words.back().empty()) words.emplace_back();
    if (!parts) words.back() += c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  }
  if (words.back().empty()) words.pop_back();
  return words;
}

// Every word is one of the preset's, or two of them written together: "rtx4090".
bool is_called(const std::string& preset, const std::vector<std::string>& words) {
  const std::vector<std::string> own = words_of(preset);
  return std::all_of(words.begin(), words.end(), [&](const std::string& word) {
    for (std::size_t i = 0; i < own.size(); ++i)
      if (own[i] == word || (i + 1 < own.size() && own[i] + own[i + 1] == word)) return true;
    return false;
  });
}

// Who says H100 means the board of a server, and says so where he means a card.
bool is_server_board(const std::string& preset) {
  return preset.find("-sxm") != std::string::npos;
}

}  // namespace

std::string gpu_called(const std::string& name, std::string_view option) {
  std::vector<std::string> called;
  for (const std::string& preset : gpu_preset_names()) {
    if (preset == name) return name;
    if (is_called(preset, words_of(name))) called.push_back(preset);
  }
  if (std::any_of(called.begin(), called.end(), is_server_board))
    std::erase_if(called, std::not_fn(is_server_board));
  if (called.size() > 1)
    throw UsageError(fmt::format("{}: '{}' is each of {}; say which", option, escape_control(name),
                                 escape_control(fmt::format("{}", fmt::join(called, ", ")))));
  return called.empty() ? "" : called.front();
}

std::optional<fit::FitGpu> find_gpu_preset(const std::string& name) {
  const std::vector<scenario::Preset> gpus = gpu_presets();
  const std::string called = gpu_called(name, "--gpu");
  std::vector<std::string_view> known;
  for (const scenario::Preset& preset : gpus) {
    if (preset.name == called) return read(preset.name);
    known.push_back(preset.name);
  }
  throw UsageError(fmt::format("no GPU is called '{}'; there are {}", escape_control(name),
                               escape_control(fmt::format("{}", fmt::join(known, ", ")))));
}

std::optional<fit::FitGpu> find_gpu_of_device(const std::string& device) {
  const std::optional<topologies::GpuSpec> spec =
      scenario::gpu_of_device(scenario::configs_folder("."), device);
  if (!spec || spec->name.empty()) return std::nullopt;
  return fit_gpu(*spec);
}

std::vector<std::string> gpu_preset_names() {
  std::vector<std::string> names;
  for (const scenario::Preset& preset : gpu_presets())
    names.push_back(preset.name);
  return names;
}

std::vector<fit::FitGpu> gpus_of_capability(const std::string& capability) {
  std::vector<fit::FitGpu> found;
  for (const scenario::Preset& preset : gpu_presets())
    if (!capability.empty() && capability_of(preset) == capability)
      found.push_back(read(preset.name));
  return found;
}

std::string capability_of_preset(const std::string& name) {
  for (const scenario::Preset& preset : gpu_presets())
    if (preset.name == name) return capability_of(preset);
  return "";
}

bool is_geforce(const std::string& name) {
  for (const scenario::Preset& preset : gpu_presets())
    if (preset.name == name) return preset.description.find("GeForce") != std::string::npos;
  return false;
}

BytesPerSecond slot_of_preset(const std::string& name) {
  for (const scenario::Preset& preset : gpu_presets())
    if (preset.name == name) return read_spec(name).pcie_bandwidth;
  return BytesPerSecond(0);
}

}  // namespace trainyard::cli
