// The two halves of a ring all-reduce, for algorithms that are made of them. Shard r is that of
// rank r.
#pragma once

#include <vector>

#include "sim/collective/algorithm.h"

namespace trainyard::collective {

// Rank r begins by sending shard r-1; after n-1 rounds shard r has come around complete.
inline void reduce_scatter_rounds(int n, int first_round, std::vector<Message>& messages) {
  for (int round = 0; round < n - 1; ++round)
    for (int rank = 0; rank < n; ++rank)
      messages.push_back(
          {first_round + round, rank, (rank + 1) % n, (rank - 1 - round + 2 * n) % n, true});
}

// Rank r begins by sending shard r, and passes on what it received the round before.
inline void all_gather_rounds(int n, int first_round, std::vector<Message>& messages) {
  for (int round = 0; round < n - 1; ++round)
    for (int rank = 0; rank < n; ++rank)
      messages.push_back(
          {first_round + round, rank, (rank + 1) % n, (rank - round + n) % n, false});
}

}  // namespace trainyard::collective
