// Which rank holds which part of a recommender's tables, and what that makes it do. Pure numbers,
// the same for the same input.
#pragma once

#include <cstdint>
#include <vector>

#include "models/recommender/recommender.h"

namespace trainyard::models {

// Of one rank; samples are those of one of them, over all tables dealt to it as wholes or columns.
struct RankTables {
  std::int64_t cost = 0;     // bytes looked up for a sample, indices included
  std::int64_t lookups = 0;  // for a sample
  std::int64_t bags = 0;     // pooled vectors of a sample
  std::int64_t columns = 0;  // of them together
  std::int64_t bytes = 0;    // of the tables and of their optimizer's state
  std::int64_t state = 0;    // of those, the state's
  std::int64_t traffic = 0;  // lookup and update of one step, for `samples` of table_plan()
};

struct TablePlan {
  std::vector<TableSharding> sharding;  // by group, none of them automatic
  std::vector<int> column_shards;       // by group; 1 unless column_wise
  std::vector<RankTables> ranks;
};

// Bytes of a looked-up index, as PyTorch has them (int64).
inline constexpr std::int64_t kIndexBytes = 8;
// Bytes of the count of a sample's lookups in one table (int32).
inline constexpr std::int64_t kLengthBytes = 4;

// What the update of `touched` rows of `columns` moves beside their gradients: each is read and
// written, and so is the optimizer's state.
std::int64_t update_bytes(const Recommender& network, std::int64_t columns);

// Optimizer state of a row, in bytes.
std::int64_t row_state_bytes(TableOptimizer optimizer, std::int64_t columns);

// Whole tables and parts of columns go, the most expensive first, to the rank with the least cost;
// among equals to the one with the fewest bytes. With t parts the largest cost is at most the even
// share and the largest part, and 4/3 - 1/(3n) of the best possible.
//
// Automatic groups: a table is replicated if all-reducing its gradient moves no more bytes than
// exchanging its pooled vectors and their gradients, which is 2 (n-1)/n times rows, or samples of a
// rank, times the dimension; otherwise its columns are divided into the fewest equal parts of which
// none costs more than the even share of all that is left; otherwise it stays whole.
//
// `samples`: of one rank in one micro-batch. `element`: bytes of a number of a pooled vector.
// Requires: check_execution finds no problem.
// Source: Graham, Bounds on Multiprocessing Timing Anomalies, SIAM J. Appl. Math. 17(2), 1969; the
// kinds of sharding are TorchRec's (Ivchenko et al., RecSys 2022).
TablePlan table_plan(const Recommender& network, int ranks, std::int64_t samples,
                     std::int64_t element);

// The greatest divisor of `columns` that is at most `ranks`.
int most_column_shards(std::int64_t columns, int ranks);

}  // namespace trainyard::models
