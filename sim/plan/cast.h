// The cast of a step: who acts, and what they say to each other. Lowering reads nothing else of a
// plan.
//
// A role is a program and the players that run it: a pipeline stage is a role, and its players are
// the ranks of that stage; a parameter server is a role with one player. A connection is a kind of
// traffic: its groups of players, the stream that shows it, the sizes that travel on it. A program
// names a connection by Op::port. For two stages of two data-parallel ranks each:
//
//   roles        stage 0: players 0 1        stage 1: players 2 3
//   connections  gradients, groups {0 1} {2 3}, all-reduces of some sizes
//                forward, pairs {0 2} {1 3}, messages of one size
//
// Where a player sits is no part of the cast but a value beside it (sim/lower/device_placement.h),
// so that one cast can be put on any cluster, and two casts, joined, on one.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "models/layer/kernel.h"
#include "models/layer/layer_work.h"
#include "sim/base/collective_kind.h"
#include "sim/base/host_transfer.h"
#include "sim/base/ids.h"
#include "sim/engine/program.h"
#include "sim/plan/memory_kind.h"
#include "sim/recipe/offload_options.h"

namespace trainyard::plan {

// One instance of a role. Dense over all roles of a cast; the ranks of a job come first, each under
// its own number.
enum class Player : std::uint32_t {};
enum class ConnectionId : std::uint32_t {};

// The streams of a rank, by Op::stream. Each direction of the pipeline has its own, as messages to
// different peers do not wait for each other.
enum class StreamKind : std::uint8_t {
  compute,
  tensor,
  context,
  expert,
  data,
  send_forward,
  send_backward,
  receive_forward,
  receive_backward,
  // The same four for chunks and copies of the network that go up the stages.
  send_forward_up,
  send_backward_up,
  receive_forward_up,
  receive_backward_up,
  // Gathers of parameters take turns on two streams, so that a layer waits for its own and not for
  // the one after it.
  gather,
  gather_second,
  replica,
  // Of what is offloaded (offload_options.h): work of the host on its own memory, copies over PCIe
  // in each direction, and transfers between host memory and NVMe.
  host_optimizer,
  to_host,
  to_device,
  nvme_read,
  nvme_write,
  // Messages with the shards of a parameter server, which all work at once: those with the first go
  // on the stream of data parallelism.
  shard_second,
  shard_third,
  shard_fourth,
  shard_fifth,
  shard_sixth,
  shard_seventh,
  shard_eighth,
  // What a rank and the workers that prepare its batches tell each other.
  input,
  // When the threads of all replicas agree on what they exchange next, and ranks on fp8 scales.
  agreement,
};
inline constexpr int kStreams = 30;

// What an op belongs to, by Op::group.
enum class OpGroup : std::uint8_t {
  compute,
  optimizer,
  tensor,
  context,
  expert,
  data,
  pipeline,
  host_optimizer,
  host_copy,
  recompute,  // compute that the forward pass has done before
  input,      // batches on their way from storage to the GPU
};

// Of a call that is a pair, the pass that an op belongs to, by Op::part. What both have in common
// goes with the backward. In other calls it means nothing.
enum class PairPart : std::uint8_t { backward, forward };

// What a call of a program is for.
enum class CallKind : std::uint8_t {
  forward,
  backward,
  backward_input,
  backward_weight,
  pair,  // a forward, and the backward of another micro-batch
  step,
};
inline constexpr std::size_t kCallKinds = static_cast<std::size_t>(CallKind::step) + 1;
struct CallInfo {
  CallKind kind = CallKind::forward;
  int microbatch = 0;
  int chunk = 0;                // the part of the stage, if it holds several copies
  int backward_microbatch = 0;  // of a pair
  int backward_chunk = 0;
};

struct Role {
  std::string name;
  std::optional<int> stage{};  // of the pipeline, that its players hold
  int batch = 0;               // which of Batches::sizes they compute
  // The server on whose processors its players sit, and not on GPUs.
  std::optional<int> host_server{};
  // By player of the role: the rank on the processors of whose server it sits, and not on a GPU.
  std::vector<Player> beside{};
  engine::Program program;
  // Of a player that updates parameters with the gradients of one rank as they come: which shard's.
  std::optional<int> updates_shard{};
  std::vector<CallInfo> calls;           // by Program::calls
  std::vector<std::size_t> round_calls;  // by round: how many calls are done when it is
  std::int64_t parameters = 0;           // held by one player
  std::int64_t frozen = 0;               // of these, what no step changes
  recipe::HostMemory host;               // of one player
  std::optional<Duration> launch{};      // of its kernels; empty: as its GPU's law says

  bool on_gpu() const { return !host_server && beside.empty(); }
};

struct TransferSpec {
  CollectiveKind kind = CollectiveKind::all_reduce;  // of a collective; means nothing elsewhere
  Bytes bytes;                                       // the whole buffer
  models::Routing routing{};                         // GroupCollective::routing
  Duration time{};                                   // of a meeting
  friend bool operator==(const TransferSpec&, const TransferSpec&) = default;
};

// Groups of players, one after another in two arrays: 131,072 players of a group each are half a
// megabyte.
class Groups {
 public:
  Groups() = default;
  explicit Groups(const std::vector<std::vector<Rank>>& groups);

  void add(std::span<const Player> group) {
    members_.insert(members_.end(), group.begin(), group.end());
    ends_.push_back(static_cast<std::uint32_t>(members_.size()));
  }
  std::size_t size() const { return ends_.size(); }
  bool empty() const { return ends_.empty(); }
  std::span<const Player> operator[](std::size_t at) const {
    const std::size_t begin = at == 0 ? 0 : ends_[at - 1];
    return std::span(members_).subspan(begin, ends_[at] - begin);
  }
  // All members, group after group.
  std::span<Player> members() { return members_; }
  std::span<const Player> members() const { return members_; }

 private:
  std::vector<Player> members_;
  std::vector<std::uint32_t> ends_;
};

enum class Traffic : std::uint8_t {
  collective,  // within each group
  message,     // from the first of each pair to the second
  host,        // of each player alone
  meeting,     // within each group, which waits so long from when all have come; moves nothing
};

inline constexpr int kLastPlace = 1000;

struct Connection {
  std::string name{};
  // Where reports list it among the others; equal places in the order of speech.
  int place = kLastPlace;
  Traffic traffic = Traffic::collective;
  HostTransfer host = HostTransfer::to_host;    // Traffic::host: which
  StreamKind stream = StreamKind::compute;      // that shows it; of messages, their sends
  StreamKind arrives_on = StreamKind::compute;  // Traffic::message: the stream of the receives
  OpGroup group = OpGroup::compute;             // the report's word for it
  // Traffic::message: how many of a player's messages are under way together, on streams of their
  // own.
  int at_once = 1;
  // Traffic::message, > 0: those to whom several send count the first so many messages of each
  // round and receive none.
  std::uint32_t heard_first = 0;
  // Traffic::message: the driver copies them; no kernel and no communicator's buffers do.
  bool copied = false;
  // Bytes of the busiest member against the even share that `transfers` state: rows for experts end
  // when the rank with most of them has its own.
  double busiest_load = 1;
  // Traffic::host: the players that make such transfers, each alone; none: all on GPUs.
  Groups groups{};
  std::vector<TransferSpec> transfers{};  // by Op::subject
  // > 0: no connection, but the ports for a player's peer of that number on the one so many ids
  // before, which has all groups and transfers.
  std::uint32_t nth_peer = 0;
};

// The ports for a player's k-th peer on a connection of messages, in the order of its pairs.
// Requires: k is below the `peers` of Cast::connect.
constexpr ConnectionId to_peer(ConnectionId connection, std::uint32_t k) {
  return static_cast<ConnectionId>(static_cast<std::uint32_t>(connection) + k);
}

// Op::port of an op on a connection. A player in the middle of a pipeline sends on the connection
// on which it receives, so that both have ports.
constexpr std::uint32_t port_of(ConnectionId connection) {
  return static_cast<std::uint32_t>(connection);
}
constexpr std::uint32_t send_port(ConnectionId connection) {
  return 2 * static_cast<std::uint32_t>(connection);
}
constexpr std::uint32_t receive_port(ConnectionId connection) {
  return 2 * static_cast<std::uint32_t>(connection) + 1;
}

struct Cast {
  std::vector<Role> roles;
  std::vector<std::uint32_t> role_of;  // by player: into roles
  // By player: the work of its experts or tables in units of the even share; empty: all 1.
  std::vector<double> loads;
  IdVector<ConnectionId, Connection> connections;
  std::vector<models::Kernel> kernels;  // by Program::kernels
  std::vector<bool> routed;             // of those, which work follows `loads`
  // Where the first `kernels_placed` of them stand: a network may have many thousands.
  std::map<std::pair<models::Kernel, bool>, std::uint32_t> kernel_places{};
  std::size_t kernels_placed = 0;

  std::size_t players() const { return role_of.size(); }
  const Role& role(Player player) const { return roles[role_of[index(player)]]; }

  // The connection of that name; if there is none yet, what `describe` returns is added. `peers`:
  // the most that one player sends messages to, or receives them from.
  ConnectionId connect(std::string_view name, const std::function<Connection()>& describe,
                       std::uint32_t peers = 1);
  // All connections in the order in which reports list them.
  std::vector<ConnectionId> listed() const;
  // nullptr if no program speaks on a connection of that name.
  const Connection* find(std::string_view name) const;

  // Where a kernel or a transfer stands in its table, to which it is added if it is new. Kernels of
  // equal shape are one, unless only one of them follows the load of experts.
  std::uint32_t kernel_index(const models::NamedKernel& named);
  std::uint32_t transfer_index(ConnectionId connection, const TransferSpec& spec);

  // The connection of an op that is no computation.
  const Connection& connection(const engine::Op& op) const;
  const TransferSpec& transfer(const engine::Op& op) const {
    return connection(op).transfers[op.subject];
  }
};

// Two casts as one, whose players are those of `first` and behind them those of `second`; names of
// the second's connections begin with `prefix`. Put on one cluster, they share its links.
Cast join(Cast first, const Cast& second, std::string_view prefix);

}  // namespace trainyard::plan
