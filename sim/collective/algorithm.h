// Collective algorithms as data. An algorithm is the list of its messages, round by round; for
// large buffers it is also its steady flows, one per edge, which carry the bytes of all rounds at
// once; for a law it is its start-up times and the bytes through its busiest ports.
//
// Ranks are positions in the group, 0 .. n-1, server by server. The buffer S is the whole tensor
// (nccl-tests); it is cut into shards() equal parts. Where a rank contributes or receives one part
// (all-gather, reduce-scatter, shift) it is the shards of its own position, an equal number for
// each rank; the root of a broadcast is position 0; in an all-to-all, shard s of a rank goes to
// rank s, which puts it where the sender's position says.
#pragma once

#include <array>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "sim/base/collective_kind.h"
#include "sim/collective/protocol.h"
#include "sim/collective/share.h"

namespace trainyard::collective {

// The ranks of a collective: neighbours share a server. A group whose servers hold different
// numbers of its ranks has no inner structure that an algorithm could use.
struct Group {
  constexpr Group(int all) : ranks(all), per_server(all) {}
  constexpr Group(int all, int each) : Group(all, each, (all + each - 1) / each) {}
  constexpr Group(int all, int each, int count) : ranks(all), per_server(each), servers(count) {}

  int ranks = 1;
  int per_server = 1;  // the most on any server
  int servers = 1;
  constexpr bool even() const { return ranks == per_server * servers; }
  friend bool operator==(const Group&, const Group&) = default;
};

// One shard on its way. Messages of one round between the same two ranks travel as one; a rank
// enters a round when it has ended its sends and receives of the rounds before. In each round a
// rank sends to one rank at most inside its server and to one outside, and receives likewise.
struct Message {
  int round, from, to, shard;
  bool reduce;  // the receiver adds it to what it holds, instead of replacing that
  friend bool operator==(const Message&, const Message&) = default;
};

// What passes from one rank to another in all rounds together.
struct Edge {
  int from, to;
  Share share;  // of S
  friend bool operator==(const Edge&, const Edge&) = default;
};

// What an algorithm's time depends on:
//   latency   near_steps alpha_inside + far_steps alpha_between
//   bytes     near S / (bandwidth of a rank inside its server), far S / (of a rank's NICs)
// The larger of the two counts where `streams`: pieces of the buffer are in both at once. Their sum
// counts where a round must end before the next begins.
struct Law {
  int near_steps = 0, far_steps = 0;
  // Through the busiest rank's port inside its server, and through its NICs, in the direction that
  // has more. Without `streams`: added over the rounds, of the busiest rank in each.
  Share near, far;
  bool streams = true;
  bool levels = false;  // its far steps are levels of a tree, through each of which all of S goes
  bool alone = false;   // one rank of a server sends to others at a time, and has a NIC for itself
  Share sent;  // of S, by the rank that sends or receives most, in the direction that has more
};

struct AlgorithmEntry {
  std::string_view name;
  std::string_view summary;
  // What is missing, with the cure ("needs a power of two of ranks"); empty: the kind is supported
  // for the group.
  std::string (*objection)(CollectiveKind, const Group&);
  // The functions below require an empty objection. For a group of one they are empty and 0.
  int (*shards)(CollectiveKind, const Group&);
  std::vector<Message> (*build)(CollectiveKind, const Group&);  // by round
  std::vector<Edge> (*edges)(CollectiveKind, const Group&);     // by from, then to
  Law (*law)(CollectiveKind, const Group&);

  bool supports(CollectiveKind kind, const Group& group) const {
    return objection(kind, group).empty();
  }
};

// All algorithms, in the order in which help lists them.
std::span<const AlgorithmEntry> algorithms();

// The algorithm of that name, hyphen and underscore being equal; nullptr if there is none.
const AlgorithmEntry* find_algorithm(std::string_view name);

// What was chosen for a collective, of which the library chooses the rest.
struct Choice {
  const AlgorithmEntry* algorithm = nullptr;
  std::optional<nccl::Protocol> protocol{};
  friend bool operator==(const Choice&, const Choice&) = default;
};

// By kind.
class Choices {
 public:
  const Choice& of(CollectiveKind kind) const { return chosen_[static_cast<std::size_t>(kind)]; }
  void choose(CollectiveKind kind, Choice choice) {
    chosen_[static_cast<std::size_t>(kind)] = choice;
  }
  friend bool operator==(const Choices&, const Choices&) = default;

 private:
  std::array<Choice, kCollectiveKinds.size()> chosen_{};
};

// The names of those that can carry out a kind on some group.
std::vector<std::string_view> algorithm_names(CollectiveKind kind);

// One past the last round.
int rounds(std::span<const Message> messages);

// Edges by from, then to; what stands twice is added up.
std::vector<Edge> merged(std::vector<Edge> edges);

// What the messages of a list carry over each edge, in shards of which `shards` make the buffer.
std::vector<Edge> edges_of(std::span<const Message> messages, int shards);

// The objection to a kind that an algorithm does not know, "has no shift".
std::string no_such_kind(CollectiveKind kind);

// The rows of the table, each in its own file with its closed form and its source.
AlgorithmEntry ring_algorithm();
AlgorithmEntry double_tree_algorithm();
AlgorithmEntry halving_doubling_algorithm();
AlgorithmEntry pairwise_algorithm();
AlgorithmEntry hierarchical_algorithm();
AlgorithmEntry naive_algorithm();
AlgorithmEntry hierarchical_copy_algorithm();
AlgorithmEntry binomial_tree_algorithm();

}  // namespace trainyard::collective
