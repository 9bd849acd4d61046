#include "sim/recipe/rank_map.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <set>

#include "sim/base/random.h"
#include "tests/support/rooms.h"

using namespace trainyard;

namespace {

constexpr std::array<Axis, kAxes> kAllAxes = {Axis::tensor, Axis::context, Axis::data,
                                              Axis::pipeline};

std::vector<RankOrder> all_orders() {
  std::vector<RankOrder> orders;
  RankOrder order = kAllAxes;
  do
    orders.push_back(order);
  while (std::next_permutation(order.begin(), order.end()));
  return orders;
}

std::vector<Rank> ranks(std::initializer_list<int> numbers) {
  std::vector<Rank> result;
  for (int number : numbers)
    result.push_back(static_cast<Rank>(number));
  return result;
}

}  // namespace

TEST_CASE("ranks: tensor fastest, pipeline slowest") {
  const RankMap map({.tensor = 2, .data = 2, .pipeline = 4});
  CHECK(map.world_size() == 16);
  CHECK(map.group(Rank{0}, Axis::tensor) == ranks({0, 1}));
  CHECK(map.group(Rank{3}, Axis::data) == ranks({1, 3}));
  CHECK(map.group(Rank{2}, Axis::pipeline) == ranks({2, 6, 10, 14}));
  CHECK(map.coordinates(Rank{7}) == RankCoordinates{.tensor = 1, .data = 1, .pipeline = 1});
  CHECK(map.peer(Rank{7}, Axis::pipeline, 3) == Rank{15});
}

TEST_CASE("another order moves the groups, not their sizes") {
  const RankMap map({.tensor = 2, .data = 2, .pipeline = 4},
                    {Axis::pipeline, Axis::tensor, Axis::context, Axis::data});
  CHECK(map.group(Rank{2}, Axis::pipeline) == ranks({0, 1, 2, 3}));
  CHECK(map.group(Rank{1}, Axis::tensor) == ranks({1, 5}));
  CHECK(map.group(Rank{1}, Axis::data) == ranks({1, 9}));
}

TEST_CASE("groups are numbered by their first ranks") {
  const RankMap map({.tensor = 2, .data = 2, .pipeline = 4});
  CHECK(map.groups(Axis::data) == 8);
  CHECK(map.first_of_group(0, Axis::data) == Rank{0});
  CHECK(map.first_of_group(1, Axis::data) == Rank{1});
  CHECK(map.first_of_group(2, Axis::data) == Rank{4});
  CHECK(map.first_of_group(1, Axis::pipeline) == Rank{1});
}

// For every order the map is a bijection, and the groups of an axis are a partition of the ranks.
TEST_CASE("rank maps are permutations and their groups partitions") {
  SplitMix64 random(43);
  for (int trial = 0; trial < 20; ++trial) {
    const ParallelDegrees degrees = {.tensor = 1 + static_cast<int>(random.below(5)),
                                     .context = 1 + static_cast<int>(random.below(3)),
                                     .data = 1 + static_cast<int>(random.below(4)),
                                     .pipeline = 1 + static_cast<int>(random.below(4))};
    for (const RankOrder& order : all_orders()) {
      const RankMap map(degrees, order);
      std::set<Rank> seen;
      for (int t = 0; t < degrees.tensor; ++t) {
        for (int c = 0; c < degrees.context; ++c) {
          for (int d = 0; d < degrees.data; ++d) {
            for (int p = 0; p < degrees.pipeline; ++p) {
              const RankCoordinates at = {.tensor = t, .context = c, .data = d, .pipeline = p};
              CHECK(map.coordinates(map.rank(at)) == at);
              seen.insert(map.rank(at));
            }
          }
        }
      }
      CHECK(seen.size() == static_cast<std::size_t>(map.world_size()));
      CHECK(index(*seen.rbegin()) + 1 == seen.size());

      for (Axis axis : kAllAxes) {
        int firsts = 0;
        for (Rank rank : seen) {
          const std::vector<Rank> group = map.group(rank, axis);
          const int place = map.coordinate(rank, axis);
          CHECK(group.size() == static_cast<std::size_t>(map.size(axis)));
          CHECK(group[static_cast<std::size_t>(place)] == rank);
          CHECK(std::is_sorted(group.begin(), group.end()));
          for (Rank member : group) {
            for (Axis other : kAllAxes)
              if (other != axis)
                CHECK(map.coordinate(member, other) == map.coordinate(rank, other));
          }
          // Ranks come in increasing order, so a group is met first at its first rank.
          if (place == 0) CHECK(map.first_of_group(firsts++, axis) == rank);
        }
        CHECK(firsts == map.groups(axis));
      }
    }
  }
}

// Gradients are summed over the ranks that differ in the data-parallel or the context-parallel
// place: 2 x 3 of them here, in every second tensor place.
TEST_CASE("a group over two axes is all ranks that differ on either") {
  const RankMap map({.tensor = 2, .context = 3, .data = 2, .pipeline = 2});
  CHECK(map.group(Rank{0}, Axis::data, Axis::context) == ranks({0, 2, 4, 6, 8, 10}));
  CHECK(map.group(Rank{15}, Axis::data, Axis::context) == ranks({13, 15, 17, 19, 21, 23}));
  CHECK(map.group(Rank{15}, Axis::context) == ranks({13, 15, 17}));
}

TEST_CASE("an order is read in all permutations, with cp after tp if it is left out") {
  CHECK(parse_rank_order("tp-dp-pp") == kMegatronOrder);
  CHECK(parse_rank_order("pp-dp-tp") ==
        RankOrder{Axis::pipeline, Axis::data, Axis::tensor, Axis::context});
  for (const RankOrder& order : all_orders())
    CHECK(parse_rank_order(to_text(order)) == order);
  for (std::string_view wrong :
       {"", "tp", "tp-dp", "tp-dp-dp", "tp-dp-pp-", "tp_dp_pp", "TP-DP-PP", "tp-cp-pp", " tp-dp-pp",
        "tp-dp-pp-ep", "tp-dp-pp-", "tp-cp-cp-dp-pp", "tp-cp-dp-dp"})
    CHECK(!parse_rank_order(wrong));
}
