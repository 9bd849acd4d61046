#include "sim/plan/replicas/server/messages.h"

#include <algorithm>
#include <array>
#include <utility>

namespace trainyard::plan {

namespace {

// Streams of a rank for its messages with shards.
constexpr std::uint32_t kShardLanes = 8;

// Of a rank's messages with its n-th peer.
StreamKind lane(std::uint32_t nth) {
  const std::uint32_t at = nth % kShardLanes;
  if (at == 0) return StreamKind::data;
  return static_cast<StreamKind>(static_cast<std::uint32_t>(StreamKind::shard_second) + at - 1);
}

// Servers send while they receive.
Connection messages() {
  return {.traffic = Traffic::message,
          .stream = StreamKind::gather,
          .arrives_on = StreamKind::data,
          .group = OpGroup::data};
}

void add_pair(Connection& connection, Player from, Player to) {
  const std::array<Player, 2> pair = {from, to};
  connection.groups.add(pair);
}

}  // namespace

bool at_own_pace(const recipe::ParallelPlan& plan) {
  return plan.data_parallel.parameter_servers.updates != recipe::ServerUpdates::synchronous;
}

std::uint32_t ServerMessages::handlers() const {
  return static_cast<std::uint32_t>(shards_.count()) * (at_own_pace(plan_) ? ranks_ : 1);
}

Player ServerMessages::shard(int shard, int rank) const {
  const auto at = static_cast<std::uint32_t>(shard), of = static_cast<std::uint32_t>(rank);
  return static_cast<Player>(ranks_ + (at_own_pace(plan_) ? at * ranks_ + of : at));
}

Player ServerMessages::sender(int shard) const {
  return static_cast<Player>(ranks_ + handlers() + static_cast<std::uint32_t>(shard));
}

ConnectionId ServerMessages::exchange(std::string_view name, bool to_server) {
  const auto shards = static_cast<std::uint32_t>(shards_.count());
  const auto describe = [&] {
    Connection connection = messages();
    if (to_server) connection.at_once = std::min(shards_.count(), static_cast<int>(kShardLanes));
    if (const int backup = plan_.data_parallel.parameter_servers.backup_workers;
        to_server && backup > 0)
      connection.heard_first = ranks_ - static_cast<std::uint32_t>(backup);
    for (int rank = 0; rank < static_cast<int>(ranks_); ++rank) {
      for (int nth = 0; nth < shards_.count(); ++nth) {
        const Player own = static_cast<Player>(rank), other = shard(shards_.peer(rank, nth), rank);
        if (to_server)
          add_pair(connection, own, other);
        else
          add_pair(connection, other, own);
      }
    }
    return connection;
  };
  const std::uint32_t heard = at_own_pace(plan_) ? 1 : ranks_;
  const ConnectionId id = cast_.connect(name, describe, std::max(shards, heard));
  for (std::uint32_t nth = 0; nth < shards; ++nth) {
    Connection& ports = cast_.connections[to_peer(id, nth)];
    (to_server ? ports.stream : ports.arrives_on) = lane(nth);
  }
  return id;
}

ConnectionId ServerMessages::first_pulls() {
  const auto describe = [&] {
    Connection connection = messages();
    for (int shard = 0; shard < shards_.count(); ++shard)
      for (std::uint32_t rank = 0; rank < ranks_; ++rank)
        add_pair(connection, sender(shard), static_cast<Player>(rank));
    return connection;
  };
  const auto shards = static_cast<std::uint32_t>(shards_.count());
  return cast_.connect("first parameters from the server", describe, std::max(shards, ranks_));
}

ConnectionId ServerMessages::clock(std::string_view name, bool to_clock) {
  const auto describe = [&] {
    Connection connection = messages();
    if (to_clock) connection.stream = StreamKind::data;
    const auto clock =
        static_cast<Player>(ranks_ + handlers() + static_cast<std::uint32_t>(shards_.count()));
    for (std::uint32_t rank = 0; rank < ranks_; ++rank) {
      if (to_clock)
        add_pair(connection, static_cast<Player>(rank), clock);
      else
        add_pair(connection, clock, static_cast<Player>(rank));
    }
    return connection;
  };
  return cast_.connect(name, describe, ranks_);
}

ConnectionId ServerMessages::memory() {
  return cast_.connect("server's memory", [&] {
    Connection connection{.traffic = Traffic::host,
                          .host = HostTransfer::host_memory,
                          .stream = StreamKind::host_optimizer,
                          .group = OpGroup::host_optimizer};
    for (std::uint32_t handler = 0; handler < handlers(); ++handler) {
      const auto player = static_cast<Player>(ranks_ + handler);
      connection.groups.add({&player, 1});
    }
    return connection;
  });
}

}  // namespace trainyard::plan
