#include "cli/server_file.h"

#include <filesystem>
#include <fstream>
#include <iterator>
#include <system_error>

#include "models/layer/peak.h"

namespace trainyard::cli {

std::optional<fit::MeasuredMachine> read_machine(const std::vector<std::string>& samples) {
  std::optional<fit::MeasuredMachine> last;
  for (const std::string& path : samples) {
    // What cannot be read is the fit's to report.
    std::error_code code;
    if (!std::filesystem::is_regular_file(path, code)) continue;
    std::ifstream file(path, std::ios::binary);
    const std::string text{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
    if (auto machine = fit::measured_machine(text)) last = std::move(machine);
  }
  return last;
}

std::optional<fit::FitGpu> gpu_of_machine(const std::optional<fit::MeasuredMachine>& machine) {
  if (!machine) return std::nullopt;
  const std::optional<fit::GpuPreset> preset = fit::gpu_preset(machine->gpus.front());
  if (!preset) return std::nullopt;
  fit::FitGpu gpu;
  gpu.name = preset->name;
  gpu.multiprocessors = preset->multiprocessors;
  gpu.peaks.memory_bandwidth = preset->memory_bandwidth;
  gpu.peaks.l2 = preset->l2;
  for (const fit::GpuPreset::Peak& peak : preset->peaks)
    for (const models::Dtype dtype : models::kDtypes)
      if (peak.dtype == name(dtype)) models::peak_of(gpu.peaks, dtype) = peak.rate;
  return gpu;
}

std::string capability_of_machine(const std::optional<fit::MeasuredMachine>& machine) {
  if (!machine || machine->gpus.front().major == 0) return "";
  const fit::MeasuredGpu& gpu = machine->gpus.front();
  return std::to_string(gpu.major) + "." + std::to_string(gpu.minor);
}

std::string server_file(const std::optional<fit::MeasuredMachine>& machine, const std::string& name,
                        const std::string& shipped_gpu) {
  if (!machine) return "";
  // Imported samples name their GPUs and nothing else; links are not guessed.
  const fit::MeasuredGpu& gpu = machine->gpus.front();
  const bool linked = machine->gpus.size() == 1 || !machine->nvlinks.empty();
  if (!linked || gpu.multiprocessors == 0) return "";
  if (shipped_gpu.empty() && !fit::gpu_preset(gpu)) return "";
  return fit::server_preset_json(fit::server_preset(*machine, name, shipped_gpu));
}

}  // namespace trainyard::cli
