// An order in which the first few of a row already show all of it.
#pragma once

#include <cstddef>
#include <deque>
#include <utility>
#include <vector>

namespace trainyard {

// 0 to count - 1: both ends, then the middle, then the middles of the halves, and so on.
inline std::vector<std::size_t> ends_first(std::size_t count) {
  std::vector<std::size_t> order;
  if (count > 0) order.push_back(0);
  if (count > 1) order.push_back(count - 1);
  std::deque<std::pair<std::size_t, std::size_t>> between;
  if (count > 2) between.push_back({0, count - 1});
  for (; !between.empty(); between.pop_front()) {
    const auto [low, high] = between.front();
    const std::size_t middle = (low + high) / 2;
    order.push_back(middle);
    if (middle - low > 1) between.push_back({low, middle});
    if (high - middle > 1) between.push_back({middle, high});
  }
  return order;
}

}  // namespace trainyard
