#include "sim/lower/group_shape.h"

#include <algorithm>

#include "sim/base/check.h"

namespace trainyard::lower {

using cost::GroupShape;
using topologies::InsideGroup;
using topologies::IntraKind;
using topologies::ServerSpec;

namespace {

// What collectives between servers take beside hops and bytes.
void tell_nics(const ServerSpec& server, GroupShape& shape) {
  const auto own_or_rings = [&](const std::vector<StepTime>& own) {
    return std::span<const StepTime>(own.empty() ? server.nic_steps : own);
  };
  shape.nic = BytesPerSecond(server.nic_bandwidth.count() * server.nic_efficiency);
  shape.start = server.nic_start;
  shape.steps = server.nic_steps;
  shape.tree_steps = own_or_rings(server.nic_tree_steps);
  shape.exchange_steps = own_or_rings(server.nic_exchange_steps);
  shape.exchange_efficiency = server.nic_exchange_efficiency;
}

std::optional<nccl::Machine> nccl_machine(const ServerSpec& server) {
  const auto generation = nccl::generation_of(server.gpu.compute_capability);
  if (!generation) return std::nullopt;
  const bool switched = server.intra == IntraKind::nvswitch;
  return nccl::Machine{.generation = *generation,
                       .nvlink = switched || server.intra == IntraKind::nvlink_mesh,
                       .reducing_switch = switched && *generation >= nccl::Generation::hopper,
                       .channels = default_channels(server.intra)};
}

}  // namespace

int default_channels(IntraKind intra) {
  switch (intra) {
    case IntraKind::nvswitch: return 24;
    case IntraKind::nvlink_mesh: return 12;
    case IntraKind::pcie:
    case IntraKind::none: return 2;
    case IntraKind::torus: return 0;
  }
  return 2;
}

GroupShapes::GroupShapes(const topologies::ClusterSpec& cluster, const std::vector<int>& players,
                         bool flows)
    : cluster_(cluster), players_(players), flows_(flows) {
  if (cluster.servers > 1)
    furthest_ = inter_latency(cluster, 0, (cluster.servers - 1) * cluster.server.gpus);
}

Duration GroupShapes::latency_between(int gpu_a, int gpu_b) const {
  return flows_ ? inter_latency(cluster_, gpu_a, gpu_b) : furthest_;
}

const InsideGroup& GroupShapes::inside(const std::vector<int>& local) {
  const auto found = inside_.find(local);
  if (found != inside_.end()) return found->second;
  return inside_.emplace(local, inside_group(cluster_.server, local)).first->second;
}

// The slowest of the servers sets the pace.
void GroupShapes::add_inside(const std::vector<int>& local, GroupShape& shape) {
  if (local.size() < 2) return;
  const InsideGroup& own = inside(local);
  const bool first = shape.intra_bandwidth.count() == 0;
  shape.intra_bandwidth = first ? own.bandwidth : std::min(shape.intra_bandwidth, own.bandwidth);
  shape.intra_latency = std::max(shape.intra_latency, own.step);
  shape.inside_rings = first ? own.rings : std::min(shape.inside_rings, own.rings);
  shape.inside_exchange = first ? own.exchange : std::min(shape.inside_exchange, own.exchange);
}

// What a group's rings reach through the NICs of a server on which `members` of it sit. Of fewer
// members than rings each carries several rings.
BytesPerSecond GroupShapes::nic_share(int rings, int members, int server) const {
  const ServerSpec& spec = cluster_.server;
  const double all = server_nic_bandwidth(spec).count();
  const int carried = (rings + members - 1) / members;
  const double own = std::min(all, rings * spec.nic_bandwidth.count() * spec.nic_efficiency *
                                       std::max(1, spec.nics / spec.gpus) / carried);
  const int sharers = players_[static_cast<std::size_t>(server)];
  return BytesPerSecond(flows_ ? own : std::min(own, all * members / sharers));
}

// A group that lies unevenly over servers has as many rings as its fullest server has members, and
// goes at the pace of the server that is slowest, inside or at its NICs.
GroupShape GroupShapes::of_group(std::span<const int> gpus) {
  TRAINYARD_CHECK(gpus.size() >= 2, "a group of {}", gpus.size());
  const ServerSpec& server = cluster_.server;
  const topologies::GroupPlacement placement = place(cluster_, gpus);
  GroupShape shape;
  shape.ranks = static_cast<int>(gpus.size());
  shape.servers = placement.servers;
  shape.ranks_per_server = placement.gpus_per_server;
  shape.nccl = nccl_machine(server);
  shape.by_kernels = server.intra != IntraKind::torus;
  // Of a group that lies evenly one server stands for all.
  if (placement.even) add_inside(placement.local, shape);
  for (const std::vector<int>& local : placement.locals)
    if (!placement.even) add_inside(local, shape);
  if (shape.servers == 1) {
    if (!shape.by_kernels) shape.start = Duration{0};  // not NCCL's, and its own is not known
    return shape;
  }
  tell_nics(server, shape);
  for (std::size_t at = 0; at < placement.locals.size(); ++at) {
    const BytesPerSecond own =
        nic_share(shape.ranks_per_server, static_cast<int>(placement.locals[at].size()),
                  placement.numbers[at]);
    shape.inter_bandwidth = at == 0 ? own : std::min(shape.inter_bandwidth, own);
  }
  const int first = gpus.front() / server.gpus;
  const auto other =
      std::find_if(gpus.begin(), gpus.end(), [&](int gpu) { return gpu / server.gpus != first; });
  shape.inter_latency = latency_between(gpus.front(), *other);
  return shape;
}

GroupShape GroupShapes::of_pair(int from, int to, int crossing) {
  const ServerSpec& server = cluster_.server;
  GroupShape shape;
  shape.ranks = 2;
  shape.by_kernels = server.intra != IntraKind::torus;
  if (from / server.gpus == to / server.gpus) {
    shape.servers = 1;
    shape.ranks_per_server = 2;
    shape.intra_latency = inter_latency(cluster_, from, to);
    // On a torus one way, over links that others' messages may need as well.
    shape.intra_bandwidth =
        shape.by_kernels
            ? inside({std::min(from, to) % server.gpus, std::max(from, to) % server.gpus}).bandwidth
            : server.intra_bandwidth;
    return shape;
  }
  shape.servers = 2;
  shape.ranks_per_server = 1;
  tell_nics(server, shape);
  // A message uses the NIC of its rank.
  const double line = server.nic_bandwidth.count() * server.nic_efficiency;
  const double all = server_nic_bandwidth(server).count();
  shape.inter_bandwidth =
      BytesPerSecond(flows_ ? line : std::min(line, all / std::max(1, crossing)));
  shape.inter_latency = latency_between(from, to);
  return shape;
}

}  // namespace trainyard::lower
