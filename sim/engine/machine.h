// What programs run on: actors with compute and memory, communicators between them, shared links.
#pragma once

#include <cstdint>
#include <vector>

#include "sim/base/ids.h"
#include "sim/base/units.h"
#include "sim/engine/program.h"

namespace trainyard::engine {

enum class ActorId : std::uint32_t {};
enum class CommunicatorId : std::uint32_t {};
enum class ChannelId : std::uint32_t {};
enum class InboxId : std::uint32_t {};

// In a port that the actor's program never uses.
inline constexpr CommunicatorId kNoCommunicator{0xFFFFFFFF};
inline constexpr ChannelId kNoChannel{0xFFFFFFFF};

// How long each kernel takes on one kind of actor, alone, and how much it minds units that
// transfers hold: with t of u units taken it runs at 1 - (weight / kFullWeight) t / u of its speed.
inline constexpr std::int64_t kFullWeight = 256;
inline constexpr std::int64_t kFullShare = 1'000'000;
inline constexpr std::uint32_t kFullLoad = 1 << 16;
struct KernelTimes {
  std::vector<Duration> kernel;         // by the indices of Program::kernels
  std::vector<std::uint16_t> weight{};  // the same; empty: all kFullWeight
};

inline constexpr std::int64_t kPicosecondsPerSecond = 1'000'000'000'000;

// A communication, as its communicator carries it out.
//   closed form: ends latency + ceil(bytes / rate) after it starts.
//   flow:        after `latency`, every path of the communicator's layout carries `bytes` at its
//                max-min share, at most `rate`; it ends when the last path is done.
struct Transfer {
  Duration latency{};
  Bytes bytes{};             // over the busiest edge
  std::int64_t rate = 0;     // bytes per second; 0 only if bytes is 0
  int units_taken = 0;       // compute units it holds on each member while in flight
  std::uint32_t layout = 0;  // which of the communicator's paths it takes
};

// The links that one edge of a communicator crosses, each with the number of that edge's likes that
// cross it (1 unless the communicator stands for several symmetric ones, or the edge carries a
// multiple of the transfer's bytes).
struct PathLink {
  LinkId link;
  std::int32_t count = 1;
};
using Path = std::vector<PathLink>;

struct Communicator {
  std::vector<ActorId> members;          // distinct; a collective starts when all have reached it
  std::uint32_t transfers = 0;           // into Machine::transfers
  std::vector<Path> paths;               // empty: closed form
  std::vector<std::uint32_t> layouts{};  // by path, Transfer::layout; empty: all 0
  std::vector<std::uint32_t> loads{};    // by path, of its bytes and kFullLoad; empty: all full
};

// One-directional point-to-point connection; messages arrive in the order of the sends.
struct Channel {
  ActorId source, destination;
  std::uint32_t transfers = 0;  // into Machine::transfers
  Path path;                    // empty: closed form
};

// In a port that the actor's program never hears on.
inline constexpr InboxId kNoInbox{0xFFFFFFFF};

// Where the messages of several channels are counted and not received: those that are number r on
// their channels are round r. The k-th hear of an actor on it belongs to round k / first and ends
// when k % first + 1 messages of that round have arrived, so that the messages behind the first so
// many keep nobody waiting.
struct Inbox {
  std::vector<ChannelId> channels;  // distinct, to one actor; nothing else receives on them
  std::uint32_t first = 1;          // at most as many as there are channels
};

// A rank, or the representative of a class of ranks that behave alike.
struct Actor {
  const Program* program = nullptr;
  const KernelTimes* times = nullptr;
  std::vector<CommunicatorId> communicators;  // by Op::port
  std::vector<ChannelId> channels;            // by Op::port
  std::vector<InboxId> inboxes{};             // by Op::port
  Duration launch{};  // host time per launch; the host enqueues from time 0 on without a pause
  int units = 1;      // compute units; of weight kFullWeight kernels run at (units - taken) / units
  Bytes memory_capacity{};  // 0: unlimited
};

struct Machine {
  IdVector<ActorId, Actor> actors;
  IdVector<CommunicatorId, Communicator> communicators;
  IdVector<ChannelId, Channel> channels;
  IdVector<InboxId, Inbox> inboxes{};
  std::vector<std::vector<Transfer>> transfers;  // tables, by Op::subject
  IdVector<LinkId, std::int64_t> link_capacity;  // bytes per second; empty without flows
  // The share of its rate, of kFullShare, that a transfer keeps while kernels run on the first
  // member of its communicator, or on its sender.
  std::int64_t share_beside_kernels = kFullShare;
};

}  // namespace trainyard::engine
