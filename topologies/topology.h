// The cluster as a frozen graph of GPUs, switches, NICs and host bridges joined by directed links.
//
// Boost.Graph stays in the .cpp. Routes are computed on demand (one server is routed once and
// serves all servers of its kind; the fabric is routed by its structure), so a cluster of thousands
// of servers needs no all-pairs table.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "sim/base/ids.h"
#include "sim/base/units.h"
#include "topologies/cluster.h"

namespace trainyard::topologies {

enum class NodeKind : std::uint8_t { gpu, nvswitch, host_bridge, nic, leaf, spine, core };
enum class LinkKind : std::uint8_t { nvlink, pcie, socket, network };

struct Node {
  NodeKind kind;
  int server;  // -1 for switches of the fabric
  int local;   // index among the nodes of this kind in the server (GPU 3, NIC 3) or in the fabric;
               // of a Clos level, whatever its kind, the index of the switch group in its level
};

struct Link {
  NodeId from, to;
  LinkKind kind;
  BytesPerSecond bandwidth;
  Duration latency;
};

// Links in order from source to destination. In a server NVLink if it joins the two GPUs, else
// PCIe; then fewest hops, then least latency, then lowest link ids. In the fabric up to the lowest
// common switches and down again, in a dragonfly by the fewest hops; among the equal paths the one
// that (from, to, stripe) hashes to (ECMP).
struct Route {
  std::vector<LinkId> links;
  Duration latency{};  // sum over the links
};

//
// Where latency is charged, so that a route's sum is right: a NIC's on each link between NIC and
// leaf; a switch's on the links into it; the server's intra_latency on GPU -> NVSwitch (0 on the
// way back), on each direct NVLink, and on GPU -> host bridge where PCIe is what joins the GPUs.
class Topology {
 public:
  // Requires: check(cluster) found no error. Linear in the number of links.
  explicit Topology(const ClusterSpec& cluster);
  ~Topology();
  Topology(Topology&&) noexcept;
  Topology& operator=(Topology&&) noexcept;

  const ClusterSpec& cluster() const;
  int gpus() const;  // numbers of the whole cluster: ClusterSpec::gpu_slots() for each server
  int server_of(int gpu) const;
  NodeId gpu_node(int gpu) const;

  const IdVector<NodeId, Node>& nodes() const&;
  const IdVector<LinkId, Link>& links() const&;
  void nodes() && = delete;  // they would outlive the topology
  void links() && = delete;
  std::string name(NodeId node) const;  // "server 3 / GPU 5", "leaf 2"
  std::string name(LinkId link) const;  // "server 3 / GPU 5 -> server 3 / NVSwitch 0"

  // The way of one of the equal parts of what a GPU sends to another: of stripes(cluster()), part i
  // takes the i-th NIC of either, and again from the first where there are fewer.
  // Requires: from != to, both below gpus(); 0 <= stripe < stripes(cluster()). Throws nothing: the
  // builders make connected graphs. O(length of the route).
  Route route(int from_gpu, int to_gpu, int stripe = 0) const;

  // The links of one NIC to and from its leaf. Requires: the cluster has a fabric (more than one
  // server), server and nic in range.
  std::pair<LinkId, LinkId> nic_links(int server, int nic) const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// Aggregate ring bus bandwidth of `gpus` (distinct local indices, at least two) inside one server:
// on an NVSwitch the per-GPU bandwidth; on an NVLink mesh the most edge-disjoint directed
// Hamiltonian rings times the link bandwidth (rings.h), or PCIe where no ring exists; on PCIe one
// x16 link, 5/6 of it (and at most the socket link, which `crossing` groups divide) where the ring
// crosses sockets; with intra `none` half of that; on a torus that of torus_group. Source:
// docs/topologies.md.
BytesPerSecond ring_bandwidth(const ServerSpec& server, const std::vector<int>& gpus,
                              int crossing = 1);

// What the links inside one server give a group of its GPUs.
struct InsideGroup {
  BytesPerSecond bandwidth;  // ring_bandwidth
  Duration step{};           // latency of one step of a ring
  int rings = 1;             // over which the bytes are spread; more on a mesh and a torus
  double exchange = 1;       // what an all-to-all reaches of the bandwidth
};
// Requires: as ring_bandwidth; on a torus ascending.
InsideGroup inside_group(const ServerSpec& server, const std::vector<int>& gpus, int crossing = 1);

}  // namespace trainyard::topologies
