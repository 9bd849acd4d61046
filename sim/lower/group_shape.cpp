#include "sim/lower/group_shape.h"

#include <algorithm>
#include <map>

#include "sim/base/check.h"

namespace trainyard::lower {

using cost::GroupShape;
using topologies::ServerSpec;

GroupShapes::GroupShapes(const topologies::ClusterSpec& cluster, const std::vector<int>& players,
                         bool flows)
    : cluster_(cluster), players_(players), flows_(flows) {
  if (cluster.servers > 1)
    furthest_ = inter_latency(cluster, 0, (cluster.servers - 1) * cluster.server.gpus);
}

Duration GroupShapes::latency_between(int gpu_a, int gpu_b) const {
  return flows_ ? inter_latency(cluster_, gpu_a, gpu_b) : furthest_;
}

BytesPerSecond GroupShapes::ring(const std::vector<int>& local) {
  const auto found = ring_.find(local);
  if (found != ring_.end()) return found->second;
  const BytesPerSecond bandwidth = ring_bandwidth(cluster_.server, local);
  ring_.emplace(local, bandwidth);
  return bandwidth;
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
  std::map<int, std::vector<int>> local_of;  // by server
  for (const int gpu : gpus)
    local_of[gpu / server.gpus].push_back(gpu % server.gpus);
  GroupShape shape;
  shape.ranks = static_cast<int>(gpus.size());
  shape.servers = static_cast<int>(local_of.size());
  bool even = true;
  for (const auto& [at, local] : local_of) {
    const int members = static_cast<int>(local.size());
    even = even && members == static_cast<int>(local_of.begin()->second.size());
    shape.ranks_per_server = std::max(shape.ranks_per_server, members);
  }
  const int first = gpus.front() / server.gpus;
  for (auto& [at, local] : local_of) {
    const int members = static_cast<int>(local.size());
    std::sort(local.begin(), local.end());
    if (members > 1 && (!even || at == first)) {
      const BytesPerSecond inside = ring(local);
      shape.intra_bandwidth =
          shape.intra_bandwidth.count() == 0 ? inside : std::min(shape.intra_bandwidth, inside);
      shape.intra_latency = server.intra_latency;
    }
    if (shape.servers == 1) continue;
    const BytesPerSecond share = nic_share(shape.ranks_per_server, members, at);
    shape.inter_bandwidth =
        shape.inter_bandwidth.count() == 0 ? share : std::min(shape.inter_bandwidth, share);
    if (at != first && shape.inter_latency == Duration(0)) {
      const auto other = std::find_if(gpus.begin(), gpus.end(),
                                      [&](int gpu) { return gpu / server.gpus != first; });
      shape.inter_latency = latency_between(gpus.front(), *other);
    }
  }
  return shape;
}

GroupShape GroupShapes::of_pair(int from, int to, int crossing) {
  const ServerSpec& server = cluster_.server;
  GroupShape shape;
  shape.ranks = 2;
  if (from / server.gpus == to / server.gpus) {
    shape.servers = 1;
    shape.ranks_per_server = 2;
    shape.intra_bandwidth =
        ring({std::min(from, to) % server.gpus, std::max(from, to) % server.gpus});
    shape.intra_latency = inter_latency(cluster_, from, to);
    return shape;
  }
  shape.servers = 2;
  shape.ranks_per_server = 1;
  // A message uses the NIC of its rank.
  const double line = server.nic_bandwidth.count() * server.nic_efficiency;
  const double all = server_nic_bandwidth(server).count();
  shape.inter_bandwidth =
      BytesPerSecond(flows_ ? line : std::min(line, all / std::max(1, crossing)));
  shape.inter_latency = latency_between(from, to);
  return shape;
}

}  // namespace trainyard::lower
