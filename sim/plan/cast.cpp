#include "sim/plan/cast.h"

#include <algorithm>
#include <iterator>

#include "sim/base/check.h"

namespace trainyard::plan {

namespace {

// Whether it has one of the two ports of a message.
bool is_message(const engine::Op& op) {
  return op.kind == engine::OpKind::send || op.kind == engine::OpKind::receive;
}

// The connection to which ports belong.
ConnectionId first_of(const Cast& cast, ConnectionId ports) {
  return static_cast<ConnectionId>(static_cast<std::uint32_t>(ports) -
                                   cast.connections[ports].nth_peer);
}

}  // namespace

Groups::Groups(const std::vector<std::vector<Rank>>& groups) {
  std::vector<Player> members;
  ends_.reserve(groups.size());
  std::size_t all = 0;
  for (const std::vector<Rank>& group : groups)
    all += group.size();
  members_.reserve(all);
  for (const std::vector<Rank>& group : groups) {
    members.clear();
    for (const Rank rank : group)
      members.push_back(static_cast<Player>(rank));
    add(members);
  }
}

const Connection* Cast::find(std::string_view name) const {
  const auto found =
      std::find_if(connections.begin(), connections.end(),
                   [&](const Connection& connection) { return connection.name == name; });
  return found == connections.end() ? nullptr : &*found;
}

std::vector<ConnectionId> Cast::listed() const {
  std::vector<ConnectionId> ids;
  for (const ConnectionId id : connections.ids())
    ids.push_back(id);
  std::stable_sort(ids.begin(), ids.end(), [this](ConnectionId a, ConnectionId b) {
    return connections[a].place < connections[b].place;
  });
  return ids;
}

ConnectionId Cast::connect(std::string_view name, const std::function<Connection()>& describe,
                           std::uint32_t peers) {
  for (const ConnectionId id : connections.ids())
    if (connections[id].name == name) return id;
  Connection connection = describe();
  connection.name = name;
  Connection ports{.traffic = connection.traffic,
                   .stream = connection.stream,
                   .arrives_on = connection.arrives_on,
                   .group = connection.group};
  const ConnectionId first = connections.push_back(std::move(connection));
  while (++ports.nth_peer < peers)
    connections.push_back(ports);
  return first;
}

std::uint32_t Cast::kernel_index(const models::NamedKernel& named) {
  // Others that a joined cast brought along stand behind the first of their like.
  for (; kernels_placed < kernels.size(); ++kernels_placed)
    kernel_places.try_emplace({kernels[kernels_placed], routed[kernels_placed]},
                              static_cast<std::uint32_t>(kernels_placed));
  const auto next = static_cast<std::uint32_t>(kernels.size());
  const auto [place, is_new] = kernel_places.try_emplace({named.kernel, named.routed}, next);
  if (!is_new) return place->second;
  kernels.push_back(named.kernel);
  routed.push_back(named.routed);
  ++kernels_placed;
  return next;
}

std::uint32_t Cast::transfer_index(ConnectionId connection, const TransferSpec& spec) {
  std::vector<TransferSpec>& table = connections[first_of(*this, connection)].transfers;
  const auto at = std::find(table.begin(), table.end(), spec) - table.begin();
  if (at == std::ssize(table)) table.push_back(spec);
  return static_cast<std::uint32_t>(at);
}

namespace {

// The program of a role whose kernels and connections stand behind others.
engine::Program moved(engine::Program program, std::uint32_t kernels, std::uint32_t connections) {
  if (kernels == 0 && connections == 0) return program;
  for (std::uint32_t& kernel : program.kernels.edit())
    kernel += kernels;
  for (engine::Block& block : program.blocks.edit()) {
    for (engine::Op& op : block.ops) {
      if (op.kind != engine::OpKind::compute) op.port += connections * (is_message(op) ? 2 : 1);
    }
  }
  return program;
}

}  // namespace

Cast join(Cast first, const Cast& second, std::string_view prefix) {
  const auto kernels = static_cast<std::uint32_t>(first.kernels.size());
  const auto connections = static_cast<std::uint32_t>(first.connections.size());
  const auto roles = static_cast<std::uint32_t>(first.roles.size());
  const auto players = static_cast<std::uint32_t>(first.players());
  for (const Role& role : second.roles) {
    first.roles.push_back(role);
    first.roles.back().program = moved(role.program, kernels, connections);
  }
  if (!first.loads.empty() || !second.loads.empty()) {
    first.loads.resize(players, 1);
    first.loads.insert(first.loads.end(), second.loads.begin(), second.loads.end());
    first.loads.resize(players + second.players(), 1);
  }
  for (const std::uint32_t role : second.role_of)
    first.role_of.push_back(role + roles);
  for (Connection connection : second.connections) {
    connection.name.insert(0, prefix);
    for (Player& member : connection.groups.members())
      member = static_cast<Player>(static_cast<std::uint32_t>(member) + players);
    first.connections.push_back(std::move(connection));
  }
  first.kernels.insert(first.kernels.end(), second.kernels.begin(), second.kernels.end());
  first.routed.insert(first.routed.end(), second.routed.begin(), second.routed.end());
  return first;
}

const Connection& Cast::connection(const engine::Op& op) const {
  TRAINYARD_CHECK(op.kind != engine::OpKind::compute, "computation has no connection");
  const std::uint32_t at = is_message(op) ? op.port / 2 : op.port;
  return connections[first_of(*this, static_cast<ConnectionId>(at))];
}

}  // namespace trainyard::plan
