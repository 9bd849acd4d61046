#include "topologies/cluster_check.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include "sim/base/divide.h"
#include "sim/base/text.h"
#include "topologies/fabric.h"
#include "topologies/server_board.h"
#include "topologies/torus.h"

namespace trainyard::topologies {
namespace {

constexpr std::int64_t kNics = std::int64_t{1} << 22;
constexpr std::int64_t kLinks = std::int64_t{1} << 24;
constexpr Duration kLatency = std::chrono::seconds(1);

// Datasheets give both directions together.
std::string cure_of_bandwidth(IntraKind kind) {
  switch (kind) {
    case IntraKind::nvswitch:
      return "state what a GPU sends into the switch: 300GB/s of an A100, 450GB/s of an H100, "
             "900GB/s of a B200";
    case IntraKind::nvlink_mesh:
      return "state what a link carries per direction: 20GB/s of NVLink's first generation, "
             "25GB/s of the second to the fourth, 50GB/s of the fifth";
    default: return "state what a link carries per direction";
  }
}

class Checker {
 public:
  // `kind`: of the servers that are looked at.
  Checker(const ClusterSpec& cluster, int kind)
      : cluster_(cluster), kind_(kind), server_(cluster.server_of_kind(kind)) {}

  std::vector<Diagnostic> run() {
    check_counts();
    check_kinds_of_gpus();
    check_intra();
    check_host();
    check_nics();
    if (kind_ == 0)
      std::visit([this](const auto& fabric) { check_fabric(fabric); }, cluster_.fabric);
    if (found_.empty()) check_connected();
    return std::move(found_);
  }

 private:
  void error(const std::string& pointer, std::string message, std::string hint = {}) {
    Diagnostic& diagnostic = found_.emplace_back();
    diagnostic.pointer =
        (kind_ == 0 ? "/cluster" : fmt::format("/cluster/other_nodes/{}", kind_ - 1)) + pointer;
    diagnostic.message = std::move(message);
    diagnostic.hint = std::move(hint);
  }
  bool in_range(const std::string& pointer, int value, int least, int most) {
    if (least <= value && value <= most) return true;
    error(pointer, fmt::format("expected {} to {}, got {}", least, most, value));
    return false;
  }
  // 0 stands for what is not said.
  void positive(const std::string& pointer, BytesPerSecond bandwidth, std::string hint = {}) {
    if (bandwidth.count() == 0)
      error(pointer, "is required and missing", std::move(hint));
    else if (!(bandwidth.count() > 0) || !std::isfinite(bandwidth.count()))
      error(pointer,
            fmt::format("expected a positive bandwidth, got {} B/s", shortest(bandwidth.count())));
  }
  void positive_if_stated(const std::string& pointer, BytesPerSecond bandwidth) {
    if (bandwidth.count() != 0) positive(pointer, bandwidth);
  }
  void latency(const std::string& pointer, Duration value) {
    if (value < Duration{0} || value > kLatency)
      error(pointer, fmt::format("expected a latency of 0 to 1 s, got {}", to_text(value)));
  }
  void oversubscription(const std::string& pointer, double value) {
    if (!(value >= 1) || !std::isfinite(value))
      error(pointer,
            fmt::format("expected at least 1 (down : up capacity), got {}", shortest(value)));
  }

  void check_counts();
  void check_intra();
  void check_mesh();
  void check_torus();
  void check_host();
  void check_nics();
  void check_fabric(const SingleSwitch& fabric) {
    latency("/fabric/switch_latency", fabric.switch_latency);
  }
  void check_fabric(const FatTree& tree);
  void check_fabric(const Clos& clos);
  void check_fabric(const Dragonfly& dragonfly);
  void check_clos_level(const Clos& clos, std::size_t l);
  void check_kinds_of_gpus();
  void check_connected();
  bool uses_fabric() const { return cluster_.servers > 1; }

  const ClusterSpec& cluster_;
  int kind_;
  const ServerSpec& server_;
  std::vector<Diagnostic> found_;
};

void Checker::check_counts() {
  const bool torus = server_.intra == IntraKind::torus;
  const bool fits =
      in_range("/node/gpus", server_.gpus, 1, torus ? kMostTorusGpus : kMostServerGpus);
  if (cluster_.servers < 1)
    error("/nodes", fmt::format("expected at least 1 server, got {}", cluster_.servers));
  else if (fits && kind_ == 0 && std::int64_t{cluster_.servers} * cluster_.gpu_slots() > kMostGpus)
    error("/nodes", fmt::format("{} servers of {} GPUs are more than {} GPUs", cluster_.servers,
                                cluster_.gpu_slots(), kMostGpus));
}

void Checker::check_kinds_of_gpus() {
  std::vector<int> seen;
  for (std::size_t k = 0; k < server_.other_gpus.size(); ++k) {
    const std::string pointer = fmt::format("/node/other_gpus/{}/at", k);
    for (const int gpu : server_.other_gpus[k].at) {
      if (gpu < 0 || gpu >= server_.gpus)
        error(pointer, fmt::format("GPU {} does not exist, the server has GPUs 0 to {}", gpu,
                                   server_.gpus - 1));
      if (std::find(seen.begin(), seen.end(), gpu) != seen.end())
        error(pointer, fmt::format("GPU {} is named twice", gpu));
      seen.push_back(gpu);
    }
  }
}

void Checker::check_intra() {
  latency("/node/intra/latency", server_.intra_latency);
  if (server_.intra == IntraKind::nvlink_mesh) check_mesh();
  if (server_.intra != IntraKind::nvlink_mesh && !server_.mesh.empty())
    error("/node/intra/mesh", "only an nvlink_mesh has GPU pairs");
  if (server_.intra == IntraKind::torus) check_torus();
  if (server_.intra != IntraKind::torus && !server_.torus.sizes.empty())
    error("/node/intra/dimensions", "only a torus has dimensions");
  if (joins_by_pcie(server_.intra)) {
    positive_if_stated("/node/intra/bandwidth_per_gpu", server_.intra_bandwidth);
    positive_if_stated("/node/gpu/pcie_bandwidth", server_.gpu.pcie_bandwidth);
    if (server_.gpus > 1 && stated_pcie_bandwidth(server_).count() == 0)
      error(
          "/node/intra/bandwidth_per_gpu",
          "is required and missing: PCIe joins the GPUs, and the GPU does not say what its slot "
          "carries",
          "state it, or /cluster/node/gpu/pcie_bandwidth; of 16 lanes about 12GB/s are reached in "
          "the third generation, 25GB/s in the fourth, 50GB/s in the fifth");
  } else if (server_.gpus > 1)
    positive("/node/intra/bandwidth_per_gpu", server_.intra_bandwidth,
             cure_of_bandwidth(server_.intra));
}

void Checker::check_mesh() {
  if (server_.gpus > kMostMeshGpus)
    error("/node/gpus",
          fmt::format("an nvlink_mesh holds at most {} GPUs, got {}", kMostMeshGpus, server_.gpus));
  std::vector<std::pair<int, int>> seen;
  for (std::size_t i = 0; i < server_.mesh.size(); ++i) {
    const NvlinkPair& pair = server_.mesh[i];
    const std::string pointer = fmt::format("/node/intra/mesh/{}", i);
    in_range(pointer + "/links", pair.links, 1, kMostMeshLinks);
    for (const int gpu : {pair.a, pair.b})
      if (gpu < 0 || gpu >= server_.gpus)
        error(pointer, fmt::format("GPU {} does not exist, the server has GPUs 0 to {}", gpu,
                                   server_.gpus - 1));
    if (pair.a == pair.b) error(pointer, fmt::format("GPU {} is linked to itself", pair.a));
    const auto key = std::minmax(pair.a, pair.b);
    if (std::find(seen.begin(), seen.end(), std::pair<int, int>(key)) != seen.end())
      error(pointer, fmt::format("the pair {}-{} is listed twice", key.first, key.second),
            "say how many links it has in 'links'");
    seen.emplace_back(key);
  }
}

void Checker::check_torus() {
  const std::vector<int>& sizes = server_.torus.sizes;
  if (sizes.empty() || sizes.size() > kMostTorusDimensions) {
    error("/node/intra/dimensions",
          fmt::format("expected 1 to {} sizes whose product is {}, got {}", kMostTorusDimensions,
                      server_.gpus, sizes.size()));
    return;
  }
  std::int64_t gpus = 1;
  for (std::size_t d = 0; d < sizes.size(); ++d) {
    if (!in_range(fmt::format("/node/intra/dimensions/{}", d), sizes[d], 1, kMostTorusGpus)) return;
    gpus = std::min<std::int64_t>(gpus * sizes[d], kMostTorusGpus + 1);
  }
  if (gpus != server_.gpus)
    error("/node/intra/dimensions",
          fmt::format("{} are {} GPUs, the server has {}", fmt::join(sizes, " x "),
                      gpus > kMostTorusGpus ? fmt::format("more than {}", kMostTorusGpus)
                                            : std::to_string(gpus),
                      server_.gpus));
}

void Checker::check_host() {
  in_range("/node/host/sockets", server_.sockets, 1, kMostSockets);
  positive_if_stated("/node/host/pcie_bandwidth", server_.pcie_bandwidth);
  positive_if_stated("/node/host/socket_bandwidth", server_.socket_bandwidth);
}

void Checker::check_nics() {
  in_range("/node/nics", server_.nics, 0, kMostServerNics);
  if (found_.empty() && std::int64_t{cluster_.servers} * cluster_.nic_slots() > kNics)
    error("/node/nics", fmt::format("{} servers of {} NICs are more than {} NICs", cluster_.servers,
                                    cluster_.nic_slots(), kNics));
  if (uses_fabric() && server_.nics == 0)
    error("/node/nics",
          fmt::format("{} servers without NICs cannot reach each other", cluster_.servers));
  if (server_.nics > 0) positive("/node/nic/bandwidth", server_.nic_bandwidth);
  latency("/node/nic/latency", server_.nic_latency);
  if (!(server_.nic_efficiency > 0 && server_.nic_efficiency <= 1))
    error("/node/nic/efficiency",
          fmt::format("expected above 0 and at most 1, got {}", shortest(server_.nic_efficiency)));
}

void Checker::check_fabric(const FatTree& tree) {
  latency("/fabric/switch_latency", tree.switch_latency);
  const bool tiers = in_range("/fabric/tiers", tree.tiers, 2, 3);
  const bool radix = in_range("/fabric/radix", tree.radix, 2, kMostRadix);
  const std::size_t before = found_.size();
  for (std::size_t i = 0; i < tree.oversubscription.size(); ++i) {
    const std::string pointer = fmt::format("/fabric/oversubscription/{}", i);
    const double value = tree.oversubscription[i];
    oversubscription(pointer, value);
    if (tiers && value != 1 && i + 1 >= static_cast<std::size_t>(tree.tiers))
      error(pointer, "the top tier has no uplinks to oversubscribe",
            fmt::format("give {} numbers, one per tier below the top", tree.tiers - 1));
  }
  if (!tiers || !radix || found_.size() > before || !uses_fabric() || server_.nics < 1) return;
  const std::int64_t nics = std::int64_t{cluster_.servers} * cluster_.nic_slots();
  for (int tier = 0; tier + 1 < tree.tiers; ++tier) {
    const auto t = static_cast<std::size_t>(tier);
    if (t >= tree.oversubscription.size() ||
        tier_ports(tree.radix, tree.oversubscription[t]).up > 0)
      continue;
    const double ratio = tree.oversubscription[t];
    error(fmt::format("/fabric/oversubscription/{}", t),
          fmt::format("{} to 1 leaves a switch of {} ports no uplink", shortest(ratio), tree.radix),
          fmt::format("at most {}, or radix {}", tree.radix - 1, std::ceil(1 + ratio)));
  }
  if (found_.size() > before) return;
  const std::int64_t reach = fat_tree_capacity(tree);
  if (reach >= nics) return;
  FatTree larger = tree;
  while (larger.radix < kMostRadix && fat_tree_capacity(larger) < nics)
    ++larger.radix;
  const std::string cure = fat_tree_capacity(larger) >= nics
                               ? fmt::format("radix {} is the smallest that does", larger.radix)
                               : "no radix does";
  error("/fabric/radix",
        fmt::format("{} tiers of {}-port switches reach {} NICs, the cluster has {}", tree.tiers,
                    tree.radix, reach, nics),
        tree.tiers == 2 ? cure + "; or use 3 tiers" : cure);
}

void Checker::check_fabric(const Clos& clos) {
  if (clos.levels.empty()) {
    error("/fabric/levels", "expected at least one level");
    return;
  }
  for (std::size_t l = 0; l < clos.levels.size(); ++l)
    check_clos_level(clos, l);
  const std::int64_t gpus = std::int64_t{cluster_.servers} * cluster_.gpu_slots();
  const ClosLevel& top = clos.levels.back();
  if (uses_fabric() && top.gpus < gpus)
    error(fmt::format("/fabric/levels/{}/gpus", clos.levels.size() - 1),
          fmt::format("the top level joins {} GPUs, the cluster has {}", top.gpus, gpus));
}

void Checker::check_fabric(const Dragonfly& dragonfly) {
  latency("/fabric/switch_latency", dragonfly.switch_latency);
  latency("/fabric/global_latency", dragonfly.global_latency);
  const std::size_t before = found_.size();
  in_range("/fabric/nics_per_router", dragonfly.nics_per_router, 1, kMostRadix);
  in_range("/fabric/routers_per_group", dragonfly.routers_per_group, 1, kMostRouters);
  in_range("/fabric/global_links", dragonfly.global_links, 0, kMostRadix);
  if (found_.size() > before || !uses_fabric() || server_.nics < 1) return;
  const std::int64_t nics = std::int64_t{cluster_.servers} * cluster_.nic_slots();
  const std::int64_t of_group =
      std::int64_t{dragonfly.nics_per_router} * dragonfly.routers_per_group;
  const std::int64_t groups =
      1 + std::int64_t{dragonfly.routers_per_group} * dragonfly.global_links;
  if (groups * of_group >= nics) return;
  error("/fabric/global_links",
        fmt::format("groups of {} NICs with {} global links each are {} at most and reach {} NICs, "
                    "the cluster has {}",
                    of_group, groups - 1, groups, groups * of_group, nics),
        fmt::format("{} for each router reach them",
                    divide_up(divide_up(nics, of_group) - 1, dragonfly.routers_per_group)));
}

void Checker::check_clos_level(const Clos& clos, std::size_t l) {
  const ClosLevel& level = clos.levels[l];
  const std::string pointer = fmt::format("/fabric/levels/{}", l);
  latency(pointer + "/latency", level.latency);
  oversubscription(pointer + "/oversubscription", level.oversubscription);
  if (l == 0 && level.oversubscription > 1)
    error(pointer + "/oversubscription",
          "a level's oversubscription is that of the links into it from below, and below the first "
          "level are the NICs' own ports",
          "give it to the next level");
  if (level.gpus < 1) {
    error(pointer + "/gpus", fmt::format("expected at least 1, got {}", level.gpus));
    return;
  }
  const int part = l == 0 ? cluster_.gpu_slots() : clos.levels[l - 1].gpus;
  const bool top = l + 1 == clos.levels.size();
  if (part < 1 || !uses_fabric()) return;
  if (level.gpus < part)
    error(pointer + "/gpus", fmt::format("{} GPUs are fewer than the {} of {}", level.gpus, part,
                                         l == 0 ? "one server" : "the level below"));
  else if (level.gpus % part != 0 && (l == 0 || !top))
    error(pointer + "/gpus", fmt::format("{} GPUs are no multiple of the {} of {}", level.gpus,
                                         part, l == 0 ? "one server" : "the level below"));
}

// A GPU must reach every other of its server, and not over PCIe whose bandwidth nobody states. It
// reaches the NICs whenever there are any.
void Checker::check_connected() {
  if (server_.intra == IntraKind::torus) return;
  ServerSpec joined = server_;
  if (stated_pcie_bandwidth(server_).count() == 0) joined.nics = 0;
  const ServerBoard board(joined);
  std::string first, second;
  int lost = 0;
  for (int g = 0; g < server_.gpus; ++g) {
    const bool is_joined = board.reaches(board.gpu(0), board.gpu(g));
    std::string& part = is_joined ? first : second;
    part += (part.empty() ? "" : ", ") + std::to_string(g);
    if (!is_joined && lost == 0) lost = g;
  }
  if (lost > 0)
    error(server_.intra == IntraKind::nvlink_mesh ? "/node/intra/mesh" : "/node/intra/kind",
          fmt::format("no link joins GPUs {} with GPUs {}; 0 and {} have no route", first, second,
                      lost),
          "state /cluster/node/host/pcie_bandwidth to join them through the host");
}

// Requires: servers and fabric that are right.
void check_size(const ClusterSpec& cluster, std::vector<Diagnostic>& found) {
  std::vector<std::int64_t> of_kind;
  for (int kind = 0; kind < cluster.kinds(); ++kind) {
    const ServerSpec& server = cluster.server_of_kind(kind);
    of_kind.push_back(static_cast<std::int64_t>(ServerBoard(server).links().size()) +
                      (cluster.servers > 1 ? 2 * std::int64_t{server.nics} : 0));
  }
  std::int64_t links = 0;
  for (int server = 0; server < cluster.servers; ++server)
    links += of_kind[static_cast<std::size_t>(cluster.kind_of(server))];
  const Fabric fabric = build_fabric(cluster, 0, 0);
  for (const FabricLayer& layer : fabric.layers)
    links += 2 * std::int64_t{layer.groups} * layer.planes * layer.uplinks();
  if (fabric.dragonfly) links += fabric.dragonfly->count();
  if (links <= kLinks) return;
  Diagnostic& diagnostic = found.emplace_back();
  diagnostic.pointer = "/cluster";
  diagnostic.message = fmt::format("the cluster has {} links, more than {}", links, kLinks);
}

}  // namespace

std::vector<Diagnostic> check(const ClusterSpec& cluster) {
  std::vector<Diagnostic> found;
  for (int kind = 0; kind < cluster.kinds(); ++kind)
    for (Diagnostic& diagnostic : Checker(cluster, kind).run())
      found.push_back(std::move(diagnostic));
  if (gpu_kinds(cluster).size() > kMostGpuKinds) {
    Diagnostic& diagnostic = found.emplace_back();
    diagnostic.pointer = "/cluster/other_nodes";
    diagnostic.message =
        fmt::format("{} kinds of GPUs are more than {}", gpu_kinds(cluster).size(), kMostGpuKinds);
  }
  if (found.empty()) check_size(cluster, found);
  return found;
}

}  // namespace trainyard::topologies
