// Collective algorithms as data. An algorithm is the list of its messages, round by round; for
// large buffers it is also its steady flows, one per edge, which carry the bytes of all rounds at
// once.
//
// Ranks are positions in the group, 0 .. n-1. The buffer S is the whole tensor (nccl-tests); it is
// cut into shards() equal parts. Where a rank contributes or receives one part (all-gather,
// reduce-scatter) it is the part of its own position; the root of a broadcast is position 0; in an
// all-to-all, shard s of a rank goes to rank s, which puts it where the sender's position says.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "sim/base/collective_kind.h"
#include "sim/collective/share.h"

namespace trainyard::collective {

// One shard on its way. Messages of one round between the same two ranks travel as one; a rank
// enters a round when it has ended its sends and receives of the rounds before. In each round a
// rank sends to one rank at most and receives from one at most.
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

struct AlgorithmEntry {
  std::string_view name;
  std::string_view summary;
  bool (*supports)(CollectiveKind, int group_size);
  // The functions below require supports(). For a group of one they are empty and 0.
  int (*shards)(CollectiveKind, int group_size);
  std::vector<Message> (*build)(CollectiveKind, int group_size);  // by round
  std::vector<Edge> (*edges)(CollectiveKind, int group_size);     // by from, then to
  // How many start-up times follow one another when the shards are small enough to stream: the
  // latency that belongs to the flows of edges().
  int (*latency_steps)(CollectiveKind, int group_size);
};

// All algorithms, in the order in which help lists them.
std::span<const AlgorithmEntry> algorithms();

// The algorithm of that name, hyphen and underscore being equal; nullptr if there is none.
const AlgorithmEntry* find_algorithm(std::string_view name);

// One past the last round.
int rounds(std::span<const Message> messages);

// The rows of the table, each in its own file with its closed form and its source.
AlgorithmEntry ring_algorithm();
AlgorithmEntry double_tree_algorithm();
AlgorithmEntry halving_doubling_algorithm();
AlgorithmEntry pairwise_algorithm();

}  // namespace trainyard::collective
