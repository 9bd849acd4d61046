#include "cli/server_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <system_error>

#include "cli/find_gpu.h"
#include "models/layer/peak.h"
#include "sim/base/check.h"
#include "sim/base/text.h"
#include "sim/scenario/scenario.h"

namespace trainyard::cli {
namespace {

class Questions {
 public:
  explicit Questions(const std::string& file) : file_(file) {}
  void ask(std::string message, std::string hint) {
    Diagnostic diagnostic;
    diagnostic.at.file = file_;
    diagnostic.message = std::move(message);
    diagnostic.hint = std::move(hint);
    open_.push_back(std::move(diagnostic));
  }
  void finish() {
    if (!open_.empty()) throw ScenarioError(std::move(open_));
  }

 private:
  std::string file_;
  std::vector<Diagnostic> open_;
};

// The shipped preset of all GPUs; empty if there is none.
std::string shipped_gpu_of(const fit::MeasuredMachine& machine, Questions& questions) {
  const std::string& name = machine.gpus.front().name;
  for (const fit::MeasuredGpu& gpu : machine.gpus)
    if (gpu.name != name) {
      questions.ask(fmt::format("the GPUs are '{}' and '{}'; a server preset has one kind",
                                escape_control(name), escape_control(gpu.name)),
                    "add --gpu NAME");
      return "";
    }
  const std::vector<std::string> known = gpu_preset_names();
  if (std::find(known.begin(), known.end(), name) != known.end()) return name;
  if (const auto by_device = find_gpu_of_device(name)) return by_device->name;
  if (name.empty())
    questions.ask("the file does not name the GPUs",
                  fmt::format("add --gpu NAME: {}", fmt::join(known, ", ")));
  else
    questions.ask(fmt::format("no GPU preset is called '{}', or lists it among its device_names",
                              escape_control(name)),
                  fmt::format("add --gpu NAME: {}", fmt::join(known, ", ")));
  return "";
}

void take_capability(const std::string& gpu, fit::MeasuredMachine& machine) {
  const std::string capability = capability_of_preset(gpu);
  const std::size_t dot = capability.find('.');
  if (dot == std::string::npos || dot == 0 || dot > 3 || dot + 1 >= capability.size()) return;
  if (capability.find_first_not_of("0123456789.") != std::string::npos) return;
  for (fit::MeasuredGpu& one : machine.gpus) {
    if (one.major != 0) continue;
    one.major = std::stoi(capability.substr(0, dot));
    one.minor = capability[dot + 1] - '0';
  }
}

std::optional<fit::ServerPreset::Links> links_of(const std::string& word) {
  if (word == "nvswitch") return fit::ServerPreset::Links::nvswitch;
  if (word == "pcie") return fit::ServerPreset::Links::pcie;
  if (word == "none") return fit::ServerPreset::Links::none;
  return std::nullopt;
}

}  // namespace

std::string described_server_file(const std::string& samples, const ServerQuestions& asked) {
  std::optional<fit::MeasuredMachine> machine = fit::measured_machine(samples);
  TRAINYARD_CHECK(machine.has_value(), "an import without a machine line");
  Questions questions(asked.file);
  const std::string gpu = shipped_gpu_of(*machine, questions);
  if (!fit::says_links(*machine) && asked.links.empty())
    questions.ask("the file does not say whether NVLink joins the GPUs",
                  "add --intra nvswitch, pcie or none; write a mesh of NVLinks into the preset");
  const fit::NicCount nics = fit::count_nics(*machine);
  if (nics.with_speed < nics.used && asked.nic_bandwidth.count() == 0)
    questions.ask(fmt::format("the file does not say how fast its {} NICs are", nics.used),
                  "add --nic-bandwidth RATE");
  questions.finish();
  take_capability(gpu, *machine);
  fit::DescribedServer server;
  server.machine = std::move(*machine);
  server.origin =
      fmt::format("Described by {}", std::filesystem::path(asked.file).filename().string());
  server.links = links_of(asked.links);
  server.nic_bandwidth = asked.nic_bandwidth;
  server.pcie_bandwidth = asked.pcie_bandwidth;
  server.gpu_pcie_bandwidth = slot_of_preset(gpu);
  server.has_peers = !is_geforce(gpu);
  std::string text = fit::server_preset_json(fit::described_server(server, asked.name, gpu));
  std::vector<Diagnostic> found =
      scenario::check_server_preset(scenario::configs_folder("."), text, asked.name + ".json");
  std::erase_if(found, [](const Diagnostic& d) { return d.severity != Severity::error; });
  if (!found.empty()) throw ScenarioError(std::move(found));
  return text;
}

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
