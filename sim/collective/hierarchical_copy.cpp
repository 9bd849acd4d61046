// TensorFlow's HierarchicalCopyAllReduce, made for the two groups of four of a DGX-1: for each
// tensor two GPUs, one in each half of the server, add up what their half has; the first adds both,
// the second gets the sum, and each hands it to its half. Which two takes turns from tensor to
// tensor, here from part to part of the buffer, as many as there are ranks.
//
//   all-reduce = n alpha + 2(n-1)/n S/bandwidth
//
// As many bytes as a ring has, in half as many rounds, none of which crosses the halves but two. In
// TensorFlow each copy ends before the next begins, and so it does here.
//
// Source: TensorFlow 2, tensorflow/python/distribute/cross_device_utils.py,
// aggregate_gradients_using_hierarchical_copy.
#include "sim/collective/algorithm.h"

namespace trainyard::collective {
namespace {

std::string objection(CollectiveKind kind, const Group& group) {
  if (kind != CollectiveKind::all_reduce) return no_such_kind(kind);
  if (group.servers > 1) return "is one of a single server";
  return group.ranks % 2 == 0 || group.ranks == 1 ? "" : "needs an even number of ranks";
}

int shards(CollectiveKind /*kind*/, const Group& group) {
  return group.ranks;
}

std::vector<Message> build(CollectiveKind /*kind*/, const Group& group) {
  const int n = group.ranks, half = n / 2;
  std::vector<Message> messages;
  if (n == 1) return messages;
  // The k-th other of a rank's half.
  const auto other = [half](int rank, int k) { return rank / half * half + (rank + k) % half; };
  const auto second = [n, half](int shard) { return (shard + half) % n; };
  int round = 0;
  for (int k = 1; k < half; ++k, ++round) {
    for (int shard = 0; shard < n; ++shard)
      for (const int main : {shard, second(shard)})
        messages.push_back({round, other(main, k), main, shard, true});
  }
  for (int shard = 0; shard < n; ++shard)
    messages.push_back({round, second(shard), shard, shard, true});
  ++round;
  for (int shard = 0; shard < n; ++shard)
    messages.push_back({round, shard, second(shard), shard, false});
  ++round;
  for (int k = 1; k < half; ++k, ++round) {
    for (int shard = 0; shard < n; ++shard)
      for (const int main : {shard, second(shard)})
        messages.push_back({round, main, other(main, k), shard, false});
  }
  return messages;
}

std::vector<Edge> edges(CollectiveKind kind, const Group& group) {
  return edges_of(build(kind, group), shards(kind, group));
}

Law law(CollectiveKind /*kind*/, const Group& group) {
  Law law;
  if (group.ranks == 1) return law;
  law.near_steps = group.ranks;
  law.near = law.sent = Share(2 * (group.ranks - 1), group.ranks);
  law.streams = false;
  return law;
}

}  // namespace

AlgorithmEntry hierarchical_copy_algorithm() {
  return {"hierarchical_copy",
          "two ranks of each part add up a half of the server each, then both halves",
          objection,
          shards,
          build,
          edges,
          law};
}

}  // namespace trainyard::collective
