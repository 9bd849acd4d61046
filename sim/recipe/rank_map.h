// Places the coordinates of a plan on ranks 0 .. world_size - 1. All rank arithmetic is here.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "sim/base/check.h"
#include "sim/base/ids.h"
#include "sim/recipe/recipe.h"

namespace trainyard::recipe {

using RankOrder = std::array<Axis, kAxes>;  // fastest axis first, each axis once

// Megatron-LM's order: the tensor-parallel ranks are neighbours, the stages are far apart.
inline constexpr RankOrder kMegatronOrder = {Axis::tensor, Axis::context, Axis::data,
                                             Axis::pipeline};

// "tp-cp-dp-pp" and its permutations, or the three words without cp, which then follows tp; nullopt
// for any other text.
std::optional<RankOrder> parse_rank_order(std::string_view text);
std::string to_text(const RankOrder& order);  // all four words

struct RankCoordinates {
  int tensor = 0, context = 0, data = 0, pipeline = 0;
  friend bool operator==(const RankCoordinates&, const RankCoordinates&) = default;
};

class RankMap {
 public:
  // Requires: degrees are positive, world_size fits an int, order names each axis once.
  explicit RankMap(const ParallelDegrees& degrees, const RankOrder& order = kMegatronOrder);

  int world_size() const { return world_size_; }
  int size(Axis axis) const { return size_[static_cast<std::size_t>(axis)]; }

  int coordinate(Rank rank, Axis axis) const {
    TRAINYARD_CHECK(index(rank) < static_cast<std::size_t>(world_size_), "rank {} of {}",
                    index(rank), world_size_);
    return static_cast<int>(index(rank)) / stride(axis) % size(axis);
  }
  RankCoordinates coordinates(Rank rank) const;
  Rank rank(const RankCoordinates& at) const;

  // The rank that differs from `rank` only in its place on `axis`. O(1).
  Rank peer(Rank rank, Axis axis, int place) const {
    TRAINYARD_CHECK(0 <= place && place < size(axis), "place {} of {}", place, size(axis));
    const int steps = place - coordinate(rank, axis);
    return static_cast<Rank>(static_cast<int>(index(rank)) + steps * stride(axis));
  }

  // The ranks that differ from `rank` only on `axis`, by their place on it. O(size of the group).
  std::vector<Rank> group(Rank rank, Axis axis) const;

  // The ranks that differ from `rank` on either axis, ascending.
  std::vector<Rank> group(Rank rank, Axis one, Axis other) const;

  int groups(Axis axis) const { return world_size_ / size(axis); }

  // The member with place 0 of the group of that number; groups are numbered by their first ranks.
  // O(1).
  Rank first_of_group(int index, Axis axis) const;

 private:
  int stride(Axis axis) const { return stride_[static_cast<std::size_t>(axis)]; }

  std::array<int, kAxes> size_{}, stride_{};  // by axis
  int world_size_ = 1;
};

struct ParallelPlan;

// The ranks of a plan in the order of the dense axes, and in that of the experts, where the place
// of `context` is a rank's part of the experts, that of `tensor` its part of each, and `data`
// counts their replicas. Both have the same stages.
struct RankGrids {
  RankMap dense, experts;
};
RankGrids rank_grids(const ParallelPlan& plan);

}  // namespace trainyard::recipe
