// The cluster as a frozen graph of GPUs, switches, NICs and host bridges joined by directed links.
//
// Boost.Graph stays in the .cpp. Routes are computed on demand (one server is routed once and serves
// all servers of its kind; the fabric is routed by its structure), so a cluster of thousands of servers
// needs no all-pairs table.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "sim/base/ids.h"
#include "sim/base/units.h"
#include "topologies/cluster.h"

namespace trainyard {

enum class NodeKind : std::uint8_t { gpu, nvswitch, host_bridge, nic, leaf, spine, core };
enum class LinkKind : std::uint8_t { nvlink, pcie, socket, network };

struct Node {
  NodeKind kind;
  int server;  // -1 for switches of the fabric
  int local;   // index among the nodes of this kind in the server (GPU 3, NIC 3) or in the fabric
};

struct Link {
  NodeId from, to;
  LinkKind kind;
  BytesPerSecond bandwidth;
  Duration latency;
};

// Links in order from source to destination. Fewest hops, then least latency, then lowest link ids;
// among equal fabric paths the one that (from, to) hashes to (ECMP).
struct Route {
  std::vector<LinkId> links;
  Duration latency{};  // sum over the links
};

class Topology {
 public:
  explicit Topology(const ClusterSpec& cluster);
  ~Topology();
  Topology(Topology&&) noexcept;
  Topology& operator=(Topology&&) noexcept;

  const ClusterSpec& cluster() const;
  int gpus() const;               // of the whole cluster
  int server_of(int gpu) const;   // GPU g is number g % gpus_per_server of server g / gpus_per_server
  NodeId gpu_node(int gpu) const;

  const IdVector<NodeId, Node>& nodes() const;
  const IdVector<LinkId, Link>& links() const;
  std::string name(NodeId node) const;  // "server 3 / GPU 5", "leaf 2"
  std::string name(LinkId link) const;  // "server 3 / GPU 5 -> server 3 / NVSwitch 0"

  // Requires: from != to, both below gpus(). Throws nothing: the builders make connected graphs.
  Route route(int from_gpu, int to_gpu) const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// Aggregate ring bus bandwidth of `gpus` (local indices) inside one server: on an NVSwitch the
// per-GPU bandwidth, on an NVLink mesh the most edge-disjoint directed Hamiltonian rings times the link
// bandwidth, on PCIe one x16 link (5/6 of it across an Intel root complex).
// Source: docs/topologies.md; exact packing by exhaustive search, at most 8 GPUs.
BytesPerSecond ring_bandwidth(const ServerSpec& server, const std::vector<int>& gpus);

}  // namespace trainyard
