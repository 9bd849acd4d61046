#include "sim/plan/cast.h"

#include <algorithm>
#include <iterator>

#include "sim/base/check.h"

namespace trainyard::plan {

namespace {

// The connection to which ports belong.
ConnectionId first_of(const Cast& cast, ConnectionId ports) {
  return static_cast<ConnectionId>(static_cast<std::uint32_t>(ports) -
                                   cast.connections[ports].nth_peer);
}

}  // namespace

Groups::Groups(const std::vector<std::vector<Rank>>& groups) {
  std::vector<Player> members;
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
  for (std::size_t i = 0; i < kernels.size(); ++i) {
    if (routed[i] == named.routed && kernels[i] == named.kernel)
      return static_cast<std::uint32_t>(i);
  }
  kernels.push_back(named.kernel);
  routed.push_back(named.routed);
  return static_cast<std::uint32_t>(kernels.size() - 1);
}

std::uint32_t Cast::transfer_index(ConnectionId connection, const TransferSpec& spec) {
  std::vector<TransferSpec>& table = connections[first_of(*this, connection)].transfers;
  const auto at = std::find(table.begin(), table.end(), spec) - table.begin();
  if (at == std::ssize(table)) table.push_back(spec);
  return static_cast<std::uint32_t>(at);
}

const Connection& Cast::connection(const engine::Op& op) const {
  TRAINYARD_CHECK(op.kind != engine::OpKind::compute, "computation has no connection");
  const std::uint32_t at = op.kind == engine::OpKind::collective ? op.port : op.port / 2;
  return connections[first_of(*this, static_cast<ConnectionId>(at))];
}

}  // namespace trainyard::plan
