// What the tests of the table go through.
#pragma once

#include <array>

#include "sim/collective/algorithm.h"
#include "tests/support/rooms.h"

namespace trainyard::testing {

inline constexpr std::array<CollectiveKind, 6> kKinds = {
    CollectiveKind::all_reduce, CollectiveKind::all_gather, CollectiveKind::reduce_scatter,
    CollectiveKind::broadcast,  CollectiveKind::all_to_all, CollectiveKind::shift};

// check(entry, kind, n) for all that the table supports up to a group size.
template <class Check>
void for_each_supported(int largest, Check check) {
  for (const AlgorithmEntry& entry : algorithms())
    for (CollectiveKind kind : kKinds)
      for (int n = 1; n <= largest; ++n)
        if (entry.supports(kind, n)) check(entry, kind, n);
}

}  // namespace trainyard::testing
