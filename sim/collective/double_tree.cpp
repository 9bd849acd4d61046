// All-reduce over two binary trees, each of which reduces one half of the buffer to its root and
// broadcasts it back. A rank that forwards in one tree is a leaf of the other, so every rank's port
// carries about as much as every other's.
//
//   height of a tree = floor(log2 n), hence 2 floor(log2 n) start-up times
//   a rank with a parent and two children in one tree, a leaf of the other, sends 2S and receives
//   2S; there is one from n = 4 on. The root of three has no parent: 3/2 S. Two exchange halves: S.
//   time ~ 2 floor(log2 n) alpha + 2S/bandwidth when the halves stream through in small pieces
//
// On N servers of g > 1 ranks the trees join the ranks of each place, one from every server, after
// a ring reduce-scatter inside the servers and before a ring all-gather there: NCCL's chains inside
// with the trees between, each rank's NIC in use.
//
//   time ~ 2(g-1) a1 + 2 floor(log2 N) a2 + max(2(g-1)/g S/B1, 2 S/(g B2))     (B2 of a rank's NIC)
//
// The messages move each half as a whole: build() is the plain, not the streaming form. Its rounds
// are assigned greedily, one send and one receive per rank and round.
//
// Source: Sanders, Speck, Traeff, Two-tree algorithms for full bandwidth broadcast, reduction and
// scan, Parallel Computing 2009, sections 2 and 4; NCCL, src/graph/trees.cc.
#include <algorithm>
#include <array>

#include "sim/collective/in_servers.h"

namespace trainyard::collective {
namespace {

std::string objection(CollectiveKind kind, const Group& group) {
  if (kind != CollectiveKind::all_reduce) return no_such_kind(kind);
  return group.even() ? "" : "needs the same number of ranks on every server";
}

// The trees are of single ranks, or one of each server.
bool is_flat(const Group& group) {
  return group.servers == 1 || group.per_server == 1;
}

int shards(CollectiveKind /*kind*/, const Group& group) {
  return is_flat(group) ? 2 : 2 * group.per_server;
}

using Parents = std::vector<int>;  // by rank; the root is its own parent

// One level up in the in-order tree of all positive numbers: leaves are the odd ones, and the
// lowest bit of a number tells its level.
int parent_of(int i) {
  const int bit = i & -i;
  return (i - bit) | (2 * bit);
}

// The same tree of the numbers 1 .. n only: a left child takes the place of a parent above n.
Parents in_order_tree(int n) {
  int root = 1;
  while (2 * root <= n)
    root *= 2;
  Parents parents(static_cast<std::size_t>(n));
  for (int i = 1; i <= n; ++i) {
    int parent = i == root ? root : parent_of(i);
    while (parent > n)
      parent = parent_of(parent);
    parents[static_cast<std::size_t>(i - 1)] = parent - 1;
  }
  return parents;
}

// The first tree's leaves are the even ranks. The second is its mirror image (n even) or its shift
// by one (n odd); both make leaves of the ranks that forward in the first.
std::array<Parents, 2> two_trees(int n) {
  const Parents first = in_order_tree(n);
  Parents second(first.size());
  const auto other = [n](int rank) { return n % 2 == 0 ? n - 1 - rank : (rank + 1) % n; };
  for (int rank = 0; rank < n; ++rank)
    second[static_cast<std::size_t>(other(rank))] = other(first[static_cast<std::size_t>(rank)]);
  return {first, second};
}

struct Transfer {
  std::size_t tree;
  int from, to;
  bool up;
};

std::vector<Transfer> transfers(const std::array<Parents, 2>& trees) {
  std::vector<Transfer> result;
  for (bool up : {true, false}) {
    for (int rank = 0; rank < static_cast<int>(trees[0].size()); ++rank) {
      for (std::size_t tree = 0; tree < trees.size(); ++tree) {
        const int parent = trees[tree][static_cast<std::size_t>(rank)];
        if (parent == rank) continue;
        result.push_back(up ? Transfer{tree, rank, parent, up} : Transfer{tree, parent, rank, up});
      }
    }
  }
  return result;
}

// What a rank still waits for in one tree.
struct Waiting {
  int children = 0;    // that have not sent their sums
  bool total = false;  // it holds the total of the tree
};

std::vector<Message> tree_messages(int n) {
  const std::array<Parents, 2> trees = two_trees(n);
  const auto ranks = static_cast<std::size_t>(n);
  std::array<std::vector<Waiting>, 2> waiting = {std::vector<Waiting>(ranks),
                                                 std::vector<Waiting>(ranks)};
  std::vector<Transfer> pending = transfers(trees);
  for (const Transfer& t : pending)
    if (t.up) ++waiting[t.tree][static_cast<std::size_t>(t.to)].children;

  std::vector<Message> messages;
  for (int round = 0; !pending.empty(); ++round) {
    std::vector<bool> sends(ranks), receives(ranks);
    std::vector<Transfer> chosen, rest;
    for (const Transfer& t : pending) {
      const auto from = static_cast<std::size_t>(t.from);
      const auto to = static_cast<std::size_t>(t.to);
      const Waiting& sender = waiting[t.tree][from];
      const bool is_root = trees[t.tree][from] == t.from;
      const bool ready = sender.children == 0 && (t.up || is_root || sender.total);
      const bool go = ready && !sends[from] && !receives[to];
      if (go) sends[from] = receives[to] = true;
      (go ? chosen : rest).push_back(t);
    }
    // What arrives in a round can be passed on from the next one only.
    for (const Transfer& t : chosen) {
      Waiting& receiver = waiting[t.tree][static_cast<std::size_t>(t.to)];
      if (t.up) --receiver.children;
      if (!t.up) receiver.total = true;
      messages.push_back({round, t.from, t.to, static_cast<int>(t.tree), t.up});
    }
    pending = std::move(rest);
  }
  return messages;
}

std::vector<Message> build(CollectiveKind kind, const Group& group) {
  if (is_flat(group)) return tree_messages(group.ranks);
  return in_servers(kind, group, {2, tree_messages(group.servers)});
}

std::vector<Edge> edges(CollectiveKind kind, const Group& group) {
  return edges_of(build(kind, group), shards(kind, group));
}

int log2_floor(int n) {
  int height = 0;
  while ((2 << height) <= n)
    ++height;
  return height;
}

// Through the busiest port of n ranks that are joined by two trees.
Share tree_share(int n) {
  if (n <= 3) return Share(n <= 1 ? 0 : n, 2);
  return Share(2, 1);
}

Law law(CollectiveKind kind, const Group& group) {
  const int g = group.per_server, servers = group.servers;
  Law law;
  if (servers == 1) {
    law.near_steps = 2 * log2_floor(g);
    law.near = law.sent = tree_share(g);
    return law;
  }
  law.near_steps = 2 * (g - 1);
  law.far_steps = 2 * log2_floor(servers);
  law.levels = true;
  law.near = wire_share(kind, g);
  law.far = tree_share(servers) * Share(1, g);
  law.sent = law.near + law.far;
  return law;
}

}  // namespace

AlgorithmEntry double_tree_algorithm() {
  return {"tree",    "all-reduce over two binary trees, half the buffer each; log2 latency",
          objection, shards,
          build,     edges,
          law};
}

}  // namespace trainyard::collective
