#include "cli/find_base.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <system_error>

#include "cli/exit_code.h"
#include "cli/find_gpu.h"
#include "sim/base/text.h"
#include "sim/scenario/scenario.h"
#include "sim/simulate/pricing.h"

namespace trainyard::cli {
namespace {

namespace fs = std::filesystem;

// The path of a shipped profile, or empty.
std::string path_of(const std::string& name) {
  const fs::path path = fs::path(scenario::configs_folder(".")) / "profiles" / (name + ".json");
  std::error_code code;
  return fs::is_regular_file(path, code) ? path.string() : "";
}

// How far apart two GPUs are: the ratio of their memory bandwidths, in which siblings differ most.
double apart(const fit::FitGpu& a, const fit::FitGpu& b) {
  const double x = a.peaks.memory_bandwidth.count(), y = b.peaks.memory_bandwidth.count();
  return std::max(x, y) / std::min(x, y);
}

// The nearest of the GPUs of this capability that have a profile.
std::string sibling(const fit::FitGpu& gpu, const std::string& capability) {
  std::string best;
  double least = 0;
  for (const fit::FitGpu& other : gpus_of_capability(capability)) {
    const std::string path = path_of(other.name);
    if (path.empty() || (!best.empty() && apart(gpu, other) >= least)) continue;
    best = path;
    least = apart(gpu, other);
  }
  return best;
}

// Links in shares of those of the server that ships for this GPU, where there is one.
std::optional<cost::Profile> medians_of_kind(const fit::FitGpu& gpu) {
  const std::string configs = scenario::configs_folder(".");
  topologies::ServerSpec server;
  server.gpu = scenario::gpu_of_preset(configs, gpu.name);
  for (const scenario::Preset& preset : scenario::list_presets(configs)) {
    if (preset.kind != "server") continue;
    const auto machine = scenario::machine_of_preset(configs, preset.name, 1);
    if (!machine || machine->cluster.server.gpu.name != gpu.name) continue;
    server = machine->cluster.server;
    break;
  }
  scenario::ProfileChoice medians;
  medians.of_kind = true;
  return simulate::pricing_of(medians, server, configs).profile;
}

}  // namespace

std::optional<cost::Profile> find_base(const std::string& wanted, const fit::FitGpu& gpu,
                                       const std::string& measured) {
  if (wanted == "none") return std::nullopt;
  if (wanted == "kind") return medians_of_kind(gpu);
  if (wanted == "auto") {
    std::string path = path_of(gpu.name);
    if (path.empty()) {
      const std::string known = capability_of_preset(gpu.name);
      path = sibling(gpu, known.empty() ? measured : known);
    }
    if (path.empty()) return std::nullopt;
    return cost::read_profile(path);
  }
  const std::string shipped = wanted.find('/') == std::string::npos ? path_of(wanted) : "";
  std::error_code code;
  if (shipped.empty() && !fs::is_regular_file(wanted, code))
    throw UsageError(fmt::format(
        "no profile '{}'; --base takes auto, kind, none, a name of configs/profiles or a path",
        escape_control(wanted)));
  return cost::read_profile(shipped.empty() ? wanted : shipped);
}

}  // namespace trainyard::cli
