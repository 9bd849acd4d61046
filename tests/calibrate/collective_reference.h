// What collectives are by definition, element by element: the oracle of their schedules and
// kernels.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "calibrate/probe/ring/ring_schedule.h"

namespace trainyard::probe::test {

template <class T>
using Buffers = std::vector<std::vector<T>>;  // by rank

inline constexpr int kUntouched = -1;  // what outputs hold before

template <class T>
std::vector<T> expected_output(const RingShape& shape, const Buffers<T>& input, int rank) {
  std::vector<T> result(input[0].size(), T(kUntouched));
  const auto own = static_cast<std::size_t>(rank);
  const auto previous = static_cast<std::size_t>((rank + shape.ranks - 1) % shape.ranks);
  for (int shard = 0; shard < shards(shape); ++shard) {
    const ElementRange range = shard_range(shape, shard);
    const auto from = static_cast<std::size_t>(shard);
    for (std::int64_t i = 0; i < range.count; ++i) {
      const auto at = static_cast<std::size_t>(range.first + i);
      T sum{};
      for (const auto& buffer : input)
        sum += buffer[at];
      switch (shape.kind) {
        case Collective::all_reduce: result[at] = sum; break;
        case Collective::reduce_scatter:
          if (from == own) result[at] = sum;
          break;
        case Collective::all_gather: result[at] = input[from][at]; break;
        case Collective::all_to_all: {
          const ElementRange mine = shard_range(shape, rank);
          result[at] = input[from][static_cast<std::size_t>(mine.first + i)];
          break;
        }
        case Collective::broadcast: result[at] = input[0][at]; break;
        case Collective::send_recv: result[at] = input[previous][at]; break;
      }
    }
  }
  return result;
}

}  // namespace trainyard::probe::test
