// One server as a graph: GPUs, NVSwitch, host bridges and NICs. Servers of one kind are equal,
// so one board, routed once, serves them all by adding an offset to its ids.
#pragma once

#include <cstdint>
#include <vector>

#include "sim/base/ids.h"
#include "topologies/topology.h"

namespace trainyard::topologies {

// What a GPU's slot carries as far as the scenario says it: where PCIe joins the GPUs (intra pcie
// or none) that of `intra`, else of the host, else of the GPU (the slowest slot of different ones);
// elsewhere that of the host. 0: unsaid.
BytesPerSecond stated_pcie_bandwidth(const ServerSpec& server);

// The PCIe link of a NIC as the graph uses it: as stated; else all NICs of the server together,
// which never limits.
BytesPerSecond nic_pcie_bandwidth(const ServerSpec& server);

// The bandwidth between two host bridges: as stated, else enough for every device of the server.
BytesPerSecond socket_bandwidth(const ServerSpec& server);

// The PCIe link of a GPU as the graph uses it: as stated; else all NICs of the server together,
// which never limits what a GPU sends to them, and joins no GPUs; 0: no PCIe in the graph.
BytesPerSecond peer_pcie_bandwidth(const ServerSpec& server);

// The host bridge of device `local` of `count`; devices are spread over the sockets in order.
inline int socket_of(int local, int count, int sockets) {
  return local * sockets / count;
}

class ServerBoard {
 public:
  struct LocalLink {
    int from, to;  // indices into nodes()
    LinkKind kind;
    BytesPerSecond bandwidth;
    Duration latency;
  };

  // Requires: the server part of check() found no error, except that the graph may be disconnected.
  explicit ServerBoard(const ServerSpec& server);

  const std::vector<Node>& nodes() const { return nodes_; }  // server 0 in each
  const std::vector<LocalLink>& links() const { return links_; }
  int gpu(int local) const { return local; }               // its node
  int nic(int local) const { return first_nic_ + local; }  // its node

  // Whether a route exists. Requires: `to` is a GPU or a NIC.
  bool reaches(int from, int to) const { return from == to || next_link(from, to) != kNoLink; }
  // Appends the links of the route, `first` being the id of link 0 of this server, and returns the
  // latency. Requires: reaches(from, to).
  Duration append_route(int from, int to, std::uint32_t first, std::vector<LinkId>& route) const;

 private:
  static constexpr std::uint16_t kNone = 0xFFFF;  // in the table
  static constexpr std::uint32_t kNoLink = 0xFFFFFFFF;

  void add_nodes(NodeKind kind, int count);
  void add_cable(int a, int b, LinkKind kind, BytesPerSecond bandwidth, Duration there,
                 Duration back);
  void build_nvlink(const ServerSpec& server);
  void build_torus(const ServerSpec& server);
  void build_host(const ServerSpec& server);
  void route_by(bool nvlink);
  std::uint32_t next_link(int from, int to) const;
  std::uint32_t next_on_torus(int from, int to) const;

  std::vector<Node> nodes_;
  std::vector<LocalLink> links_;
  std::vector<std::uint16_t> next_;  // [destination][node]: the link to take, kNone: no route
  // Of a torus, whose thousands of GPUs would make a large table: its links by GPU, dimension and
  // direction, and the first link of each node of the host; the rest is arithmetic.
  TorusGrid torus_;
  std::vector<std::uint32_t> torus_links_;
  std::uint32_t first_host_link_ = 0;
  int sockets_ = 0;
  int first_nic_ = 0;
};

}  // namespace trainyard::topologies
