// The all-to-all of rows for experts when rows that share a server share their way to it.
#pragma once

#include "models/layer/expert_routing.h"
#include "sim/cost/cost.h"

namespace trainyard::cost {

// What a rank's rows are when every token has one per server, and one per rank, that it goes to.
struct SharedRows {
  Bytes between;  // one row for each server, the own one too
  Bytes inside;   // one row for each rank, the own one too
};

// Of `rows` bytes, top_k rows for each token. Experts are dealt to the group's ranks in order, and
// the ranks of a server are neighbours. Requires: routing.experts > 0.
SharedRows shared_rows(const models::Routing& routing, Bytes rows, const GroupShape& shape);

// Rows cross the network once per server, to the rank with the sender's place there, which passes
// them on inside: an all-to-all of `between` over the servers and one of `inside` in each, at the
// same time as the rows flow through. The slower one counts. Bytes are those between servers, if
// there are several.
// Source: DeepSeek-AI, DeepSeek-V3 Technical Report, 2024, section 3.2.2; DeepEP, 2025.
MessageTerms hierarchical_all_to_all(const MessageCost& messages, const SharedRows& rows,
                                     const GroupShape& shape);

}  // namespace trainyard::cost
