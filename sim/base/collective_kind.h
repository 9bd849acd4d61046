// The collectives, by the names of nccl-tests. `bytes` of a collective is always the whole buffer
// (the full tensor), as in nccl-tests; a rank's share is bytes / group size.
#pragma once

#include <cstdint>
#include <string_view>

namespace trainyard {

enum class CollectiveKind : std::uint8_t {
  all_reduce,
  all_gather,
  reduce_scatter,
  broadcast,
  all_to_all,
};

constexpr std::string_view name(CollectiveKind kind) {
  switch (kind) {
    case CollectiveKind::all_reduce: return "all-reduce";
    case CollectiveKind::all_gather: return "all-gather";
    case CollectiveKind::reduce_scatter: return "reduce-scatter";
    case CollectiveKind::broadcast: return "broadcast";
    case CollectiveKind::all_to_all: return "all-to-all";
  }
  return "?";
}

}  // namespace trainyard
