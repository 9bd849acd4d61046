#include "sim/lower/flows/flow_layout.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "sim/base/check.h"
#include "sim/cost/routed_exchange.h"
#include "sim/lower/flows/flow_paths.h"

namespace trainyard::lower {

using collective::AlgorithmEntry;
using collective::Edge;
using collective::Group;
using collective::Share;
using cost::GroupShape;
using cost::MessageTerms;

namespace {

constexpr std::string_view kPairwise = "pairwise";

// The largest share of which each of the two is a multiple.
Share common_part(Share a, Share b) {
  return {std::gcd(a.numerator() * b.denominator(), b.numerator() * a.denominator()),
          a.denominator() * b.denominator()};
}

int multiple(Share share, Share unit) {
  return static_cast<int>(share.numerator() * unit.denominator() /
                          (share.denominator() * unit.numerator()));
}

// Every pair inside a server, and one peer in each other server, who is at another place for each,
// so that flows meet in the fabric as those of all pairs do.
std::vector<FlowEdge> pairs_of_servers(const Group& group) {
  const int g = group.per_server;
  std::vector<FlowEdge> edges;
  for (int from = 0; from < group.ranks; ++from) {
    const int server = from / g;
    for (int to = server * g; to < (server + 1) * g; ++to)
      if (to != from) edges.push_back({from, to, 1});
    for (int other = 0; other < group.servers; ++other) {
      const int turn = (other - server + group.servers) % group.servers;
      if (other != server) edges.push_back({from, other * g + (from + turn) % g, g, true});
    }
  }
  return edges;
}

// Rows cross once to each server, to the rank of the sender's place, and are passed on inside. The
// bytes of the two kinds of edges are related as eighths.
constexpr int kEighths = 8;
std::vector<FlowEdge> routed_edges(const models::Routing& routing, const Group& group) {
  const int g = group.per_server, servers = group.servers;
  const double between = parts_visited(routing, servers) / servers;
  const double inside = parts_visited(routing, group.ranks) / g;
  const int weight = std::max(1, static_cast<int>(std::lround(kEighths * inside / between)));
  std::vector<FlowEdge> edges;
  for (int from = 0; from < group.ranks; ++from) {
    for (int other = 0; other < servers; ++other)
      if (other != from / g) edges.push_back({from, other * g + from % g, kEighths, true});
    for (int place = 0; place < g; ++place)
      if (place != from % g) edges.push_back({from, from / g * g + place, weight});
  }
  return edges;
}

bool goes_by_servers(const FlowLayout& layout, const Group& group) {
  return layout.routing.experts > 0 && group.servers > 1 && group.even();
}

// One of equal parts.
MessageTerms part_of(const MessageTerms& terms, int parts) {
  MessageTerms unit = terms;
  unit.wire_bytes = Bytes((terms.wire_bytes.count() + parts - 1) / parts);
  unit.bandwidth = terms.bandwidth / parts;
  return unit;
}

std::string where_of(CollectiveKind kind, const Group& group) {
  return fmt::format("here {} is over {} ranks on {} server{}", name(kind), group.ranks,
                     group.servers, group.servers > 1 ? "s" : "");
}

void require_algorithm(CollectiveKind kind, const AlgorithmEntry& chosen, const GroupShape& shape) {
  const Group group = group_of(shape);
  const std::string objection = chosen.objection(kind, group);
  if (objection.empty()) return;
  std::string others = "auto";
  for (const AlgorithmEntry& entry : collective::algorithms())
    if (entry.supports(kind, group)) others += fmt::format(", {}", entry.name);
  throw UnsupportedCollective{
      kind, false, fmt::format("{} {}, and {}", chosen.name, objection, where_of(kind, group)),
      "possible there: " + others};
}

void require_protocol(CollectiveKind kind, const AlgorithmEntry* algorithm, nccl::Protocol chosen,
                      const GroupShape& shape) {
  std::string others = "auto";
  for (const nccl::Protocol protocol : nccl::kProtocols) {
    const std::vector<nccl::Choice> choices = nccl_choices(kind, algorithm, Bytes(1 << 20), shape);
    if (std::none_of(choices.begin(), choices.end(), [protocol](const nccl::Choice& choice) {
          return choice.protocol == protocol;
        }))
      continue;
    if (protocol == chosen) return;
    others += fmt::format(", {}", name(protocol));
  }
  throw UnsupportedCollective{kind, true,
                              fmt::format("NCCL has no {} by {}, and {}{}",
                                          algorithm != nullptr ? algorithm->name : name(kind),
                                          name(chosen), where_of(kind, group_of(shape)),
                                          !shape.nccl          ? ", of GPUs without NCCL"
                                          : shape.nccl->nvlink ? ""
                                                               : " without NVLink"),
                              "possible there: " + others};
}

}  // namespace

void require_support(CollectiveKind kind, const collective::Choice& chosen,
                     const GroupShape& shape) {
  if (chosen.algorithm != nullptr) require_algorithm(kind, *chosen.algorithm, shape);
  if (chosen.protocol && shape.ranks > 1)
    require_protocol(kind, chosen.algorithm, *chosen.protocol, shape);
}

FlowLayout flow_layout(CollectiveKind kind, const models::Routing& routing,
                       const AlgorithmEntry* chosen) {
  if (routing.experts > 0) return {collective::find_algorithm(kPairwise), kind, routing};
  if (chosen != nullptr) return {chosen, kind, {}};
  if (kind == CollectiveKind::all_to_all) return {collective::find_algorithm(kPairwise), kind, {}};
  return {};
}

const FlowLayouts::Spread& FlowLayouts::spread(const FlowLayout& layout, const Group& group) {
  const auto [at, added] = spreads_.try_emplace(
      {layout.algorithm->name, layout.kind, group.ranks, group.per_server, group.servers});
  Spread& spread = at->second;
  if (!added) return spread;
  TRAINYARD_CHECK(layout.algorithm->supports(layout.kind, group), "{} {}", layout.algorithm->name,
                  layout.algorithm->objection(layout.kind, group));
  if (layout.algorithm->name == kPairwise && group.ranks > kMostPairwise && group.servers > 1 &&
      group.even()) {
    spread.edges = pairs_of_servers(group);
    spread.unit = Share(1, group.ranks);
    return spread;
  }
  const std::vector<Edge> edges = layout.algorithm->edges(layout.kind, group);
  for (const Edge& edge : edges)
    spread.unit = edge.share == spread.unit ? spread.unit : common_part(spread.unit, edge.share);
  for (const Edge& edge : edges)
    spread.edges.push_back({edge.from, edge.to, multiple(edge.share, spread.unit)});
  return spread;
}

const std::vector<FlowEdge>& FlowLayouts::rings(std::span<const int> gpus,
                                                const topologies::ClusterSpec& cluster) {
  const int server = gpus.front() / cluster.gpu_slots();
  std::vector<int> seen(gpus.begin(), gpus.end());  // from the first server
  for (int& gpu : seen)
    gpu -= server * cluster.gpu_slots();
  const auto [at, added] = rings_.try_emplace({cluster.kind_of(server), std::move(seen)});
  if (added)
    for (const auto& [from, to] : ring_edges(gpus, cluster))
      at->second.push_back(
          {from - server * cluster.gpu_slots(), to - server * cluster.gpu_slots(), 1});
  return at->second;
}

std::vector<FlowEdge> FlowLayouts::edges(const FlowLayout& layout, std::span<const int> gpus,
                                         const topologies::ClusterSpec& cluster,
                                         const GroupShape& shape) {
  std::vector<FlowEdge> edges;
  if (layout.algorithm == nullptr) {
    const int first = gpus.front() / cluster.gpu_slots() * cluster.gpu_slots();
    edges = rings(gpus, cluster);
    for (FlowEdge& edge : edges)
      edge.from += first, edge.to += first;
    return edges;
  }
  const Group group = group_of(shape);
  edges = goes_by_servers(layout, group) ? routed_edges(layout.routing, group)
                                         : spread(layout, group).edges;
  std::vector<int> sorted(gpus.begin(), gpus.end());
  std::sort(sorted.begin(), sorted.end());
  for (FlowEdge& edge : edges) {
    edge.from = sorted[static_cast<std::size_t>(edge.from)];
    edge.to = sorted[static_cast<std::size_t>(edge.to)];
  }
  return edges;
}

MessageTerms FlowLayouts::per_unit(const FlowLayout& layout, const MessageTerms& terms, Bytes bytes,
                                   const GroupShape& shape) {
  if (layout.algorithm == nullptr)
    return part_of(terms, shape.servers == 1 ? shape.inside_rings
                                             : ring_count(shape.servers, shape.ranks_per_server));
  const Group group = group_of(shape);
  if (goes_by_servers(layout, group)) return part_of(terms, kEighths * (group.servers - 1));
  if (layout.routing.experts > 0) return part_of(terms, group.ranks - 1);
  MessageTerms unit = terms;
  unit.wire_bytes = spread(layout, group).unit.of(bytes);
  if (terms.wire_bytes > Bytes(0))
    unit.bandwidth = BytesPerSecond(static_cast<double>(unit.wire_bytes.count()) /
                                    (terms.wire_bytes / terms.bandwidth).count());
  return unit;
}

bool is_exchange(const FlowLayout& layout) {
  return layout.algorithm != nullptr && layout.algorithm->name == kPairwise;
}

void load_edges(std::vector<FlowEdge>& edges, const std::map<int, double>& load,
                const topologies::ClusterSpec& cluster) {
  struct Sum {
    double load = 0;
    int gpus = 0;
  };
  std::map<int, Sum> servers;
  for (const auto& [gpu, own] : load) {
    Sum& sum = servers[gpu / cluster.gpu_slots()];
    sum.load += own;
    ++sum.gpus;
  }
  for (FlowEdge& edge : edges) {
    const Sum& there = servers.at(edge.to / cluster.gpu_slots());
    edge.load = edge.for_server ? there.load / there.gpus : load.at(edge.to);
  }
}

std::uint32_t number_in(std::vector<FlowLayout>& known, const FlowLayout& layout) {
  const auto at = std::find(known.begin(), known.end(), layout);
  const auto number = static_cast<std::uint32_t>(at - known.begin());
  if (at == known.end()) known.push_back(layout);
  return number;
}

MessageTerms collective_terms(const cost::MessageCost& messages, CollectiveKind kind,
                              const models::Routing& routing, const collective::Choice& chosen,
                              Bytes bytes, const GroupShape& shape) {
  if (routing.experts > 0)
    return hierarchical_all_to_all(messages, shared_rows(routing, bytes, shape), shape);
  require_support(kind, chosen, shape);
  return messages.collective(kind, chosen, bytes, shape);
}

}  // namespace trainyard::lower
