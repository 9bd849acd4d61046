// What the time of a communication depends on: where its ranks sit and what they share.
#pragma once

#include <map>
#include <span>
#include <tuple>
#include <vector>

#include "sim/base/ids.h"
#include "sim/cost/cost.h"
#include "topologies/group_placement.h"
#include "topologies/topology.h"

namespace trainyard::lower {

// NCCL's rings per kind of connection. Source: its own log on DGX A100 and HGX H100 ("24 coll
// channels"), DGX-1V (12) and PCIe servers (one ring, doubled).
int default_channels(topologies::IntraKind intra);

// GPUs are numbered server after server: GPU 3 of server 2 of eight is 19.
class GroupShapes {
 public:
  // With `flows` the links themselves share bandwidth, so a group is offered all NICs and sockets'
  // links it can reach; without, its part while all groups of its kind communicate at once, and the
  // latency between the two servers furthest apart: a group's slowest hop sets its pace, and ranks
  // whose groups differ only in the switches they cross stay alike.
  // `players`: by server, how many sit on its GPUs; they share its NICs and sockets' links.
  GroupShapes(const topologies::ClusterSpec& cluster, const std::vector<int>& players, bool flows);

  // Of a collective's group. Requires: at least two ranks.
  cost::GroupShape of_group(std::span<const int> gpus);

  // Of a message between two ranks; `crossing` ranks of the sender's server send to another one at
  // the same time.
  cost::GroupShape of_pair(int from, int to, int crossing);

 private:
  const topologies::InsideGroup& inside(int server, const std::vector<int>& local);
  void add_inside(int server, const std::vector<int>& local, cost::GroupShape& shape);
  void tell_machine(std::span<const int> gpus, cost::GroupShape& shape) const;
  void tell_slowest_nics(std::span<const int> servers, cost::GroupShape& shape) const;
  BytesPerSecond nic_share(int rings, int members, int server) const;
  Duration latency_between(int gpu_a, int gpu_b) const;

  const topologies::ClusterSpec& cluster_;
  const std::vector<int>& players_;
  bool flows_;
  Duration furthest_{};
  int slots_;  // numbers that a server takes
  std::vector<topologies::GpuKind> kinds_;
  // Kind of server, groups that share its socket links, GPUs. Packing a mesh is a search.
  using InsideKey = std::tuple<int, int, std::vector<int>>;
  std::map<InsideKey, topologies::InsideGroup> inside_;
};

}  // namespace trainyard::lower
