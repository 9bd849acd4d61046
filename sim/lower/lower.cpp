#include "sim/lower/lower.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <optional>
#include <set>
#include <tuple>

#include "sim/base/check.h"
#include "sim/lower/flow_paths.h"
#include "sim/lower/group_shape.h"
#include "sim/lower/host_links.h"
#include "sim/lower/rank_classes.h"

namespace trainyard::lower {

using cost::ComputeCost;
using cost::GroupShape;
using cost::HostTransfer;
using cost::MessageCost;
using cost::MessageTerms;
using engine::ActorId;
using engine::KernelTimes;
using engine::Transfer;
using plan::ChannelPort;
using plan::CollectivePort;
using plan::CollectiveSpec;
using plan::StepPlan;
using recipe::Axis;
using recipe::RankGrids;
using topologies::ClusterSpec;
using topologies::Topology;

namespace {

// What an edge of the rank structure carries: the collectives of a port, or the messages that one
// end sends through a port.
struct Connection {
  bool is_group = true;
  std::uint8_t which = 0;  // CollectivePort or ChannelPort
  auto operator<=>(const Connection&) const = default;
};
Connection connection(CollectivePort port) {
  return {true, static_cast<std::uint8_t>(port)};
}
Connection connection(ChannelPort send) {
  return {false, static_cast<std::uint8_t>(send)};
}

struct EdgeInfo {
  Connection connection;
  std::uint32_t shape = 0;  // into shapes
};

auto as_key(const GroupShape& shape) {
  return std::make_tuple(shape.ranks, shape.servers, shape.ranks_per_server,
                         shape.intra_bandwidth.count(), shape.inter_bandwidth.count(),
                         shape.intra_latency.count(), shape.inter_latency.count());
}

class Lowering {
 public:
  Lowering(const StepPlan& plan, const RankGrids& grids, const ClusterSpec& cluster,
           const Topology* topology, const ComputeCost& compute, const MessageCost& messages,
           const LowerOptions& options)
      : plan_(plan),
        grids_(grids),
        ranks_(grids.dense),
        cluster_(cluster),
        topology_(topology),
        compute_(compute),
        messages_(messages),
        options_(options),
        flows_(options.fidelity == recipe::Fidelity::flow),
        group_shapes_(cluster, flows_),
        host_links_(cluster, flows_ ? topology : nullptr) {
    TRAINYARD_CHECK(!flows_ || topology != nullptr, "flows need a topology");
  }

  Lowered run() {
    estimate_kernels();
    colour_ranks();
    for (std::size_t port = 0; port < plan::kCollectivePorts; ++port)
      add_groups(static_cast<CollectivePort>(port));
    for (const ChannelPort send : plan::kSendPorts)
      add_messages(send);
    for (std::size_t transfer = 0; transfer < plan::kHostPorts.size(); ++transfer)
      add_host_transfers(static_cast<HostTransfer>(transfer));
    colour_links();
    classes_ = refine(structure_);
    result_.class_of_rank = classes_.of_rank;
    if (!options_.fold) classes_ = unfolded(structure_);
    make_actors();
    make_classes();
    make_links();
    make_connections();
    return std::move(result_);
  }

 private:
  int stage_of(int rank) const {
    return ranks_.coordinate(Rank(static_cast<std::uint32_t>(rank)), Axis::pipeline);
  }
  void estimate_kernels();
  std::vector<std::uint16_t> weights() const;
  void colour_ranks();
  void colour_links();
  void add_groups(CollectivePort port);
  void add_messages(ChannelPort send);
  void add_host_transfers(HostTransfer transfer);
  std::uint32_t shape_index(Connection of, const GroupShape& shape);
  std::uint32_t add_table(Connection of, const GroupShape& shape);
  Bytes carried(Connection of, Bytes bytes) const;
  Transfer transfer(const MessageTerms& terms) const;
  void make_actors();
  void make_classes();
  double capacity(std::size_t number) const;
  void make_links();
  void make_connections();
  struct FoldedPaths {
    std::vector<engine::Path> paths;
    std::vector<std::uint32_t> layouts;  // by path
  };
  FoldedPaths folded_paths(const RankStructure::Edge& edge) const;

  const StepPlan& plan_;
  const RankGrids& grids_;
  const recipe::RankMap& ranks_;
  const ClusterSpec& cluster_;
  const Topology* topology_;
  const ComputeCost& compute_;
  const MessageCost& messages_;
  const LowerOptions& options_;
  bool flows_;
  GroupShapes group_shapes_;
  HostLinks host_links_;
  bool uses_host_ = false;

  RankStructure structure_;
  std::vector<EdgeInfo> edges_;
  FlowLayouts flow_layouts_;
  std::array<std::vector<FlowLayout>, plan::kCollectivePorts> layouts_;  // of a port's collectives
  std::map<std::pair<Connection, decltype(as_key(GroupShape{}))>, std::uint32_t> shape_index_;
  // What sets the times of a rank's kernels.
  struct Pace {
    double slowdown = 1, expert_load = 1;
    auto operator<=>(const Pace&) const = default;
  };
  std::vector<Pace> pace_;      // by rank
  double busiest_experts_ = 1;  // the largest load
  RankClasses classes_;
  std::vector<std::uint32_t> first_link_;  // by link class
  std::map<std::pair<std::uint32_t, std::uint32_t>, std::int32_t>
      crossings_;  // (path, link) classes
  Lowered result_;
};

void Lowering::estimate_kernels() {
  for (const models::Kernel& kernel : plan_.kernels)
    result_.kernels.push_back(compute_.time(kernel));
}

// By StepPlan::kernels; nothing if all kernels are alike.
std::vector<std::uint16_t> Lowering::weights() const {
  if (options_.gemm_weight == 1 && options_.memory_bound_weight == 1) return {};
  std::vector<std::uint16_t> weights;
  for (const models::Kernel& kernel : plan_.kernels) {
    const bool memory_bound = std::holds_alternative<models::MemoryBound>(kernel);
    const double weight = memory_bound ? options_.memory_bound_weight : options_.gemm_weight;
    TRAINYARD_CHECK(weight >= 0 && weight <= 8, "a kernel of weight {}", weight);
    weights.push_back(static_cast<std::uint16_t>(weight * engine::kFullWeight + 0.5));
  }
  return weights;
}

void Lowering::colour_ranks() {
  pace_.assign(static_cast<std::size_t>(ranks_.world_size()), {});
  for (const recipe::Straggler& straggler : options_.stragglers)
    pace_[static_cast<std::size_t>(straggler.rank)].slowdown *= straggler.compute_slowdown;
  if (!options_.expert_load.empty()) {
    for (int r = 0; r < ranks_.world_size(); ++r) {
      const int part =
          grids_.experts.coordinate(Rank(static_cast<std::uint32_t>(r)), Axis::context);
      pace_[static_cast<std::size_t>(r)].expert_load =
          options_.expert_load[static_cast<std::size_t>(part)];
    }
    busiest_experts_ = *std::max_element(options_.expert_load.begin(), options_.expert_load.end());
  }
  // Exchanges of tables are given as their busiest rank has them.
  for (int r = 0; r < ranks_.world_size() && !options_.rank_load.empty(); ++r) {
    const int part = ranks_.coordinate(Rank(static_cast<std::uint32_t>(r)), Axis::data);
    pace_[static_cast<std::size_t>(r)].expert_load =
        options_.rank_load[static_cast<std::size_t>(part)];
  }
  std::map<std::pair<int, Pace>, std::uint32_t> colours;
  for (int r = 0; r < ranks_.world_size(); ++r) {
    const auto next = static_cast<std::uint32_t>(colours.size());
    const auto at =
        colours.try_emplace({stage_of(r), pace_[static_cast<std::size_t>(r)]}, next).first;
    structure_.rank_colour.push_back(at->second);
  }
}

void Lowering::colour_links() {
  if (!flows_) return;
  std::map<double, std::uint32_t> colours;
  for (const topologies::Link& link : topology_->links()) {
    const auto next = static_cast<std::uint32_t>(colours.size());
    structure_.link_colour.push_back(
        colours.try_emplace(link.bandwidth.count(), next).first->second);
  }
  if (!uses_host_) return;
  for (const double capacity : host_links_.capacities()) {
    const auto next = static_cast<std::uint32_t>(colours.size());
    structure_.link_colour.push_back(colours.try_emplace(capacity, next).first->second);
  }
}

std::uint32_t Lowering::shape_index(Connection of, const GroupShape& shape) {
  const auto next = static_cast<std::uint32_t>(shape_index_.size());
  const auto [at, added] = shape_index_.try_emplace({of, as_key(shape)}, next);
  if (added) TRAINYARD_CHECK(add_table(of, shape) == next, "tables follow shapes");
  return at->second;
}

Transfer Lowering::transfer(const MessageTerms& terms) const {
  Transfer transfer;
  transfer.latency = to_duration(terms.latency);
  transfer.bytes = terms.wire_bytes;
  transfer.units_taken = terms.channels;
  if (terms.wire_bytes > Bytes(0)) {
    const double rate = terms.bandwidth.count();
    TRAINYARD_CHECK(rate >= 1 && rate < 0x1p62, "a transfer at {} B/s", rate);
    transfer.rate = static_cast<std::int64_t>(rate);
  }
  return transfer;
}

// Rows for experts: the exchange ends when the rank with most of them has its share.
Bytes Lowering::carried(Connection of, Bytes bytes) const {
  if (of != connection(CollectivePort::expert) && of != connection(CollectivePort::expert_tensor))
    return bytes;
  return Bytes(
      static_cast<std::int64_t>(std::ceil(busiest_experts_ * static_cast<double>(bytes.count()))));
}

// What every transfer of the plan costs in a group of this shape.
std::uint32_t Lowering::add_table(Connection of, const GroupShape& shape) {
  std::vector<Transfer> table;
  std::vector<TransferEstimate> estimates;
  if (of.is_group) {
    for (const CollectiveSpec& spec : plan_.collectives[of.which]) {
      const Bytes bytes = carried(of, spec.bytes);
      const collective::AlgorithmEntry* chosen = options_.algorithms.of(spec.kind);
      const MessageTerms terms =
          collective_terms(messages_, spec.kind, spec.routing, chosen, bytes, shape);
      const FlowLayout layout = flow_layout(spec.kind, spec.routing, chosen);
      table.push_back(
          transfer(flows_ ? flow_layouts_.per_unit(layout, terms, bytes, shape) : terms));
      if (flows_) table.back().layout = number_in(layouts_[of.which], layout);
      estimates.push_back({false, std::nullopt, spec, shape, terms});
    }
  } else {
    for (const Bytes bytes : plan_.messages) {
      const MessageTerms terms = messages_.point_to_point(bytes, shape);
      table.push_back(transfer(terms));
      estimates.push_back({true, std::nullopt, {CollectiveKind::broadcast, bytes}, shape, terms});
    }
  }
  result_.machine.transfers.push_back(std::move(table));
  result_.transfers.push_back(std::move(estimates));
  return static_cast<std::uint32_t>(result_.machine.transfers.size() - 1);
}

void Lowering::add_groups(CollectivePort port) {
  for (const std::vector<Rank>& group : groups_of(plan_, grids_, port)) {
    RankStructure::Edge edge;
    std::vector<int> gpus;
    for (const Rank rank : group) {
      edge.members.push_back(static_cast<std::uint32_t>(rank));
      gpus.push_back(static_cast<int>(rank));
    }
    const GroupShape shape = group_shapes_.of_group(gpus);
    edge.label = shape_index(connection(port), shape);
    const std::vector<FlowLayout>& layouts = layouts_[static_cast<std::size_t>(port)];
    for (std::uint32_t l = 0; l < layouts.size(); ++l) {
      for (const auto& [from, to, weight] :
           flow_layouts_.edges(layouts[l], gpus, cluster_.server.gpus, shape))
        edge.paths.push_back(add_path(*topology_, from, to, structure_, l, weight));
    }
    structure_.edges.push_back(std::move(edge));
    edges_.push_back({connection(port), structure_.edges.back().label});
  }
}

void Lowering::add_messages(ChannelPort send) {
  std::vector<std::optional<int>> receivers;  // by stage
  for (int stage = 0; stage < ranks_.size(Axis::pipeline); ++stage)
    receivers.push_back(receiver(plan_.shape, send, stage));
  const auto peer = [&](int rank) {
    const std::optional<int> to = receivers[static_cast<std::size_t>(stage_of(rank))];
    if (!to) return -1;
    return static_cast<int>(
        ranks_.peer(Rank(static_cast<std::uint32_t>(rank)), Axis::pipeline, *to));
  };
  const int per_server = cluster_.server.gpus;
  for (int server = 0; server * per_server < ranks_.world_size(); ++server) {
    const int end = std::min((server + 1) * per_server, ranks_.world_size());
    int crossing = 0;
    for (int r = server * per_server; r < end; ++r)
      crossing += peer(r) >= 0 && peer(r) / per_server != server ? 1 : 0;
    for (int r = server * per_server; r < end; ++r) {
      const int to = peer(r);
      if (to < 0) continue;
      RankStructure::Edge edge;
      edge.ordered = true;
      edge.members = {static_cast<std::uint32_t>(r), static_cast<std::uint32_t>(to)};
      edge.label = shape_index(connection(send), group_shapes_.of_pair(r, to, crossing));
      if (flows_) edge.paths.push_back(add_path(*topology_, r, to, structure_));
      structure_.edges.push_back(std::move(edge));
      edges_.push_back({connection(send), structure_.edges.back().label});
    }
  }
}

// Every rank is a group of its own.
void Lowering::add_host_transfers(HostTransfer transfer_kind) {
  const CollectivePort port = plan::kHostPorts[static_cast<std::size_t>(transfer_kind)];
  const std::vector<CollectiveSpec>& specs = plan_.collectives[static_cast<std::size_t>(port)];
  if (specs.empty()) return;
  uses_host_ = true;
  std::vector<Transfer> table;
  std::vector<TransferEstimate> estimates;
  for (const CollectiveSpec& spec : specs) {
    const MessageTerms terms = host_transfer_terms(
        transfer_kind, spec.bytes, host_links_.offered(transfer_kind), options_.host_copies);
    table.push_back(transfer(terms));
    estimates.push_back({false, transfer_kind, spec, {}, terms});
  }
  result_.machine.transfers.push_back(std::move(table));
  result_.transfers.push_back(std::move(estimates));
  const auto label = static_cast<std::uint32_t>(result_.machine.transfers.size() - 1);
  for (int r = 0; r < ranks_.world_size(); ++r) {
    const auto rank = static_cast<std::uint32_t>(r);
    RankStructure::Edge edge{.label = label, .members = {rank}, .paths = {}};
    if (flows_) {
      edge.paths.push_back(static_cast<std::uint32_t>(structure_.paths.size()));
      structure_.paths.push_back({rank, rank, host_links_.path(transfer_kind, r)});
    }
    structure_.edges.push_back(std::move(edge));
    edges_.push_back({connection(port), label});
  }
}

void Lowering::make_actors() {
  std::map<Pace, const KernelTimes*> times;
  for (int r = 0; r < ranks_.world_size(); ++r) {
    const auto at = static_cast<std::size_t>(r);
    if (classes_.of_rank[at] < result_.machine.actors.size()) continue;
    const Pace& pace = pace_[at];
    const KernelTimes*& own = times[pace];
    if (own == nullptr) {
      auto table = std::make_unique<KernelTimes>();
      for (std::size_t k = 0; k < result_.kernels.size(); ++k) {
        const double load = plan_.routed[k] ? pace.expert_load : 1;
        table->kernel.push_back(to_duration(result_.kernels[k].time * (pace.slowdown * load)));
      }
      table->weight = weights();
      own = table.get();
      result_.times.push_back(std::move(table));
    }
    engine::Actor actor;
    actor.program = &plan_.stages[static_cast<std::size_t>(stage_of(r))].program;
    actor.times = own;
    actor.communicators.assign(plan::kCollectivePorts, engine::kNoCommunicator);
    actor.channels.assign(plan::kChannelPorts, engine::kNoChannel);
    actor.launch = options_.launch;
    actor.units = cluster_.server.gpu.multiprocessors;
    actor.memory_capacity = cluster_.server.gpu.memory;
    result_.machine.actors.push_back(std::move(actor));
  }
}

void Lowering::make_classes() {
  for (int r = 0; r < ranks_.world_size(); ++r) {
    const auto at = static_cast<std::size_t>(r);
    const std::uint32_t own = result_.class_of_rank[at];
    if (own == result_.classes.size())
      result_.classes.push_back({.representative = r,
                                 .stage = stage_of(r),
                                 .slowdown = pace_[at].slowdown,
                                 .expert_load = pace_[at].expert_load,
                                 .actor = ActorId(classes_.of_rank[at])});
    ++result_.classes[own].ranks;
  }
}

// Of the topology's links, and of those behind them.
double Lowering::capacity(std::size_t number) const {
  if (number >= topology_->links().size())
    return host_links_.capacities()[number - topology_->links().size()];
  const topologies::Link& link = topology_->links()[static_cast<LinkId>(number)];
  const double share =
      link.kind == topologies::LinkKind::network ? cluster_.server.nic_efficiency : 1;
  return link.bandwidth.count() * share;
}

// One link stands for its class; crossings_ says how many paths of each class use it.
void Lowering::make_links() {
  if (!flows_) return;
  std::vector<bool> seen(classes_.links, false);
  std::vector<bool> is_first(structure_.link_colour.size(), false);
  for (std::size_t l = 0; l < structure_.link_colour.size(); ++l) {
    const std::uint32_t link_class = classes_.of_link[l];
    if (seen[link_class]) continue;
    seen[link_class] = true;
    is_first[l] = true;
    TRAINYARD_CHECK(link_class == result_.machine.link_capacity.size(), "classes are in order");
    result_.machine.link_capacity.push_back(static_cast<std::int64_t>(capacity(l)));
  }
  for (std::size_t p = 0; p < structure_.paths.size(); ++p) {
    for (const std::uint32_t link : structure_.paths[p].links) {
      if (is_first[link])
        crossings_[{classes_.of_path[p], classes_.of_link[link]}] += structure_.paths[p].weight;
    }
  }
}

// One path for each class of an edge's paths.
Lowering::FoldedPaths Lowering::folded_paths(const RankStructure::Edge& edge) const {
  FoldedPaths folded;
  std::set<std::uint32_t> done;
  for (const std::uint32_t p : edge.paths) {
    const std::uint32_t path_class = classes_.of_path[p];
    if (!done.insert(path_class).second) continue;
    engine::Path path;
    std::vector<std::uint32_t> links;
    for (const std::uint32_t link : structure_.paths[p].links)
      links.push_back(classes_.of_link[link]);
    std::sort(links.begin(), links.end());
    links.erase(std::unique(links.begin(), links.end()), links.end());
    for (const std::uint32_t link : links)
      path.push_back({static_cast<LinkId>(link), crossings_.at({path_class, link})});
    folded.paths.push_back(std::move(path));
    folded.layouts.push_back(structure_.paths[p].layout);
  }
  return folded;
}

void Lowering::make_connections() {
  engine::Machine& machine = result_.machine;
  std::vector<bool> seen(classes_.edges, false);
  for (std::size_t e = 0; e < structure_.edges.size(); ++e) {
    if (seen[classes_.of_edge[e]]) continue;
    seen[classes_.of_edge[e]] = true;
    const RankStructure::Edge& edge = structure_.edges[e];
    std::vector<ActorId> members;
    for (const std::uint32_t rank : edge.members)
      members.push_back(ActorId(classes_.of_rank[rank]));
    const EdgeInfo& info = edges_[e];
    FoldedPaths folded = folded_paths(edge);
    if (info.connection.is_group) {
      std::sort(members.begin(), members.end());
      members.erase(std::unique(members.begin(), members.end()), members.end());
      const engine::CommunicatorId id = machine.communicators.push_back(
          {members, info.shape, std::move(folded.paths), std::move(folded.layouts)});
      for (const ActorId member : members)
        machine.actors[member].communicators[info.connection.which] = id;
      continue;
    }
    const auto send = static_cast<ChannelPort>(info.connection.which);
    engine::Path path = folded.paths.empty() ? engine::Path{} : std::move(folded.paths[0]);
    const engine::ChannelId id =
        machine.channels.push_back({members[0], members[1], info.shape, std::move(path)});
    machine.actors[members[0]].channels[static_cast<std::size_t>(send)] = id;
    machine.actors[members[1]].channels[static_cast<std::size_t>(plan::receiving_end(send))] = id;
  }
}

}  // namespace

Lowered lower(const StepPlan& plan, const RankGrids& ranks, const ClusterSpec& cluster,
              const Topology* topology, const ComputeCost& compute, const MessageCost& messages,
              const LowerOptions& options) {
  return Lowering(plan, ranks, cluster, topology, compute, messages, options).run();
}

}  // namespace trainyard::lower
