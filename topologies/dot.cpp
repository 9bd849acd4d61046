#include <fmt/format.h>

#include "sim/base/text.h"
#include "topologies/topology.h"

namespace trainyard::topologies {

std::string to_dot(const Topology& topology) {
  std::string text = "digraph cluster {\n";
  for (const NodeId node : topology.nodes().ids()) {
    std::string label;
    for (const char c : escape_control(topology.name(node))) {
      if (c == '"' || c == '\\') label += '\\';
      label += c;
    }
    text += fmt::format("  n{} [label=\"{}\"];\n", index(node), label);
  }
  for (const Link& link : topology.links())
    text += fmt::format("  n{} -> n{} [label=\"{} GB/s, {}\"];\n", index(link.from), index(link.to),
                        shortest(link.bandwidth.count() / 1e9), to_text(link.latency));
  return text + "}\n";
}

}  // namespace trainyard::topologies
