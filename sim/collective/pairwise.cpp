// All-to-all in n-1 rounds: in round k every rank sends to the one k+1 places on, so that each port
// carries one message at a time.
//
//   time = (n-1)(alpha + S/(n bandwidth))   on a non-blocking switch
//
// Source: Thakur, Rabenseifner, Gropp, Optimization of collective communication operations in
// MPICH, IJHPCA 2005, section 4.4 (pairwise exchange, long messages).
#include "sim/collective/algorithm.h"

namespace trainyard::collective {
namespace {

bool supports(CollectiveKind kind, int n) {
  return n >= 1 && kind == CollectiveKind::all_to_all;
}

int shards(CollectiveKind /*kind*/, int n) {
  return n;
}

std::vector<Message> build(CollectiveKind /*kind*/, int n) {
  std::vector<Message> messages;
  for (int round = 0; round < n - 1; ++round) {
    for (int rank = 0; rank < n; ++rank) {
      const int to = (rank + round + 1) % n;
      messages.push_back({round, rank, to, to, false});
    }
  }
  return messages;
}

std::vector<Edge> edges(CollectiveKind /*kind*/, int n) {
  std::vector<Edge> result;
  for (int from = 0; from < n; ++from)
    for (int to = 0; to < n; ++to)
      if (from != to) result.push_back({from, to, Share(1, n)});
  return result;
}

// Nothing in the data asks for an order, but a rank starts one message after another.
int latency_steps(CollectiveKind /*kind*/, int n) {
  return n - 1;
}

}  // namespace

AlgorithmEntry pairwise_algorithm() {
  return {"pairwise",   "all-to-all, one partner per round", supports, shards, build, edges,
          latency_steps};
}

}  // namespace trainyard::collective
