// /cluster: the profile that belongs to it, and what no machine has.
#include <fmt/format.h>

#include <algorithm>

#include "sim/base/check.h"
#include "sim/base/text.h"
#include "sim/json/quantity.h"
#include "sim/scenario/gpu_origin.h"
#include "sim/scenario/path_guard.h"
#include "sim/scenario/topics/assemble.h"
#include "topologies/cluster_check.h"

namespace trainyard::scenario {

namespace {

// One number for all servers becomes one for each.
void spread_gpus_used(topologies::ClusterSpec& cluster, Findings& findings) {
  std::vector<int>& used = cluster.gpus_used;
  if (used.empty()) return;
  if (used.size() == 1) used.assign(static_cast<std::size_t>(cluster.servers), used.front());
  if (used.size() != static_cast<std::size_t>(cluster.servers)) {
    findings.error("/cluster/gpus_used",
                   fmt::format("{} numbers for {} servers", used.size(), cluster.servers),
                   "write one number for all servers, or one for each");
    used.clear();
    return;
  }
  const auto most = std::max_element(used.begin(), used.end());
  if (*most == 0) {
    findings.error("/cluster/gpus_used", "the job uses no GPU of any server",
                   "write 1 or more for at least one server");
    used.clear();
    return;
  }
  if (*most <= cluster.server.gpus) return;
  findings.error("/cluster/gpus_used",
                 fmt::format("{} GPUs of a server that has {}", *most, cluster.server.gpus));
  used.clear();
}

// Magnitudes that no machine has are a slip of a unit.
void check_plausible(const char* pointer, BytesPerSecond value, double least, double most,
                     Findings& findings) {
  if (value.count() == 0 || (value.count() >= least && value.count() <= most)) return;
  findings.warning(pointer,
                   fmt::format("{} is implausible, expected {} to {}", json::quantity_text(value),
                               json::quantity_text(BytesPerSecond(least)),
                               json::quantity_text(BytesPerSecond(most))));
}

void check_plausible(const char* pointer, Duration value, Findings& findings) {
  constexpr Duration kMost = std::chrono::milliseconds(1);
  if (value <= kMost) return;
  findings.warning(pointer, fmt::format("a latency of {} is implausible", to_text(value)));
}

}  // namespace

topologies::ClusterSpec assemble_cluster(topologies::ClusterSpec cluster, Findings& findings) {
  spread_gpus_used(cluster, findings);
  return cluster;
}

namespace {

// The cure of a name that no profile has.
std::string near_profiles(const std::string& wanted, const std::string& configs) {
  const std::vector<std::string> known = preset_names(configs, "profiles");
  std::string hint;
  const std::vector<std::string_view> views(known.begin(), known.end());
  for (const std::string_view near : nearest_names(wanted, views, 3))
    hint += fmt::format("{}{}", hint.empty() ? "nearest: " : ", ", near);
  return hint;
}

}  // namespace

ProfileChoice find_profile(const ClusterSection& section, const json::Value& document,
                           const Places& places, Findings& findings) {
  constexpr const char* kPointer = "/cluster/calibration";
  const std::string& wanted = section.calibration;
  if (wanted == "none") return {};
  if (wanted == "kind") return {"", true};
  if (wanted.empty()) {
    const std::string own = own_profile(section.spec.server.gpu, places.configs);
    return {own, own.empty()};
  }
  const json::Value* value = json::find(document, kPointer);
  TRAINYARD_CHECK(value != nullptr, "the section was read from this document");
  if (wanted.find('/') == std::string::npos) {
    const std::string path = preset_path(places.configs, "profiles", wanted);
    if (is_file(path))
      return {preset_stays(path, *value, kPointer, places, findings.found) ? path : "", false};
    if (!wanted.ends_with(".json") && !names_file(*value)) {
      findings.error(kPointer, fmt::format("no profile \"{}\"", wanted),
                     near_profiles(wanted, places.configs));
      return {};
    }
  }
  return {resolve_path(*value, kPointer, places.root, findings.found), false};
}

namespace {

// The most that any tier is oversubscribed.
double oversubscription(const topologies::FabricSpec& fabric) {
  double most = 1;
  if (const auto* tree = std::get_if<topologies::FatTree>(&fabric)) {
    for (const double tier : tree->oversubscription)
      most = std::max(most, tier);
  } else if (const auto* clos = std::get_if<topologies::Clos>(&fabric)) {
    for (const topologies::ClosLevel& level : clos->levels)
      most = std::max(most, level.oversubscription);
  }
  return most;
}

// Closed forms know the NICs of a group, and nothing of whom it meets in the network; a file that
// names them has chosen that.
void check_contention(const Scenario& scenario, Findings& findings) {
  const double most = oversubscription(scenario.cluster.fabric);
  const bool is_met = scenario.cluster.servers > 1 && most > 1;
  const bool is_chosen = json::find(scenario.document, "/simulation/fidelity") != nullptr;
  if (!is_met || is_chosen) return;
  findings.warning("/cluster/fabric",
                   fmt::format("closed forms leave out contention between switches, so an "
                               "oversubscription of {:g} changes no time",
                               most),
                   "set simulation.fidelity to \"flow\", or \"closed_form\" to leave it out");
}

}  // namespace

void require_of_host(Findings& findings, const char* key, bool is_given, const char* what) {
  if (is_given) return;
  findings.error(fmt::format("/cluster/node/host/{}", key),
                 fmt::format("is required and missing: {}", what),
                 "state it, as the servers of configs/servers do");
}

void validate_machine(const Scenario& scenario, Findings& findings) {
  check_contention(scenario, findings);
  const topologies::ServerSpec& server = scenario.cluster.server;
  // 16 lanes of PCIe's sixth generation carry 121 GB/s.
  const bool is_pcie = joins_by_pcie(server.intra);
  check_plausible("/cluster/node/intra/bandwidth_per_gpu", server.intra_bandwidth, 1e9,
                  is_pcie ? 1.3e11 : 4e12, findings);
  check_plausible("/cluster/node/intra/latency", server.intra_latency, findings);
  check_plausible("/cluster/node/nic/bandwidth", server.nic_bandwidth, 1e8, 4e11, findings);
  check_plausible("/cluster/node/nic/latency", server.nic_latency, findings);
  check_plausible("/cluster/node/host/pcie_bandwidth", server.pcie_bandwidth, 1e9, 5e11, findings);
  check_plausible("/cluster/node/host/memory_bandwidth", server.host_memory_bandwidth, 1e10, 1e13,
                  findings);
  check_plausible("/cluster/node/host/nvme_read_bandwidth", server.nvme_read_bandwidth, 1e8, 1e12,
                  findings);
  check_plausible("/cluster/node/host/nvme_write_bandwidth", server.nvme_write_bandwidth, 1e8, 1e12,
                  findings);
  check_plausible("/cluster/node/gpu/memory_bandwidth", server.gpu.memory_bandwidth, 5e10, 5e13,
                  findings);
  constexpr std::array<std::pair<std::string_view, double>, 4> kBothDirections = {
      {{"v100", 300e9}, {"a100", 600e9}, {"h100", 900e9}, {"b200", 1800e9}}};
  for (const auto& [chip, both] : kBothDirections) {
    if (server.intra != topologies::IntraKind::nvswitch || server.intra_bandwidth.count() != both ||
        server.gpu.name.find(chip) == std::string::npos)
      continue;
    findings.warning(
        "/cluster/node/intra/bandwidth_per_gpu",
        fmt::format("{} looks like both directions together",
                    json::quantity_text(server.intra_bandwidth)),
        fmt::format("did you mean \"{}\"?", json::quantity_text(BytesPerSecond(both / 2))));
  }
}

}  // namespace trainyard::scenario
