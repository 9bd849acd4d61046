#include "sim/recipe/rank_map.h"

#include <algorithm>
#include <limits>

#include "sim/base/check.h"

namespace trainyard::recipe {
namespace {

constexpr std::array<std::string_view, kAxes> kAxisWords = {"tp", "cp", "dp", "pp"};  // by Axis

std::optional<Axis> parse_axis(std::string_view word) {
  for (std::size_t i = 0; i < kAxes; ++i)
    if (kAxisWords[i] == word) return static_cast<Axis>(i);
  return std::nullopt;
}

}  // namespace

std::optional<RankOrder> parse_rank_order(std::string_view text) {
  RankOrder order{};
  std::array<bool, kAxes> seen{};
  std::size_t known = 0;
  const auto take = [&](Axis axis) {
    if (known == kAxes || seen[static_cast<std::size_t>(axis)]) return false;
    seen[static_cast<std::size_t>(axis)] = true;
    order[known++] = axis;
    return true;
  };
  const bool names_context = text.find("cp") != std::string_view::npos;
  for (std::size_t at = 0; at < text.size(); at += 3) {
    const auto axis = parse_axis(text.substr(at, 2));
    if (!axis || !take(*axis)) return std::nullopt;
    if (*axis == Axis::tensor && !names_context && !take(Axis::context)) return std::nullopt;
    if (at + 2 < text.size() && (text[at + 2] != '-' || at + 3 == text.size())) return std::nullopt;
  }
  if (known != kAxes) return std::nullopt;
  return order;
}

std::string to_text(const RankOrder& order) {
  std::string text;
  for (Axis axis : order) {
    if (!text.empty()) text += '-';
    text += kAxisWords[static_cast<std::size_t>(axis)];
  }
  return text;
}

RankMap::RankMap(const ParallelDegrees& degrees, const RankOrder& order) {
  std::int64_t stride = 1;
  for (Axis axis : order) {
    const auto at = static_cast<std::size_t>(axis);
    TRAINYARD_CHECK(at < kAxes && stride_[at] == 0, "an axis is named twice");
    TRAINYARD_CHECK(degrees.along(axis) > 0, "a degree of {}", degrees.along(axis));
    size_[at] = degrees.along(axis);
    stride_[at] = static_cast<int>(stride);
    stride *= degrees.along(axis);
    TRAINYARD_CHECK(stride <= std::numeric_limits<int>::max(), "{} ranks are too many", stride);
  }
  world_size_ = static_cast<int>(stride);
}

RankCoordinates RankMap::coordinates(Rank rank) const {
  return {.tensor = coordinate(rank, Axis::tensor),
          .context = coordinate(rank, Axis::context),
          .data = coordinate(rank, Axis::data),
          .pipeline = coordinate(rank, Axis::pipeline)};
}

Rank RankMap::rank(const RankCoordinates& at) const {
  const std::array<int, kAxes> place = {at.tensor, at.context, at.data, at.pipeline};
  int number = 0;
  for (std::size_t i = 0; i < kAxes; ++i) {
    TRAINYARD_CHECK(0 <= place[i] && place[i] < size_[i], "place {} of {}", place[i], size_[i]);
    number += place[i] * stride_[i];
  }
  return static_cast<Rank>(number);
}

std::vector<Rank> RankMap::group(Rank rank, Axis axis) const {
  std::vector<Rank> members;
  members.reserve(static_cast<std::size_t>(size(axis)));
  for (int place = 0; place < size(axis); ++place)
    members.push_back(peer(rank, axis, place));
  return members;
}

std::vector<Rank> RankMap::group(Rank rank, Axis one, Axis other) const {
  std::vector<Rank> members;
  for (const Rank outer : group(rank, other)) {
    for (const Rank member : group(outer, one))
      members.push_back(member);
  }
  std::sort(members.begin(), members.end());
  return members;
}

RankGrids rank_grids(const ParallelPlan& plan) {
  const ParallelDegrees experts = {.tensor = plan.experts.tensor,
                                   .context = plan.experts.ranks,
                                   .data = plan.expert_replicas(),
                                   .pipeline = plan.degrees.pipeline};
  TRAINYARD_CHECK(experts.world_size() == plan.degrees.world_size(), "experts on {} ranks of {}",
                  experts.world_size(), plan.degrees.world_size());
  return {RankMap(plan.degrees, plan.rank_order), RankMap(experts, plan.rank_order)};
}

// A rank is low + stride (place + size * high); its group's number low + stride * high.
Rank RankMap::first_of_group(int number, Axis axis) const {
  TRAINYARD_CHECK(0 <= number && number < groups(axis), "group {} of {}", number, groups(axis));
  const int low = number % stride(axis);
  const int high = number / stride(axis);
  return static_cast<Rank>(low + high * stride(axis) * size(axis));
}

}  // namespace trainyard::recipe
