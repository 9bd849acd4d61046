// Which links a group's rings and a pair's message use.
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "topologies/topology.h"

namespace trainyard::lower {

// How many rings a collective splits its bytes over: one inside a server (on a torus those of its
// dimensions, on an NVLink mesh those that it packs: GroupShape::inside_rings); across servers one
// for every rank that the group has on a server, each entering and leaving at another rank so that
// all their NICs work. Source: NCCL's ring search (connect.cc), cost-models A1.
int ring_count(int servers, int ranks_per_server);

// (from, to) of every edge of those rings. GPUs of one server stay together in each ring.
std::vector<std::pair<int, int>> ring_edges(std::span<const int> gpus,
                                            const topologies::ClusterSpec& cluster);

// Paths name a link as often as stripes pass it (topologies::stripes), and capacities are as many
// times those of the links as there are stripes: so what a GPU sends is divided over its NICs.

// Of all links of the topology, in bytes/s, and of all stripes.
std::vector<double> link_capacities(const topologies::Topology& topology);

// The links between two GPUs, by number. Without the first or the last link of every stripe where
// an end is a host, at which the GPU's cable begins.
struct HostEnds {
  bool from = false, to = false;
};
std::vector<std::uint32_t> route_links(const topologies::Topology& topology, int from_gpu,
                                       int to_gpu, HostEnds hosts = {});

// Of links that all stripes pass.
std::vector<std::uint32_t> in_stripes(const std::vector<std::uint32_t>& links, int stripes);

}  // namespace trainyard::lower
