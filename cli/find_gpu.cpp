#include "cli/find_gpu.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "cli/exit_code.h"
#include "sim/base/text.h"
#include "sim/json/parse.h"
#include "sim/json/reader.h"
#include "sim/scenario/scenario.h"
#include "sim/scenario/sections.h"

namespace trainyard::cli {
namespace {

std::vector<Preset> gpu_presets() {
  std::vector<Preset> gpus;
  for (Preset& preset : list_presets(configs_folder(".")))
    if (preset.kind == "gpu") gpus.push_back(std::move(preset));
  return gpus;
}

FitGpu read(const Preset& preset) {
  std::vector<Diagnostic> diagnostics;
  const json::Value document = json::parse_file(preset.path, diagnostics);
  GpuSection section;
  if (diagnostics.empty()) json::read_object(document, "", section, diagnostics);
  for (const Diagnostic& diagnostic : diagnostics)
    if (diagnostic.severity == Severity::error) throw ScenarioError(std::move(diagnostics));
  const GpuSpec& spec = section.spec;
  FitGpu gpu;
  gpu.name = spec.name.empty() ? preset.name : spec.name;
  gpu.peaks = {spec.fp32, spec.tf32, spec.fp16, spec.bf16, spec.fp8, spec.memory_bandwidth,
               spec.l2};
  gpu.multiprocessors = spec.multiprocessors;
  return gpu;
}

// "NVIDIA A100-SXM4-80GB" -> nvidia, a100, sxm4, 80gb.
std::vector<std::string> words_of(const std::string& text) {
  std::vector<std::string> words(1);
  for (const char c : text) {
    const char lower = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
    const bool inside = (lower >= 'a' && lower <= 'z') || (lower >= '0' && lower <= '9');
    if (inside) words.back() += lower;
    if (!inside && !words.back().empty()) words.emplace_back();
  }
  if (words.back().empty()) words.pop_back();
  return words;
}

bool is_memory(const std::string& word) {
  return word.ends_with("gb") && word.size() > 2 && word[0] >= '0' && word[0] <= '9';
}

bool is_board(const std::string& word) {
  return word.starts_with("sxm") || word == "pcie" || word == "nvl";
}

bool contains(const std::vector<std::string>& words, const std::string& word) {
  return std::find(words.begin(), words.end(), word) != words.end();
}

// How many words of the preset the device says, or 0 if it contradicts one or leaves out one that
// names the chip. A driver does not say the board of SXM parts since Hopper ("NVIDIA H100 80GB
// HBM3"), but does say PCIe and NVL.
int agreement(const std::vector<std::string>& device, const std::vector<std::string>& preset) {
  int agreed = 0;
  for (const std::string& word : preset) {
    if (contains(device, word)) {
      ++agreed;
      continue;
    }
    const auto says_another = [&](auto is_kind) {
      return std::any_of(device.begin(), device.end(), is_kind);
    };
    if (is_memory(word)) {
      if (says_another(is_memory)) return 0;
    } else if (is_board(word)) {
      if (says_another(is_board) || !word.starts_with("sxm")) return 0;
    } else {
      return 0;
    }
  }
  return agreed;
}

}  // namespace

std::optional<FitGpu> find_gpu_preset(const std::string& name) {
  const std::vector<Preset> gpus = gpu_presets();
  std::vector<std::string_view> known;
  for (const Preset& preset : gpus) {
    if (preset.name == name) return read(preset);
    known.push_back(preset.name);
  }
  throw UsageError(fmt::format("no GPU is called '{}'; there are {}", escape_control(name),
                               escape_control(fmt::format("{}", fmt::join(known, ", ")))));
}

std::optional<FitGpu> find_gpu_of_device(const std::string& device) {
  const std::vector<std::string> said = words_of(device);
  std::optional<Preset> best;
  int most = 0;
  bool ambiguous = false;
  for (const Preset& preset : gpu_presets()) {
    const int agreed = agreement(said, words_of(preset.name));
    if (agreed < most || agreed == 0) continue;
    ambiguous = agreed == most;
    most = agreed;
    best = preset;
  }
  if (!best || ambiguous) return std::nullopt;
  return read(*best);
}

}  // namespace trainyard::cli
