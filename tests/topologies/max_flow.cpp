// Edmonds and Karp: shortest augmenting paths, residual capacities per link. The slow and obvious
// way.
#include <limits>

#include "tests/support/rooms.h"
#include "tests/topologies/clusters.h"

namespace trainyard::test {
namespace {

struct Arc {
  std::size_t to;
  double left;
  std::size_t back;
};
using Residual = std::vector<std::vector<Arc>>;

void add(Residual& graph, std::size_t from, std::size_t to, double capacity) {
  graph[from].push_back({to, capacity, graph[to].size()});
  graph[to].push_back({from, 0, graph[from].size() - 1});
}

// The bandwidth of one shortest path that has some left, taken off it; 0 if there is none.
double augment(Residual& graph, std::size_t source, std::size_t sink) {
  std::vector<std::pair<std::size_t, std::size_t>> via(graph.size(), {graph.size(), 0});
  std::queue<std::size_t> queue;
  queue.push(source);
  for (; !queue.empty() && via[sink].first == graph.size(); queue.pop())
    for (std::size_t i = 0; i < graph[queue.front()].size(); ++i) {
      const Arc& arc = graph[queue.front()][i];
      if (arc.left <= 0 || arc.to == source || via[arc.to].first != graph.size()) continue;
      via[arc.to] = {queue.front(), i};
      queue.push(arc.to);
    }
  if (via[sink].first == graph.size()) return 0;
  double amount = std::numeric_limits<double>::infinity();
  for (std::size_t at = sink; at != source; at = via[at].first)
    amount = std::min(amount, graph[via[at].first][via[at].second].left);
  for (std::size_t at = sink; at != source; at = via[at].first) {
    Arc& arc = graph[via[at].first][via[at].second];
    arc.left -= amount;
    graph[at][arc.back].left += amount;
  }
  return amount;
}

}  // namespace

double max_flow(const Topology& topology, const std::vector<int>& sources,
                const std::vector<int>& sinks) {
  const std::size_t source = topology.nodes().size(), sink = source + 1;
  Residual graph(sink + 1);
  for (const Link& link : topology.links())
    add(graph, index(link.from), index(link.to), link.bandwidth.count());
  for (const int gpu : sources)
    add(graph, source, index(topology.gpu_node(gpu)), 1e18);
  for (const int gpu : sinks)
    add(graph, index(topology.gpu_node(gpu)), sink, 1e18);
  double total = 0;
  while (const double amount = augment(graph, source, sink))
    total += amount;
  return total;
}

}  // namespace trainyard::test
