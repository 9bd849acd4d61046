// /cluster: all its servers counted, the profiles that belong to its GPUs, and what no machine has.
#include <fmt/format.h>

#include <algorithm>

#include "sim/base/check.h"
#include "sim/base/text.h"
#include "sim/json/quantity.h"
#include "sim/scenario/gpu_origin.h"
#include "sim/scenario/path_guard.h"
#include "sim/scenario/topics/assemble.h"
#include "topologies/fabric.h"
#include "topologies/server_board.h"

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
  if (*std::max_element(used.begin(), used.end()) == 0) {
    findings.error("/cluster/gpus_used", "the job uses no GPU of any server",
                   "write 1 or more for at least one server");
    used.clear();
    return;
  }
  for (int server = 0; server < cluster.servers; ++server) {
    const int gpus = cluster.server_at(server).gpus;
    if (cluster.used_on(server) <= gpus) continue;
    findings.error("/cluster/gpus_used",
                   fmt::format("{} GPUs of a server that has {}", cluster.used_on(server), gpus));
    used.clear();
    return;
  }
}

// Magnitudes that no machine has are a slip of a unit.
template <class Rate>
void check_plausible(const std::string& pointer, Rate value, double least, double most,
                     Findings& findings, const std::string& hint = {}) {
  if (value.count() == 0 || (value.count() >= least && value.count() <= most)) return;
  findings.warning(pointer,
                   fmt::format("{} is implausible, expected {} to {}", json::quantity_text(value),
                               json::quantity_text(Rate(least)), json::quantity_text(Rate(most))),
                   hint);
}

void check_peaks(const std::string& gpu, const topologies::GpuSpec& of, Findings& findings) {
  for (const auto& [type, peak] :
       std::array<std::pair<const char*, FlopsPerSecond>, 5>{{{"fp32", of.fp32},
                                                              {"tf32", of.tf32},
                                                              {"fp16", of.fp16},
                                                              {"bf16", of.bf16},
                                                              {"fp8", of.fp8}}})
    check_plausible(fmt::format("{}/peak/{}", gpu, type), peak, 1e10, 1e17, findings);
}

// Line rates are sold in bits: one above all there are has bytes in their place.
void check_nic(const std::string& pointer, BytesPerSecond value, Findings& findings) {
  constexpr double kMost = 1.5e11;
  std::string bits = json::quantity_text(value);
  bits.replace(bits.rfind("B/s"), 3, "bps");
  check_plausible(
      pointer, value, 1e8, kMost, findings,
      value.count() > kMost ? fmt::format("if bits were meant, write \"{}\"", bits) : "");
}

void check_plausible(const std::string& pointer, Duration value, Findings& findings) {
  constexpr Duration kMost = std::chrono::milliseconds(1);
  if (value <= kMost) return;
  findings.warning(pointer, fmt::format("a latency of {} is implausible", to_text(value)));
}

}  // namespace

topologies::ClusterSpec assemble_cluster(topologies::ClusterSpec cluster, Findings& findings) {
  constexpr std::int64_t kMostServers = 1 << 20;
  std::int64_t servers = cluster.servers;
  for (const topologies::OtherServers& other : cluster.others)
    servers += other.servers;
  if (servers > kMostServers) {
    findings.error("/cluster/other_nodes",
                   fmt::format("{} servers are more than {}", servers, kMostServers));
    cluster.others.clear();
    return cluster;
  }
  cluster.servers = static_cast<int>(servers);
  spread_gpus_used(cluster, findings);
  return cluster;
}

namespace {

// Of the first kind of GPUs.
ProfileChoice named_profile(const std::string& wanted, const json::Value& document,
                            const Places& places, Findings& findings) {
  constexpr const char* kPointer = "/cluster/calibration";
  const json::Value* value = json::find(document, kPointer);
  TRAINYARD_CHECK(value != nullptr, "the section was read from this document");
  if (wanted.find('/') == std::string::npos) {
    const std::string path = preset_path(places.configs, "profiles", wanted);
    if (is_file(path))
      return {preset_stays(path, *value, kPointer, places, findings.found) ? path : "", false};
    if (!wanted.ends_with(".json") && !names_file(*value)) {
      findings.error(kPointer, fmt::format("no profile \"{}\"", wanted),
                     cure_of_preset(wanted, places.configs, "profiles"));
      return {};
    }
  }
  return {resolve_path(*value, kPointer, places.root, findings.found), false};
}

}  // namespace

std::vector<ProfileChoice> find_profiles(const ClusterSection& section, const json::Value& document,
                                         const Places& places, Findings& findings) {
  const std::string& wanted = section.calibration;
  const bool holds_for_all = wanted == "none" || wanted == "kind";
  std::vector<ProfileChoice> found;
  for (const topologies::GpuKind& kind : gpu_kinds(section.spec)) {
    if (holds_for_all) {
      found.push_back({"", wanted == "kind"});
    } else if (!wanted.empty() && found.empty()) {
      found.push_back(named_profile(wanted, document, places, findings));
    } else {
      const std::string own = own_profile(*kind.gpu, places.configs);
      found.push_back({own, own.empty()});
    }
  }
  return found;
}

std::string node_pointer(int kind) {
  return kind == 0 ? "/cluster/node" : fmt::format("/cluster/other_nodes/{}/node", kind - 1);
}

std::vector<std::string> gpu_pointers(const topologies::ClusterSpec& cluster) {
  std::vector<std::string> pointers;
  for (int kind = 0; kind < cluster.kinds(); ++kind) {
    pointers.push_back(node_pointer(kind) + "/gpu");
    for (std::size_t i = 0; i < cluster.server_of_kind(kind).other_gpus.size(); ++i)
      pointers.push_back(fmt::format("{}/other_gpus/{}/gpu", node_pointer(kind), i));
  }
  return pointers;
}

namespace {

// The most that any tier is oversubscribed; of a dragonfly the NICs of a group over its cables to
// others. Requires: of a dragonfly, NICs that it reaches.
double oversubscription(const topologies::ClusterSpec& cluster) {
  const topologies::FabricSpec& fabric = cluster.fabric;
  double most = 1;
  if (std::holds_alternative<topologies::Dragonfly>(fabric) && cluster.servers > 1)
    return std::max(most, build_fabric(cluster, 0, 0).dragonfly->oversubscription());
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
  if (std::holds_alternative<topologies::Dragonfly>(scenario.cluster.fabric) &&
      findings.has_errors())
    return;
  const double most = oversubscription(scenario.cluster);
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

bool states_pcie_bandwidth(const topologies::ServerSpec& server) {
  return stated_pcie_bandwidth(server).count() > 0;
}
bool states_memory_bandwidth(const topologies::ServerSpec& server) {
  return server.host_memory_bandwidth.count() > 0;
}

void require_of_hosts(const topologies::ClusterSpec& cluster, const char* key,
                      const OfServer& is_given, const char* what, Findings& findings) {
  for (int kind = 0; kind < cluster.kinds(); ++kind)
    if (!is_given(cluster.server_of_kind(kind)))
      findings.error(fmt::format("{}/host/{}", node_pointer(kind), key),
                     fmt::format("is required and missing: {}", what),
                     fmt::format("state it in the scenario, as the preset dgx-h100 does: "
                                 "\"host\": {{\"{}\": ...}} in its node",
                                 key));
}

namespace {

void check_server(const topologies::ServerSpec& server, const std::string& node,
                  Findings& findings) {
  // 16 lanes of PCIe's sixth generation carry 121 GB/s.
  const bool is_pcie = joins_by_pcie(server.intra);
  check_plausible(node + "/intra/bandwidth_per_gpu", server.intra_bandwidth, 1e9,
                  is_pcie ? 1.3e11 : 4e12, findings);
  check_plausible(node + "/intra/latency", server.intra_latency, findings);
  check_nic(node + "/nic/bandwidth", server.nic_bandwidth, findings);
  check_plausible(node + "/nic/latency", server.nic_latency, findings);
  check_plausible(node + "/host/pcie_bandwidth", server.pcie_bandwidth, 1e9, 5e11, findings);
  check_plausible(node + "/host/memory_bandwidth", server.host_memory_bandwidth, 1e10, 1e13,
                  findings);
  check_plausible(node + "/host/nvme_read_bandwidth", server.nvme_read_bandwidth, 1e8, 1e12,
                  findings);
  check_plausible(node + "/host/nvme_write_bandwidth", server.nvme_write_bandwidth, 1e8, 1e12,
                  findings);
  check_plausible(node + "/gpu/memory_bandwidth", server.gpu.memory_bandwidth, 5e10, 5e13,
                  findings);
  check_peaks(node + "/gpu", server.gpu, findings);
  constexpr std::array<std::pair<std::string_view, double>, 4> kBothDirections = {
      {{"v100", 300e9}, {"a100", 600e9}, {"h100", 900e9}, {"b200", 1800e9}}};
  for (const auto& [chip, both] : kBothDirections) {
    if (server.intra != topologies::IntraKind::nvswitch || server.intra_bandwidth.count() != both ||
        server.gpu.name.find(chip) == std::string::npos)
      continue;
    findings.warning(
        node + "/intra/bandwidth_per_gpu",
        fmt::format("{} looks like both directions together",
                    json::quantity_text(server.intra_bandwidth)),
        fmt::format("did you mean \"{}\"?", json::quantity_text(BytesPerSecond(both / 2))));
  }
}

}  // namespace

void validate_machine(const Scenario& scenario, Findings& findings) {
  check_contention(scenario, findings);
  for (int kind = 0; kind < scenario.cluster.kinds(); ++kind)
    check_server(scenario.cluster.server_of_kind(kind), node_pointer(kind), findings);
}

}  // namespace trainyard::scenario
