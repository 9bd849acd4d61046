// The collectives, by the names of nccl-tests. `bytes` of a collective is always the whole buffer
// (the full tensor), as in nccl-tests; a rank's share is bytes / group size. In a shift every rank
// hands its share to the next rank of a ring; nccl-tests has it as sendrecv, where the size is a
// share.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>

namespace trainyard {

enum class CollectiveKind : std::uint8_t {
  all_reduce,
  all_gather,
  reduce_scatter,
  broadcast,
  all_to_all,
  shift,
};

constexpr std::string_view name(CollectiveKind kind) {
  switch (kind) {
    case CollectiveKind::all_reduce: return "all-reduce";
    case CollectiveKind::all_gather: return "all-gather";
    case CollectiveKind::reduce_scatter: return "reduce-scatter";
    case CollectiveKind::broadcast: return "broadcast";
    case CollectiveKind::all_to_all: return "all-to-all";
    case CollectiveKind::shift: return "shift";
  }
  return "?";
}

inline constexpr std::array kCollectiveKinds = {
    CollectiveKind::all_reduce, CollectiveKind::all_gather, CollectiveKind::reduce_scatter,
    CollectiveKind::broadcast,  CollectiveKind::all_to_all, CollectiveKind::shift};

// The kind of that name, "all-reduce"; nothing for another word.
constexpr std::optional<CollectiveKind> find_collective_kind(std::string_view word) {
  for (const CollectiveKind kind : kCollectiveKinds)
    if (name(kind) == word) return kind;
  return std::nullopt;
}

}  // namespace trainyard
