#include "topologies/torus.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <set>

#include "sim/base/check.h"

namespace trainyard::topologies {

namespace {

// Whether the last GPU of a dimension is linked to its first. Two are linked once, as neighbours.
bool is_ring(const TorusGrid& grid, std::size_t dimension) {
  return grid.closed && grid.sizes[dimension] > 2;
}

std::vector<int> coordinates(const TorusGrid& grid, int gpu) {
  std::vector<int> at(grid.sizes.size());
  for (std::size_t d = grid.sizes.size(); d-- > 0;) {
    at[d] = gpu % grid.sizes[d];
    gpu /= grid.sizes[d];
  }
  return at;
}

int number(const TorusGrid& grid, const std::vector<int>& at) {
  int gpu = 0;
  for (std::size_t d = 0; d < grid.sizes.size(); ++d)
    gpu = gpu * grid.sizes[d] + at[d];
  return gpu;
}

// How far up to go from one coordinate to another; negative: down.
int way(const TorusGrid& grid, std::size_t dimension, int from, int to) {
  const int size = grid.sizes[dimension];
  if (!is_ring(grid, dimension)) return to - from;
  const int up = (to - from + size) % size;
  if (2 * up == size) return from % 2 == 0 ? up : -up;
  return 2 * up < size ? up : up - size;
}

// Where a group's members are along one dimension.
struct Extent {
  int members = 0;  // different coordinates
  int arc = 0;      // GPUs from the first of them to the last, the shortest way
  bool ring = false;
};

Extent extent(const TorusGrid& grid, std::size_t dimension, const std::set<int>& at) {
  Extent found{static_cast<int>(at.size()), *at.rbegin() - *at.begin() + 1, false};
  if (!is_ring(grid, dimension)) return found;
  const int size = grid.sizes[dimension];
  int gap = *at.begin() + size - *at.rbegin();
  for (auto next = std::next(at.begin()); next != at.end(); ++next)
    gap = std::max(gap, *next - *std::prev(next));
  // A ring through members that lie all round it needs the whole of it.
  const bool around = gap * found.members <= size;
  found.arc = around ? size : size - gap + 1;
  found.ring = around && found.members > 2;
  return found;
}

// What the busiest link carries of an all-to-all in which a rank sends S in all, over S.
double exchange_load(const Extent& extent) {
  const double m = extent.members;
  // Of a line's middle link floor(m/2) ceil(m/2) of m^2 pairs, times m ranks' S.
  if (!extent.ring) return std::floor(m / 2) * std::ceil(m / 2) / m;
  const double distances = extent.members % 2 == 0 ? m * m / 4 : (m * m - 1) / 4;
  return distances / m / 2;
}

// The members' coordinates along each dimension, as Extent sees them.
std::vector<std::set<int>> places(const TorusGrid& grid, std::span<const int> gpus) {
  std::vector<std::set<int>> at(grid.sizes.size());
  for (const int gpu : gpus) {
    const std::vector<int> own = coordinates(grid, gpu);
    for (std::size_t d = 0; d < own.size(); ++d)
      at[d].insert(own[d]);
  }
  return at;
}

// All points of a box of sizes in an order in which each is next to the one before it.
std::vector<std::vector<int>> snake(const std::vector<int>& sizes) {
  std::vector<std::vector<int>> order = {{}};
  for (const int size : sizes) {
    std::vector<std::vector<int>> longer;
    bool up = true;
    for (const std::vector<int>& point : order) {
      for (int i = 0; i < size; ++i) {
        longer.push_back(point);
        longer.back().push_back(up ? i : size - 1 - i);
      }
      up = !up;
    }
    order = std::move(longer);
  }
  return order;
}

// A cycle through an even number of rows, of columns that are a path: down in all columns but the
// first, row by row to and fro, and back in the first.
std::vector<std::pair<int, int>> cycle(int rows, int columns) {
  std::vector<std::pair<int, int>> order;
  for (int row = 0; row < rows; ++row)
    for (int i = 1; i < columns; ++i)
      order.emplace_back(row, row % 2 == 0 ? i : columns - i);
  for (int row = rows; row-- > 0;)
    order.emplace_back(row, 0);
  return order;
}

// The members of a box in the order of their ring.
std::vector<int> ring_of_box(const TorusGrid& grid, const std::vector<std::set<int>>& at) {
  std::vector<std::vector<int>> known;
  for (const std::set<int>& along : at)
    known.emplace_back(along.begin(), along.end());
  const auto even = std::find_if(known.begin(), known.end(), [](const std::vector<int>& along) {
    return along.size() % 2 == 0;
  });
  const auto rows = static_cast<std::size_t>(even - known.begin());
  std::vector<int> others;
  for (std::size_t d = 0; d < known.size(); ++d)
    if (d != rows) others.push_back(static_cast<int>(known[d].size()));
  const std::vector<std::vector<int>> columns = snake(others);
  std::vector<std::pair<int, int>> order;
  if (even == known.end())
    for (int column = 0; column < static_cast<int>(columns.size()); ++column)
      order.emplace_back(0, column);
  else
    order = cycle(static_cast<int>(even->size()), static_cast<int>(columns.size()));
  std::vector<int> ring;
  for (const auto& [row, column] : order) {
    std::vector<int> point = columns[static_cast<std::size_t>(column)];
    if (even != known.end()) point.insert(point.begin() + static_cast<std::ptrdiff_t>(rows), row);
    for (std::size_t d = 0; d < point.size(); ++d)
      point[d] = known[d][static_cast<std::size_t>(point[d])];
    ring.push_back(number(grid, point));
  }
  return ring;
}

}  // namespace

std::int64_t torus_gpus(const TorusGrid& grid) {
  TRAINYARD_CHECK(!grid.sizes.empty(), "a torus without dimensions");
  std::int64_t gpus = 1;
  for (const int size : grid.sizes)
    gpus *= size;
  return gpus;
}

std::optional<int> torus_neighbour(const TorusGrid& grid, int gpu, std::size_t dimension, bool up) {
  std::vector<int> at = coordinates(grid, gpu);
  const int size = grid.sizes[dimension];
  at[dimension] += up ? 1 : -1;
  if (at[dimension] < 0 || at[dimension] >= size) {
    if (!is_ring(grid, dimension)) return std::nullopt;
    at[dimension] = (at[dimension] + size) % size;
  }
  return number(grid, at);
}

int torus_step(const TorusGrid& grid, int from, int to) {
  TRAINYARD_CHECK(from != to, "a step from GPU {} to itself", from);
  const std::vector<int> a = coordinates(grid, from), b = coordinates(grid, to);
  std::size_t dimension = 0;
  while (a[dimension] == b[dimension])
    ++dimension;
  const bool up = way(grid, dimension, a[dimension], b[dimension]) > 0;
  return torus_neighbour(grid, from, dimension, up).value();
}

int torus_hops(const TorusGrid& grid, int from, int to) {
  const std::vector<int> a = coordinates(grid, from), b = coordinates(grid, to);
  int hops = 0;
  for (std::size_t d = 0; d < a.size(); ++d)
    hops += std::abs(way(grid, d, a[d], b[d]));
  return hops;
}

TorusGroup torus_group(const TorusGrid& grid, std::span<const int> gpus) {
  TRAINYARD_CHECK(gpus.size() >= 2, "a group of {}", gpus.size());
  const std::vector<std::set<int>> at = places(grid, gpus);
  TorusGroup group{.rings = 1, .share = 1, .steps = 0, .exchange = 1, .closed = true};
  std::size_t box = 1;
  int rings = 0, spanned = 0;
  double load = 0;
  for (std::size_t d = 0; d < at.size(); ++d) {
    const Extent along = extent(grid, d, at[d]);
    box *= static_cast<std::size_t>(along.members);
    if (along.members == 1) continue;
    ++spanned;
    group.steps += along.members - 1;
    group.share = std::min(group.share, static_cast<double>(along.members) / along.arc);
    group.closed = group.closed && along.ring && along.members == grid.sizes[d];
    rings += along.ring ? 2 : 0;
    load = std::max(load, exchange_load(along));
  }
  const bool is_box = box == gpus.size();
  if (!is_box) {
    group.closed = false;
    group.share /= 2;
    group.steps = static_cast<int>(gpus.size()) - 1;
  } else if (group.closed) {
    group.rings = rings;
  } else if (spanned > 1 ? box % 2 == 0 : rings > 0) {
    group.rings = 2;
  }
  const double sent = static_cast<double>(gpus.size() - 1) / static_cast<double>(gpus.size());
  group.exchange = sent / (group.rings * load);
  if (!is_box) group.exchange = std::min(1.0, group.exchange);
  return group;
}

std::vector<std::pair<int, int>> torus_edges(const TorusGrid& grid, std::span<const int> gpus) {
  const TorusGroup group = torus_group(grid, gpus);
  std::vector<std::pair<int, int>> edges;
  if (group.closed) {
    const std::set<int> members(gpus.begin(), gpus.end());
    for (const int gpu : members)
      for (std::size_t d = 0; d < grid.sizes.size(); ++d)
        for (const bool up : {true, false})
          if (const auto other = torus_neighbour(grid, gpu, d, up);
              other && members.contains(*other))
            edges.emplace_back(gpu, *other);
    return edges;
  }
  const std::vector<std::set<int>> at = places(grid, gpus);
  std::size_t box = 1;
  for (const std::set<int>& along : at)
    box *= along.size();
  std::vector<int> ring(gpus.begin(), gpus.end());
  if (box == gpus.size()) ring = ring_of_box(grid, at);
  for (std::size_t i = 0; i < ring.size(); ++i) {
    const int next = ring[(i + 1) % ring.size()];
    edges.emplace_back(ring[i], next);
    if (group.rings == 2) edges.emplace_back(next, ring[i]);
  }
  return edges;
}

}  // namespace trainyard::topologies
