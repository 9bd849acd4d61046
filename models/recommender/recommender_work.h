// The layers of a recommender as kernels and collectives. Private to the room but for tests.
#pragma once

#include "models/families/network.h"
#include "models/recommender/table_plan.h"

namespace trainyard::models {

// What goes round among n ranks, b samples each, and the whole buffer of each collective:
//
//   table and column wise  all-to-all of pooled vectors: n b (most columns of a rank) e, and of
//                          their gradients the same way back
//   row wise               reduce-scatter of partial sums: n b (columns) e, all-gather of gradients
//   indices                all-to-all of 8 bytes a lookup and 4 a bag: what a rank sends, or what
//                          the rank that receives most does
//
//   e: bytes of a number as matrix multiplications store it. An all-to-all is as long as its
//   busiest rank is.
struct TableExchange {
  Bytes pooled, partial_sums, indices, lengths;
};
TableExchange table_exchange(const Recommender& network, const Execution& execution);

NetworkWork recommender_work(const Recommender& network, const Execution& execution);
std::int64_t recommender_parameters(const Recommender& network);

// What the interaction hands to the top MLP, for one sample.
std::int64_t interaction_width(const Recommender& network);

// Places of the chain: tables, bottom MLP, interaction, cross layers, top MLP.
std::int64_t recommender_places(const Recommender& network);

void check_recommender(Problems& problems, const Recommender& network, const Execution& execution);

}  // namespace trainyard::models
