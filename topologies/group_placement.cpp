#include "topologies/group_placement.h"

#include <algorithm>
#include <numeric>

#include "sim/base/check.h"
#include "sim/base/divide.h"
#include "topologies/fabric.h"
#include "topologies/rings.h"
#include "topologies/server_board.h"
#include "topologies/torus.h"

namespace trainyard::topologies {
namespace {

// The rate of a ring whose hops are relayed by another GPU, beside one without. Source: the ratio
// measured on five GPUs of a DGX-1V, docs/topologies.md.
constexpr double kRelayed = 0.83;

// Peer-to-peer copies through an Intel host bridge reach 5/6 of a PCIe slot.
// Source: NCCL, src/graph/topo.cc and topo.h (INTEL_P2P_OVERHEAD).
constexpr double kAcrossHostBridge = 5.0 / 6.0;

bool cross_sockets(const ServerSpec& server, int first, int last) {
  return socket_of(first, server.gpus, server.sockets) !=
         socket_of(last, server.gpus, server.sockets);
}

BytesPerSecond pcie_ring_bandwidth(const ServerSpec& server, const std::vector<int>& gpus,
                                   int crossing) {
  const BytesPerSecond slot = peer_pcie_bandwidth(server);
  const auto [first, last] = std::minmax_element(gpus.begin(), gpus.end());
  const BytesPerSecond peer =
      cross_sockets(server, *first, *last)
          ? std::min(kAcrossHostBridge * slot, socket_bandwidth(server) / crossing)
          : slot;
  return server.intra == IntraKind::none ? peer / 2.0 : peer;
}

BytesPerSecond over_nvlink(const ServerSpec& server, const RingPacking& packing) {
  return packing.rings * (packing.relays > 0 ? kRelayed : 1) * server.intra_bandwidth;
}

// PCIe that nobody states is no way around. Where the group's own links make no ring, one goes
// through other GPUs of the server, all of which are joined (cluster_check.cpp).
BytesPerSecond mesh_ring_bandwidth(const ServerSpec& server, const std::vector<int>& gpus,
                                   int crossing) {
  const RingPacking packing = pack_rings(server.mesh, gpus);
  const BytesPerSecond nvlink = over_nvlink(server, packing);
  if (packing.rings > 0 && packing.relays == 0) return nvlink;
  if (stated_pcie_bandwidth(server).count() == 0)
    return packing.rings > 0 ? nvlink : kRelayed * server.intra_bandwidth;
  return std::max(nvlink, pcie_ring_bandwidth(server, gpus, crossing));
}

}  // namespace

BytesPerSecond ring_bandwidth(const ServerSpec& server, const std::vector<int>& gpus,
                              int crossing) {
  TRAINYARD_CHECK(gpus.size() >= 2, "a ring of {} GPUs", gpus.size());
  for (const int gpu : gpus)
    TRAINYARD_CHECK(0 <= gpu && gpu < server.gpus, "GPU {} of {}", gpu, server.gpus);
  switch (server.intra) {
    case IntraKind::nvswitch: return server.intra_bandwidth;
    case IntraKind::nvlink_mesh: return mesh_ring_bandwidth(server, gpus, crossing);
    case IntraKind::pcie:
    case IntraKind::none: return pcie_ring_bandwidth(server, gpus, crossing);
    case IntraKind::torus: return inside_group(server, gpus).bandwidth;
  }
  TRAINYARD_CHECK(false, "intra kind {}", static_cast<int>(server.intra));
}

RingPacking mesh_rings(const ServerSpec& server, const std::vector<int>& gpus) {
  RingPacking packing = pack_rings(server.mesh, gpus);
  const bool around = packing.relays > 0 && stated_pcie_bandwidth(server).count() > 0 &&
                      pcie_ring_bandwidth(server, gpus, 1) > over_nvlink(server, packing);
  return around ? RingPacking{} : packing;
}

namespace {

// Of an all-to-all the slots of a group's GPUs, or the link of two sockets, which `crossing` groups
// divide, whichever takes longer; times of what goes to one GPU, by a byte a second.
double slowest_of_host(const ServerSpec& server, const std::vector<int>& gpus, int crossing) {
  std::vector<int> on_socket(static_cast<std::size_t>(server.sockets));
  for (const int gpu : gpus)
    ++on_socket[static_cast<std::size_t>(socket_of(gpu, server.gpus, server.sockets))];
  double slowest = static_cast<double>(gpus.size() - 1) / peer_pcie_bandwidth(server).count();
  for (std::size_t a = 0; a < on_socket.size(); ++a)
    for (std::size_t b = 0; b < a; ++b)
      slowest = std::max(slowest, static_cast<double>(on_socket[a] * on_socket[b] * crossing) /
                                      socket_bandwidth(server).count());
  return slowest;
}

// The same of the links that the routes of all pairs take.
double slowest_of_mesh(const ServerSpec& server, const std::vector<int>& gpus) {
  const ServerBoard board(server);
  std::vector<int> routes(board.links().size());
  std::vector<LinkId> route;
  for (const int from : gpus)
    for (const int to : gpus) {
      if (from == to) continue;
      route.clear();
      board.append_route(from, to, 0, route);
      for (const LinkId link : route)
        ++routes[static_cast<std::size_t>(link)];
    }
  double slowest = 0;
  for (std::size_t link = 0; link < routes.size(); ++link)
    slowest = std::max(slowest, routes[link] / board.links()[link].bandwidth.count());
  return slowest;
}

// What an all-to-all reaches of a ring's bandwidth.
double exchange_share(const ServerSpec& server, const std::vector<int>& gpus, int crossing,
                      BytesPerSecond ring) {
  const double sent = static_cast<double>(gpus.size() - 1) / ring.count();
  switch (server.intra) {
    case IntraKind::nvlink_mesh: return sent / slowest_of_mesh(server, gpus);
    case IntraKind::pcie: return sent / slowest_of_host(server, gpus, crossing);
    // Down to the host's memory and up again, as the ring.
    case IntraKind::none: return sent / slowest_of_host(server, gpus, crossing) / 2;
    case IntraKind::nvswitch:
    case IntraKind::torus: break;
  }
  return 1;
}

}  // namespace

// A collective on a torus goes through one dimension after the other; a step of a ring is what is
// left of each hop then.
InsideGroup inside_group(const ServerSpec& server, const std::vector<int>& gpus, int crossing) {
  if (server.intra != IntraKind::torus) {
    const bool mesh = server.intra == IntraKind::nvlink_mesh;
    const int rings = mesh ? std::max(1, mesh_rings(server, gpus).rings) : 1;
    const BytesPerSecond ring = ring_bandwidth(server, gpus, crossing);
    return {ring, server.intra_latency, rings, exchange_share(server, gpus, crossing, ring)};
  }
  const TorusGroup group = torus_group(server.torus, gpus);
  return {group.rings * group.share * server.intra_bandwidth,
          group.steps * server.intra_latency / static_cast<int>(gpus.size() - 1), group.rings,
          group.exchange};
}

std::vector<std::vector<int>> by_server(std::span<const int> gpus, int gpus_per_server) {
  std::vector<int> sorted(gpus.begin(), gpus.end());
  if (!std::is_sorted(sorted.begin(), sorted.end())) std::sort(sorted.begin(), sorted.end());
  std::vector<std::vector<int>> servers;
  for (const int gpu : sorted) {
    if (servers.empty() || servers.back().front() / gpus_per_server != gpu / gpus_per_server)
      servers.emplace_back();
    servers.back().push_back(gpu);
  }
  return servers;
}

GroupPlacement place(const ClusterSpec& cluster, std::span<const int> gpus) {
  GroupPlacement placement;
  if (gpus.empty()) return placement;
  const int per_server = cluster.gpu_slots();
  const std::vector<std::vector<int>> servers = by_server(gpus, per_server);
  TRAINYARD_CHECK(
      servers.front().front() >= 0 && servers.back().back() < cluster.servers * per_server,
      "GPUs {} .. {} of {} servers", servers.front().front(), servers.back().back(),
      cluster.servers);
  placement.servers = static_cast<int>(servers.size());
  for (const std::vector<int>& own : servers) {
    placement.gpus_per_server = std::max(placement.gpus_per_server, static_cast<int>(own.size()));
    placement.even = placement.even && own.size() == servers.front().size();
    std::vector<int> local;
    for (const int gpu : own)
      local.push_back(gpu % per_server);
    placement.same_local =
        placement.same_local && (placement.locals.empty() || local == placement.locals.front());
    if (own.front() / per_server == gpus.front() / per_server) placement.local = local;
    placement.locals.push_back(std::move(local));
    placement.numbers.push_back(own.front() / per_server);
  }
  return placement;
}

int crossing_groups(const ServerSpec& server, const std::vector<int>& gpus, int in_use) {
  const int members = static_cast<int>(gpus.size());
  const int groups = std::max(1, in_use / std::max(1, members));
  if (members < 2 || !cross_sockets(server, gpus.front(), gpus.back())) return 1;
  const int reach = gpus.back() - gpus.front(), distance = reach / (members - 1);
  const int before = gpus.front() % std::max(1, distance);
  int crossing = 0;
  for (int first = gpus.front() - before; first < gpus.front() - before + distance; ++first)
    if (first + reach < server.gpus && cross_sockets(server, first, first + reach)) ++crossing;
  return std::clamp(crossing, 1, groups);
}

BytesPerSecond server_nic_bandwidth(const ServerSpec& server) {
  return server.nics * server.nic_efficiency * server.nic_bandwidth;
}

int nic_of(const ServerSpec& server, int local_gpu) {
  TRAINYARD_CHECK(server.nics > 0 && 0 <= local_gpu && local_gpu < server.gpus, "GPU {}, {} NICs",
                  local_gpu, server.nics);
  const bool nearest = server.rail_per_gpu || server.nics > server.gpus;
  return nearest ? local_gpu * server.nics / server.gpus : local_gpu % server.nics;
}

int nics_of(const ServerSpec& server, int local_gpu) {
  if (server.nics <= server.gpus) return 1;
  return (local_gpu + 1) * server.nics / server.gpus - local_gpu * server.nics / server.gpus;
}

int stripes(const ClusterSpec& cluster) {
  if (cluster.servers == 1) return 1;
  constexpr std::int64_t kMost = 64;
  std::int64_t parts = 1, most = 1;
  for (int kind = 0; kind < cluster.kinds(); ++kind) {
    const ServerSpec& server = cluster.server_of_kind(kind);
    if (server.nics <= server.gpus) continue;
    const std::int64_t fewest = server.nics / server.gpus;
    const std::int64_t own = divide_up(std::int64_t{server.nics}, server.gpus);
    most = std::max(most, own);
    if (parts <= kMost) parts = std::lcm(parts, std::lcm(fewest, own));
  }
  return static_cast<int>(parts > kMost ? most : parts);
}

Duration inter_latency(const ClusterSpec& cluster, int gpu_a, int gpu_b) {
  const int slots = cluster.gpu_slots();
  const int gpus = cluster.servers * slots;
  TRAINYARD_CHECK(gpu_a != gpu_b && 0 <= gpu_a && gpu_a < gpus && 0 <= gpu_b && gpu_b < gpus,
                  "from GPU {} to GPU {} of {}", gpu_a, gpu_b, gpus);
  const int a = gpu_a / slots, b = gpu_b / slots;
  const ServerSpec &server = cluster.server_at(a), &other = cluster.server_at(b);
  if (a == b) {
    if (server.intra == IntraKind::torus)
      return torus_hops(server.torus, gpu_a % slots, gpu_b % slots) * server.intra_latency;
    if (server.intra != IntraKind::nvlink_mesh) return server.intra_latency;
    std::vector<LinkId> unused;
    return ServerBoard(server).append_route(gpu_a % slots, gpu_b % slots, 0, unused);
  }
  const Fabric fabric = build_fabric(cluster, 0, 0);
  const auto leaf = [&](const ServerSpec& spec, int gpu) {
    return (gpu / slots * cluster.nic_slots() + nic_of(spec, gpu % slots)) / fabric.nics_per_leaf;
  };
  return (joins_by_pcie(server.intra) ? server.intra_latency : Duration{0}) + server.nic_latency +
         other.nic_latency + fabric.layers.front().latency +
         route_latency(fabric, leaf(server, gpu_a), leaf(other, gpu_b));
}

}  // namespace trainyard::topologies
