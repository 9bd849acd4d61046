// What the tests of the table go through.
#pragma once

#include "sim/collective/algorithm.h"
#include "tests/support/rooms.h"

namespace trainyard::testing {

inline constexpr auto kKinds = kCollectiveKinds;

// check(entry, kind, group) for all that the table supports up to a group size: on one server, and
// on servers of each size that divides it.
template <class Check>
void for_each_supported(int largest, Check check) {
  for (const AlgorithmEntry& entry : algorithms())
    for (CollectiveKind kind : kKinds)
      for (int n = 1; n <= largest; ++n)
        for (int each = n; each >= 1; --each)
          if (n % each == 0 && entry.supports(kind, {n, each})) check(entry, kind, Group(n, each));
}

// The same on one server.
template <class Check>
void for_each_on_one_server(int largest, Check check) {
  for_each_supported(largest, [&](const AlgorithmEntry& entry, CollectiveKind kind, Group group) {
    if (group.servers == 1) check(entry, kind, group.ranks);
  });
}

}  // namespace trainyard::testing
