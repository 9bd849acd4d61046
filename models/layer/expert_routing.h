// Where a token's rows go when experts are dealt to ranks and servers.
#pragma once

#include <cstdint>

namespace trainyard::models {

// Rows whose copies share their way: a token is sent once to each server that holds any of its
// experts, and from there once to each rank that does.
struct Routing {
  std::int64_t experts = 0;     // of a layer; 0: every row goes its own way
  std::int64_t top_k = 1;       // of them, for each token
  std::int64_t groups = 1;      // equal runs of experts, of which the router first chooses some
  std::int64_t top_groups = 1;  // so many; the token's experts are all in these
  std::int64_t hidden = 0;      // numbers of a row
  friend bool operator==(const Routing&, const Routing&) = default;
};

// Of `parts` equal runs of the experts (ranks, or servers), how many hold an expert of a token, on
// average over all its choices.
// Requires: groups divide experts, 1 <= top_k <= top_groups experts / groups, parts >= 1.
double parts_visited(const Routing& routing, std::int64_t parts);

}  // namespace trainyard::models
