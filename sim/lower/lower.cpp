#include "sim/lower/lower.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>

#include "sim/base/check.h"
#include "sim/base/large_pages.h"
#include "sim/base/out_of_range.h"
#include "sim/base/text.h"
#include "sim/lower/device_messages.h"
#include "sim/lower/flows/flow_paths.h"
#include "sim/lower/flows/folded_links.h"
#include "sim/lower/flows/port_streams.h"
#include "sim/lower/flows/wide_links.h"
#include "sim/lower/group_shape.h"
#include "sim/lower/host_links.h"
#include "sim/lower/moved_groups.h"
#include "sim/lower/rank_classes.h"

namespace trainyard::lower {

using engine::ActorId;
using engine::KernelTimes;
using plan::Cast;
using plan::Connection;
using plan::ConnectionId;
using plan::Player;
using plan::Traffic;
using topologies::ClusterSpec;
using topologies::Topology;

namespace {

// What an edge of the rank structure is: a group that speaks on a connection.
struct EdgeInfo {
  ConnectionId connection;
  std::uint32_t table = 0;  // into Machine::transfers
  // Of a message: which of its source's pairs on the connection it is, and of its destination's.
  struct Nth {
    std::uint32_t of_source = 0, of_destination = 0;
    auto operator<=>(const Nth&) const = default;
  } nth = {};
};

class Lowering {
 public:
  Lowering(const Cast& cast, const DevicePlacement& placement, const ClusterSpec& cluster,
           const Topology* topology, std::span<const GpuLaws> gpus,
           const cost::MessageCost& messages, const LowerOptions& options)
      : cast_(cast),
        placement_(placement),
        cluster_(cluster),
        topology_(topology),
        laws_(gpus),
        options_(options),
        flows_(options.fidelity == recipe::Fidelity::flow),
        players_(players_on_gpus(placement, cluster.servers)),
        group_shapes_(cluster, players_, flows_),
        known_(cluster, players_, flows_),
        host_links_(cluster, players_, flows_ ? topology : nullptr),
        messages_(cluster, topology, group_shapes_, host_links_),
        tables_(cast, messages, gpus, options.algorithms, flows_) {
    TRAINYARD_CHECK(!flows_ || topology != nullptr, "flows need a topology");
    TRAINYARD_CHECK(placement.size() == cast.players(), "{} devices for {} players",
                    placement.size(), cast.players());
    TRAINYARD_CHECK(laws_.size() == kinds_.size(), "laws of {} kinds of GPUs for {}", laws_.size(),
                    kinds_.size());
  }

  Lowered run() {
    estimate_kernels();
    colour_players();
    reserve_edges();
    for (const ConnectionId connection : cast_.listed())
      add_edges(connection);
    result_.machine.transfers = std::move(tables_.transfers);
    TRAINYARD_CHECK(options_.communication_share > 0 && options_.communication_share <= 1,
                    "communication keeps {} of its rate", options_.communication_share);
    result_.machine.share_beside_kernels =
        std::llround(options_.communication_share * static_cast<double>(engine::kFullShare));
    result_.transfers = std::move(tables_.estimates);
    colour_links();
    find_classes();
    make_actors();
    make_classes();
    make_connections();
    return std::move(result_);
  }

 private:
  using Members = std::span<const Player>;

  const Device& device(Player player) const { return placement_[index(player)]; }
  int gpu(Player player) const { return device(player).server * slots_ + device(player).gpu; }
  // Until the next call.
  std::span<const int> gpus(Members players) {
    gpus_.clear();
    for (const Player player : players)
      gpus_.push_back(gpu(player));
    return gpus_;
  }

  // Kernels of processors take what they are said to, by whichever law: the first rank's.
  int gpu_kind(Player player) const {
    const Device& own = device(player).is_host() ? placement_.front() : device(player);
    return kinds_.size() == 1 || own.is_host() ? 0 : gpu_kind_of(cluster_, own.server, own.gpu);
  }

  void estimate_kernels();
  void reserve_edges();
  void colour_players();
  void colour_links();
  void find_classes();
  void leave_out_links();
  void add_edges(ConnectionId connection);
  void add_edge(const EdgeInfo& info, Members members, std::uint32_t paths = 0);
  void add_messages(ConnectionId connection);
  std::vector<Player> movers(const Connection& connection) const;
  std::uint32_t add_group_paths(ConnectionId connection, Members members,
                                const cost::GroupShape& shape);
  void add_message_path(Player from, Player to);
  void make_actors();
  void make_classes();
  void make_connections();

  const Cast& cast_;
  const DevicePlacement& placement_;
  const ClusterSpec& cluster_;
  const Topology* topology_;
  std::span<const GpuLaws> laws_;  // by kind of GPU
  const LowerOptions& options_;
  bool flows_;
  int slots_ = cluster_.gpu_slots();
  std::vector<topologies::GpuKind> kinds_ = gpu_kinds(cluster_);
  std::vector<int> players_;  // by server: on its GPUs
  GroupShapes group_shapes_;
  MovedGroups known_;
  HostLinks host_links_;
  DeviceMessages messages_;
  TransferTables tables_;
  bool uses_host_ = false;
  std::vector<int> gpus_;

  RankStructure structure_;
  std::vector<EdgeInfo> edges_;
  std::map<std::pair<std::uint32_t, EdgeInfo::Nth>, std::uint32_t> labels_;  // of edges
  // What sets the times of a player's kernels.
  struct Pace {
    int gpu_kind = 0;
    double slowdown = 1, expert_load = 1;
    std::optional<Duration> launch{};  // Role::launch
    auto operator<=>(const Pace&) const = default;
  };
  std::vector<Pace> pace_;        // by player
  std::vector<double> capacity_;  // by link, with those behind the topology's: of all its stripes
  RankClasses classes_;
  Lowered result_;
};

void Lowering::estimate_kernels() {
  std::vector<bool> in_use(laws_.size());
  for (std::size_t player = 0; player < cast_.players(); ++player)
    in_use[static_cast<std::size_t>(gpu_kind(static_cast<Player>(player)))] = true;
  result_.kernels.resize(laws_.size());
  for (std::size_t kind = 0; kind < laws_.size(); ++kind) {
    if (!in_use[kind]) continue;
    std::vector<cost::Estimate>& estimates = result_.kernels[kind];
    for (const models::Kernel& kernel : cast_.kernels) {
      estimates.push_back(laws_[kind].compute->time(kernel));
      const double seconds = estimates.back().time.count();
      if (!(seconds >= 0 && seconds < Seconds(kEndOfTime).count()))
        throw OutOfRange(fmt::format("{} takes {} s, more than the 53 days that can be simulated",
                                     models::to_text(kernel), shortest(seconds)));
    }
  }
}

// Large clusters have hundreds of thousands of edges.
void Lowering::reserve_edges() {
  std::size_t edges = 0, members = 0;
  for (const Connection& connection : cast_.connections) {
    edges += connection.groups.size();
    members += connection.groups.members().size();
  }
  structure_.edges.reserve(edges);
  use_large_pages(structure_.edges);
  structure_.members.reserve(members);
  use_large_pages(structure_.members);
  edges_.reserve(edges);
  use_large_pages(edges_);
}

void Lowering::colour_players() {
  pace_.assign(cast_.players(), {});
  for (std::size_t at = 0; at < cast_.players(); ++at) {
    const auto player = static_cast<Player>(at);
    pace_[at].gpu_kind = gpu_kind(player);
    if (device(player).is_host()) continue;
    pace_[at].slowdown = options_.slowdown;
    pace_[at].launch = cast_.role(player).launch;
  }
  for (const recipe::Straggler& straggler : options_.stragglers)
    pace_[static_cast<std::size_t>(straggler.rank)].slowdown *= straggler.compute_slowdown;
  for (std::size_t player = 0; player < cast_.loads.size(); ++player)
    pace_[player].expert_load = cast_.loads[player];
  std::map<std::pair<std::uint32_t, Pace>, std::uint32_t> colours;
  auto last = colours.end();
  for (std::size_t player = 0; player < cast_.players(); ++player) {
    const std::pair<std::uint32_t, Pace> own{cast_.role_of[player], pace_[player]};
    if (last == colours.end() || last->first != own)
      last = colours.try_emplace(own, static_cast<std::uint32_t>(colours.size())).first;
    structure_.rank_colour.push_back(last->second);
  }
}

void Lowering::colour_links() {
  if (!flows_) return;
  capacity_ = link_capacities(*topology_);
  if (uses_host_)
    for (const double capacity : host_links_.capacities())
      capacity_.push_back(stripes(cluster_) * capacity);
  std::map<double, std::uint32_t> colours;
  for (const double capacity : capacity_) {
    const auto next = static_cast<std::uint32_t>(colours.size());
    structure_.link_colour.push_back(colours.try_emplace(capacity, next).first->second);
  }
}

// Unfolded, every rank is simulated, and every link.
void Lowering::find_classes() {
  std::optional<RankStructure> whole;
  if (flows_ && !options_.fold) whole = structure_;
  if (flows_) leave_out_links();
  classes_ = refine(structure_);
  result_.class_of_rank = classes_.of_rank;
  if (whole) structure_ = std::move(*whole);
  if (!options_.fold) classes_ = unfolded(structure_);
}

void Lowering::leave_out_links() {
  const PortStreams streams(cast_.roles);
  leave_out_wide_links(structure_, capacity_, [&](std::size_t e, std::uint32_t layout) {
    const EdgeInfo& info = edges_[e];
    const bool is_message = cast_.connections[info.connection].traffic == Traffic::message;
    PathLoad load;
    load.at_once = is_message ? streams.sending(to_peer(info.connection, info.nth.of_source))
                              : streams.collective(info.connection);
    for (const engine::Transfer& transfer : result_.machine.transfers[info.table])
      if (transfer.layout == layout) load.rate = std::max(load.rate, transfer.rate);
    return load;
  });
}

void Lowering::add_message_path(Player from, Player to) {
  uses_host_ = uses_host_ || device(from).is_host() || device(to).is_host();
  structure_.paths.push_back({static_cast<std::uint32_t>(from), static_cast<std::uint32_t>(to),
                              messages_.links(device(from), device(to))});
}

// How many there are.
std::uint32_t Lowering::add_group_paths(ConnectionId connection, Members members,
                                        const cost::GroupShape& shape) {
  std::map<int, std::uint32_t> player_on;
  std::map<int, double> loads;
  const bool is_uneven = cast_.connections[connection].busiest_load != 1;
  for (const Player player : members) {
    player_on[gpu(player)] = static_cast<std::uint32_t>(player);
    if (is_uneven) loads[gpu(player)] = pace_[index(player)].expert_load;
  }
  const std::size_t before = structure_.paths.size();
  const std::vector<FlowLayout>& layouts = tables_.layouts(connection);
  for (std::uint32_t layout = 0; layout < layouts.size(); ++layout) {
    for (const FlowEdge& edge :
         tables_.edges(layouts[layout], gpus(members), cluster_, shape, loads))
      structure_.paths.push_back(
          {player_on.at(edge.from), player_on.at(edge.to),
           route_links(*topology_, edge.from, edge.to), layout, edge.weight,
           static_cast<std::uint32_t>(std::lround(edge.load * engine::kFullLoad))});
  }
  return static_cast<std::uint32_t>(structure_.paths.size() - before);
}

// Who makes transfers of its own on a connection.
std::vector<Player> Lowering::movers(const Connection& connection) const {
  std::vector<Player> players;
  for (std::size_t group = 0; group < connection.groups.size(); ++group)
    players.push_back(connection.groups[group][0]);
  for (std::size_t p = 0; p < cast_.players() && connection.groups.empty(); ++p)
    if (const auto player = static_cast<Player>(p); !device(player).is_host())
      players.push_back(player);
  return players;
}

// `paths`: how many of those added last are its own. A player tells its peers apart by their ports,
// so that peers of different numbers are unlike.
void Lowering::add_edge(const EdgeInfo& info, Members members, std::uint32_t paths) {
  const bool is_like_last = !edges_.empty() && edges_.back().connection == info.connection &&
                            edges_.back().table == info.table && edges_.back().nth == info.nth;
  const auto next = static_cast<std::uint32_t>(labels_.size());
  const std::uint32_t label = is_like_last
                                  ? structure_.edges.back().label
                                  : labels_.try_emplace({info.table, info.nth}, next).first->second;
  structure_.edges.push_back(
      {.label = label,
       .ordered = cast_.connections[info.connection].traffic == Traffic::message,
       .first_member = static_cast<std::uint32_t>(structure_.members.size()),
       .members = static_cast<std::uint32_t>(members.size()),
       .first_path = static_cast<std::uint32_t>(structure_.paths.size() - paths),
       .paths = paths});
  for (const Player player : members)
    structure_.members.push_back(static_cast<std::uint32_t>(player));
  edges_.push_back(info);
}

void Lowering::add_messages(ConnectionId id) {
  const Connection& connection = cast_.connections[id];
  const DeviceMessages::Crossing crossing = messages_.crossing(connection, placement_);
  std::vector<EdgeInfo::Nth> pairs(cast_.players());  // so far, by player
  for (std::size_t pair = 0; pair < connection.groups.size(); ++pair) {
    const Members ends = connection.groups[pair];
    const Device &from = device(ends[0]), &to = device(ends[1]);
    std::optional<std::uint32_t> table;
    if (!from.is_host() && !to.is_host())
      table = known_.find(gpus(ends), crossing.leaving[static_cast<std::size_t>(from.server)]);
    if (!table) table = known_.learn(tables_.table(id, messages_.shape(from, to, crossing)));
    if (flows_) add_message_path(ends[0], ends[1]);
    const EdgeInfo::Nth nth{.of_source = pairs[index(ends[0])].of_source++,
                            .of_destination = pairs[index(ends[1])].of_destination++};
    add_edge({id, *table, nth}, ends, flows_ ? 1 : 0);
  }
}

void Lowering::add_edges(ConnectionId id) {
  const Connection& connection = cast_.connections[id];
  known_.forget();
  if (connection.traffic == Traffic::message) return add_messages(id);
  if (connection.traffic == Traffic::host) {
    uses_host_ = true;
    for (const Player player : movers(connection)) {
      cost::GroupShape alone;
      alone.intra_bandwidth = host_links_.offered(connection.host, device(player));
      alone.gpu_kind = gpu_kind(player);
      alone.gpu_kinds = std::uint64_t{1} << alone.gpu_kind;
      const auto number = static_cast<std::uint32_t>(player);
      if (flows_)
        structure_.paths.push_back(
            {number, number,
             in_stripes(host_links_.path(connection.host, device(player)), stripes(cluster_))});
      add_edge({id, tables_.table(id, alone)}, {&player, 1}, flows_ ? 1 : 0);
    }
    return;
  }
  for (std::size_t group = 0; group < connection.groups.size(); ++group) {
    const Members members = connection.groups[group];
    std::uint32_t paths = 0;
    std::optional<std::uint32_t> table = known_.find(gpus(members));
    if (!table) {
      const cost::GroupShape shape = group_shapes_.of_group(gpus_);
      table = known_.learn(tables_.table(id, shape));
      if (flows_ && connection.traffic == Traffic::collective)
        paths = add_group_paths(id, members, shape);
    }
    add_edge({id, *table}, members, paths);
  }
}

void Lowering::make_actors() {
  std::map<Pace, const KernelTimes*> times;
  for (std::size_t at = 0; at < cast_.players(); ++at) {
    if (classes_.of_rank[at] < result_.machine.actors.size()) continue;
    const Pace& pace = pace_[at];
    const auto kind = static_cast<std::size_t>(pace.gpu_kind);
    const bool is_cpu = kinds_[kind].gpu->is_cpu();
    const KernelTimes*& own = times[pace];
    if (own == nullptr) {
      auto table = std::make_unique<KernelTimes>();
      const Duration call = is_cpu ? pace.launch.value_or(laws_[kind].call) : laws_[kind].call;
      for (std::size_t k = 0; k < cast_.kernels.size(); ++k) {
        const double load = cast_.routed[k] ? pace.expert_load : 1;
        table->kernel.push_back(
            call + to_duration(result_.kernels[kind][k].time * (pace.slowdown * load)));
      }
      table->weight = kernel_weights(laws_[kind], cast_.kernels);
      own = table.get();
      result_.times.push_back(std::move(table));
    }
    engine::Actor actor;
    actor.program = &cast_.role(static_cast<Player>(at)).program;
    actor.times = own;
    actor.communicators.assign(cast_.connections.size(), engine::kNoCommunicator);
    actor.channels.assign(2 * cast_.connections.size(), engine::kNoChannel);
    actor.units = kinds_[kind].gpu->multiprocessors;
    if (!device(static_cast<Player>(at)).is_host()) {
      actor.launch = is_cpu ? laws_[kind].launch : pace.launch.value_or(laws_[kind].launch);
      actor.memory_capacity = kinds_[kind].gpu->memory;
    }
    result_.machine.actors.push_back(std::move(actor));
  }
}

void Lowering::make_classes() {
  for (std::size_t at = 0; at < cast_.players(); ++at) {
    const std::uint32_t own = result_.class_of_rank[at];
    const int role = static_cast<int>(cast_.role_of[at]);
    if (own == result_.classes.size())
      result_.classes.push_back({.representative = static_cast<int>(at),
                                 .role = role,
                                 .stage = cast_.role(static_cast<Player>(at)).stage.value_or(role),
                                 .gpu_kind = pace_[at].gpu_kind,
                                 .slowdown = pace_[at].slowdown,
                                 .expert_load = pace_[at].expert_load,
                                 .actor = ActorId(classes_.of_rank[at])});
    ++result_.classes[own].ranks;
  }
}

void Lowering::make_connections() {
  engine::Machine& machine = result_.machine;
  const FoldedLinks links(structure_, classes_, capacity_);
  machine.link_capacity = links.capacities();
  std::vector<bool> seen(classes_.edges, false);
  std::map<std::pair<ConnectionId, ActorId>, std::vector<engine::ChannelId>> heard;
  for (std::size_t e = 0; e < structure_.edges.size(); ++e) {
    if (seen[classes_.of_edge[e]]) continue;
    seen[classes_.of_edge[e]] = true;
    const RankStructure::Edge& edge = structure_.edges[e];
    std::vector<ActorId> members;
    for (const std::uint32_t rank : structure_.members_of(edge))
      members.push_back(ActorId(classes_.of_rank[rank]));
    const auto [connection, table, nth] = edges_[e];
    FoldedLinks::Paths folded = links.paths(edge);
    if (cast_.connections[connection].traffic != Traffic::message) {
      std::sort(members.begin(), members.end());
      members.erase(std::unique(members.begin(), members.end()), members.end());
      const engine::CommunicatorId id =
          machine.communicators.push_back({members, table, std::move(folded.paths),
                                           std::move(folded.layouts), std::move(folded.loads)});
      for (const ActorId member : members)
        machine.actors[member].communicators[plan::port_of(connection)] = id;
      continue;
    }
    engine::Path path = folded.paths.empty() ? engine::Path{} : std::move(folded.paths[0]);
    const engine::ChannelId id =
        machine.channels.push_back({members[0], members[1], table, std::move(path)});
    const ConnectionId sent = to_peer(connection, nth.of_source);
    const ConnectionId received = to_peer(connection, nth.of_destination);
    machine.actors[members[0]].channels[plan::send_port(sent)] = id;
    machine.actors[members[1]].channels[plan::receive_port(received)] = id;
    if (cast_.connections[connection].heard_first > 0)
      heard[{connection, members[1]}].push_back(id);
  }
  for (auto& [by, channels] : heard) {
    const auto& [connection, actor] = by;
    const std::uint32_t first = cast_.connections[connection].heard_first;
    std::vector<engine::InboxId>& ports = machine.actors[actor].inboxes;
    ports.resize(cast_.connections.size(), engine::kNoInbox);
    ports[plan::port_of(connection)] = machine.inboxes.push_back({std::move(channels), first});
  }
}

}  // namespace

Lowered lower(const Cast& cast, const DevicePlacement& placement, const ClusterSpec& cluster,
              const Topology* topology, std::span<const GpuLaws> gpus,
              const cost::MessageCost& messages, const LowerOptions& options) {
  return Lowering(cast, placement, cluster, topology, gpus, messages, options).run();
}

}  // namespace trainyard::lower
