#include "sim/lower/group_shape.h"

#include <algorithm>

#include "sim/base/check.h"

namespace trainyard::lower {

using cost::GroupShape;

GroupShapes::GroupShapes(const topologies::ClusterSpec& cluster, bool flows)
    : cluster_(cluster), flows_(flows) {
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

GroupShape GroupShapes::of_group(std::span<const int> gpus) {
  TRAINYARD_CHECK(gpus.size() >= 2, "a group of {}", gpus.size());
  const topologies::GroupPlacement placement = place(cluster_, gpus);
  const topologies::ServerSpec& server = cluster_.server;
  GroupShape shape;
  shape.ranks = static_cast<int>(gpus.size());
  shape.servers = placement.servers;
  shape.ranks_per_server = placement.gpus_per_server;
  if (placement.gpus_per_server > 1) {
    shape.intra_bandwidth = ring(placement.local);
    shape.intra_latency = server.intra_latency;
  }
  if (placement.servers > 1) {
    const double all = server_nic_bandwidth(server).count();
    const double members = placement.gpus_per_server;
    const double own =
        std::min(all, members * server.nic_bandwidth.count() * server.nic_efficiency *
                          std::max(1, server.nics / server.gpus));
    shape.inter_bandwidth =
        BytesPerSecond(flows_ ? own : std::min(own, all * members / server.gpus));
    const int per_server = server.gpus;
    const auto other = std::find_if(gpus.begin(), gpus.end(), [&](int gpu) {
      return gpu / per_server != gpus.front() / per_server;
    });
    shape.inter_latency = latency_between(gpus.front(), *other);
  }
  return shape;
}

GroupShape GroupShapes::of_pair(int from, int to, int crossing) {
  const topologies::ServerSpec& server = cluster_.server;
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
