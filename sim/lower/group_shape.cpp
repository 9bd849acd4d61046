#include "sim/lower/group_shape.h"

#include <algorithm>
#include <array>

#include "sim/base/check.h"
#include "topologies/server_board.h"

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

std::optional<nccl::Machine> nccl_machine(const ServerSpec& server,
                                          const topologies::GpuSpec& gpu) {
  const auto generation = nccl::generation_of(gpu.compute_capability);
  if (!generation) return std::nullopt;
  const bool switched = server.intra == IntraKind::nvswitch;
  return nccl::Machine{.generation = *generation,
                       .nvlink = switched || server.intra == IntraKind::nvlink_mesh,
                       .reducing_switch = switched && *generation >= nccl::Generation::hopper,
                       .channels = default_channels(server.intra)};
}

// What both have.
std::optional<nccl::Machine> common(const std::optional<nccl::Machine>& a,
                                    const std::optional<nccl::Machine>& b) {
  if (!a || !b) return std::nullopt;
  return nccl::Machine{.generation = std::min(a->generation, b->generation),
                       .nvlink = a->nvlink && b->nvlink,
                       .reducing_switch = a->reducing_switch && b->reducing_switch,
                       .channels = std::min(a->channels, b->channels)};
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
    : cluster_(cluster),
      players_(players),
      flows_(flows),
      slots_(cluster.gpu_slots()),
      kinds_(gpu_kinds(cluster)) {
  std::vector<int> ends;  // the first and the last server of each kind
  for (int server = 0; server < cluster.servers; ++server) {
    const bool starts = server == 0 || cluster.kind_of(server) != cluster.kind_of(server - 1);
    const bool last =
        server + 1 == cluster.servers || cluster.kind_of(server) != cluster.kind_of(server + 1);
    if (starts || last) ends.push_back(server);
  }
  for (const int from : ends)
    for (const int to : ends)
      if (from != to)
        furthest_ = std::max(furthest_, inter_latency(cluster, from * slots_, to * slots_));
}

Duration GroupShapes::latency_between(int gpu_a, int gpu_b) const {
  return flows_ ? inter_latency(cluster_, gpu_a, gpu_b) : furthest_;
}

const InsideGroup& GroupShapes::inside(int server, const std::vector<int>& local) {
  const ServerSpec& spec = cluster_.server_at(server);
  const int in_use = players_[static_cast<std::size_t>(server)];
  const int crossing = flows_ ? 1 : crossing_groups(spec, local, in_use);
  const InsideKey key{cluster_.kind_of(server), crossing, local};
  const auto found = inside_.find(key);
  if (found != inside_.end()) return found->second;
  return inside_.emplace(key, inside_group(spec, local, crossing)).first->second;
}

// The slowest of the servers sets the pace.
void GroupShapes::add_inside(int server, const std::vector<int>& local, GroupShape& shape) {
  if (local.size() < 2) return;
  const InsideGroup& own = inside(server, local);
  const bool first = shape.intra_bandwidth.count() == 0;
  shape.intra_bandwidth = first ? own.bandwidth : std::min(shape.intra_bandwidth, own.bandwidth);
  shape.intra_latency = std::max(shape.intra_latency, own.step);
  shape.inside_rings = first ? own.rings : std::min(shape.inside_rings, own.rings);
  shape.inside_exchange = first ? own.exchange : std::min(shape.inside_exchange, own.exchange);
}

// The laws are those of the GPU that moves its own memory slowest. NCCL tunes for the oldest GPU of
// a communicator. Source: NCCL, src/graph/tuning.cc (minCompCap).
void GroupShapes::tell_machine(std::span<const int> gpus, GroupShape& shape) const {
  shape.gpu_kinds = 0;
  for (const int gpu : gpus) {
    const int kind = kinds_.size() == 1 ? 0 : gpu_kind_of(cluster_, gpu / slots_, gpu % slots_);
    shape.gpu_kinds |= std::uint64_t{1} << kind;
    if (kinds_.size() == 1) break;
  }
  const topologies::GpuKind* slowest = nullptr;
  for (std::size_t kind = 0; kind < kinds_.size(); ++kind) {
    if ((shape.gpu_kinds >> kind & 1) == 0) continue;
    const topologies::GpuKind& own = kinds_[kind];
    const std::optional<nccl::Machine> machine = nccl_machine(*own.server, *own.gpu);
    shape.nccl = slowest == nullptr ? machine : common(shape.nccl, machine);
    shape.by_kernels =
        shape.by_kernels && own.server->intra != IntraKind::torus && !own.gpu->is_cpu();
    if (slowest != nullptr && slowest->gpu->memory_bandwidth <= own.gpu->memory_bandwidth) continue;
    slowest = &own;
    shape.gpu_kind = static_cast<int>(kind);
  }
}

void GroupShapes::tell_slowest_nics(std::span<const int> servers, GroupShape& shape) const {
  const auto nics = [this](int server) {
    return server_nic_bandwidth(cluster_.server_at(server)).count();
  };
  const auto slowest = std::min_element(servers.begin(), servers.end(),
                                        [&](int a, int b) { return nics(a) < nics(b); });
  tell_nics(cluster_.server_at(*slowest), shape);
}

// What a group's rings reach through the NICs of a server on which `members` of it sit. Of fewer
// members than rings each carries several rings.
BytesPerSecond GroupShapes::nic_share(int rings, int members, int server) const {
  const ServerSpec& spec = cluster_.server_at(server);
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
  const topologies::GroupPlacement placement = place(cluster_, gpus);
  GroupShape shape;
  shape.ranks = static_cast<int>(gpus.size());
  shape.servers = placement.servers;
  shape.ranks_per_server = placement.gpus_per_server;
  tell_machine(gpus, shape);
  // Of a group that lies evenly over equal servers one stands for all.
  const bool alike = placement.even && cluster_.kinds() == 1;
  if (alike) add_inside(gpus.front() / slots_, placement.local, shape);
  for (std::size_t at = 0; at < placement.locals.size() && !alike; ++at)
    add_inside(placement.numbers[at], placement.locals[at], shape);
  if (shape.servers == 1) {
    if (!shape.by_kernels) shape.start = Duration{0};  // not NCCL's, and its own is not known
    return shape;
  }
  tell_slowest_nics(placement.numbers, shape);
  for (std::size_t at = 0; at < placement.locals.size(); ++at) {
    const BytesPerSecond own =
        nic_share(shape.ranks_per_server, static_cast<int>(placement.locals[at].size()),
                  placement.numbers[at]);
    shape.inter_bandwidth = at == 0 ? own : std::min(shape.inter_bandwidth, own);
  }
  const int first = gpus.front() / slots_;
  const auto other =
      std::find_if(gpus.begin(), gpus.end(), [&](int gpu) { return gpu / slots_ != first; });
  shape.inter_latency = latency_between(gpus.front(), *other);
  return shape;
}

GroupShape GroupShapes::of_pair(int from, int to, int crossing) {
  GroupShape shape;
  shape.ranks = 2;
  const std::array<int, 2> pair = {from, to}, servers = {from / slots_, to / slots_};
  tell_machine(pair, shape);
  shape.nccl.reset();  // which has no say in messages
  const ServerSpec &source = cluster_.server_at(servers[0]),
                   &other = cluster_.server_at(servers[1]);
  if (servers[0] == servers[1]) {
    shape.servers = 1;
    shape.ranks_per_server = 2;
    shape.intra_latency = inter_latency(cluster_, from, to);
    // On a torus one way, over links that others' messages may need as well.
    shape.intra_bandwidth =
        shape.by_kernels
            ? inside(servers[0], {std::min(from, to) % slots_, std::max(from, to) % slots_})
                  .bandwidth
        : joins_by_pcie(source.intra) ? peer_pcie_bandwidth(source)
                                      : source.intra_bandwidth;
    return shape;
  }
  shape.servers = 2;
  shape.ranks_per_server = 1;
  tell_slowest_nics(servers, shape);
  // A message uses the NICs of its rank.
  const auto line = [](const ServerSpec& server) {
    return std::max(1, server.nics / server.gpus) * server.nic_bandwidth.count() *
           server.nic_efficiency;
  };
  const double slowest = std::min(line(source), line(other));
  const double all = std::min(server_nic_bandwidth(source), server_nic_bandwidth(other)).count();
  shape.inter_bandwidth =
      BytesPerSecond(flows_ ? slowest : std::min(slowest, all / std::max(1, crossing)));
  shape.inter_latency = latency_between(from, to);
  return shape;
}

}  // namespace trainyard::lower
