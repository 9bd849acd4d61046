// Where the GPUs of a group sit in a cluster, and what follows for its communication.
#pragma once

#include <span>
#include <vector>

#include "topologies/rings.h"
#include "topologies/topology.h"

namespace trainyard::topologies {

// The GPUs of each server that holds any, ascending. Cost: O(n) if they come in ascending order of
// server, else O(n log n).
std::vector<std::vector<int>> by_server(std::span<const int> gpus, int gpus_per_server);

struct GroupPlacement {
  int servers = 0;           // that hold at least one GPU of the group
  int gpus_per_server = 0;   // on the server that holds most
  bool even = true;          // all servers hold the same number
  bool same_local = true;    // all hold the same local indices, so that all peers share a rail
  std::vector<int> local;    // local indices on the server of the first GPU, ascending
  std::vector<int> numbers;  // of the servers, ascending
  std::vector<std::vector<int>> locals;  // local indices on each of them, ascending
};

// Requires: the GPUs are distinct and of the cluster. O(group size) if they come in ascending order
// of server, else O(group size * log).
GroupPlacement place(const ClusterSpec& cluster, std::span<const int> gpus);

// The rings that a group on an NVLink mesh takes; none where another way is faster or the only one.
// Requires: as ring_bandwidth.
RingPacking mesh_rings(const ServerSpec& server, const std::vector<int>& gpus);

// Of the groups of one kind that `in_use` GPUs of a server divide among themselves, those whose
// rings cross sockets, where `gpus` (ascending) does: the others have the same distances, moved, as
// in a grid of ranks. At least 1.
int crossing_groups(const ServerSpec& server, const std::vector<int>& gpus, int in_use);

// What all NICs of one server carry together in each direction: nics * bandwidth * efficiency.
BytesPerSecond server_nic_bandwidth(const ServerSpec& server);

// The first NIC that a GPU uses and how many it has, more than one only where there are more NICs
// than GPUs. Requires: nics > 0.
int nic_of(const ServerSpec& server, int local_gpu);
int nics_of(const ServerSpec& server, int local_gpu);

// Into how many equal parts what a GPU sends to another server is divided, so that all its NICs
// carry as many of them: the least common multiple of how many NICs the cluster's GPUs have, but
// beyond 64 the most that one of them has. One where no server has another to send to.
int stripes(const ClusterSpec& cluster);

// The latency of the route between two GPUs of the cluster, that of Topology::route (of its
// first stripe), without building the graph. O(tiers); inside an NVLink mesh the
// routing of its board. Requires: gpu_a != gpu_b, both of the cluster.
Duration inter_latency(const ClusterSpec& cluster, int gpu_a, int gpu_b);

}  // namespace trainyard::topologies
