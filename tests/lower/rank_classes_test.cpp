#include "sim/lower/rank_classes.h"

#include <doctest/doctest.h>

#include <vector>

using namespace trainyard::lower;

namespace {

using Numbers = std::vector<std::uint32_t>;

void join(RankStructure& structure, const Numbers& ranks, bool ordered) {
  structure.edges.push_back({.label = ordered ? 1U : 0U,
                             .ordered = ordered,
                             .first_member = static_cast<std::uint32_t>(structure.members.size()),
                             .members = static_cast<std::uint32_t>(ranks.size()),
                             .first_path = static_cast<std::uint32_t>(structure.paths.size())});
  structure.members.insert(structure.members.end(), ranks.begin(), ranks.end());
}

}  // namespace

TEST_CASE("ranks of equal groups are one class, and so are their groups") {
  RankStructure structure{.rank_colour = {0, 0, 0, 0, 1, 1, 1, 1}};
  for (const Numbers& group : {Numbers{0, 1}, Numbers{2, 3}, Numbers{4, 5}, Numbers{6, 7}})
    join(structure, group, false);
  for (std::uint32_t rank = 0; rank < 4; ++rank)
    join(structure, {rank, rank + 4}, true);
  const RankClasses classes = refine(structure);
  CHECK(classes.of_rank == Numbers{0, 0, 0, 0, 1, 1, 1, 1});
  CHECK(classes.of_edge == Numbers{0, 0, 1, 1, 2, 2, 2, 2});
}

TEST_CASE("a straggler splits those that it reaches, however many rounds that takes") {
  // A chain: each round tells one more rank from each end.
  constexpr std::uint32_t kRanks = 9;
  RankStructure structure{.rank_colour = Numbers(kRanks, 0)};
  for (std::uint32_t rank = 0; rank + 1 < kRanks; ++rank)
    join(structure, {rank, rank + 1}, true);
  const RankClasses classes = refine(structure);
  CHECK(classes.ranks == kRanks);
  CHECK(classes.of_rank == Numbers{0, 1, 2, 3, 4, 5, 6, 7, 8});
  CHECK(classes.edges == kRanks - 1);

  // Two groups of which one has it.
  RankStructure groups{.rank_colour = {0, 1, 0, 0, 0, 0}};
  join(groups, {0, 1, 2}, false);
  join(groups, {3, 4, 5}, false);
  CHECK(refine(groups).of_rank == Numbers{0, 1, 0, 2, 2, 2});
}

TEST_CASE("links are one class where as many paths of each class cross them") {
  RankStructure structure{.rank_colour = {0, 0, 0, 0}, .link_colour = {0, 0, 0, 0}};
  for (std::uint32_t rank = 0; rank < 4; rank += 2) {
    join(structure, {rank, rank + 1}, true);
    structure.paths.push_back({rank, rank + 1, {rank, rank + 1}});
    structure.edges.back().paths = 1;
  }
  RankClasses classes = refine(structure);
  CHECK(classes.of_rank == Numbers{0, 1, 0, 1});
  CHECK(classes.of_path == Numbers{0, 0});
  CHECK(classes.of_link == Numbers{0, 0, 0, 0});
  // A narrower link of one path splits both ranks of it and the other link.
  structure.link_colour[3] = 1;
  classes = refine(structure);
  CHECK(classes.of_rank == Numbers{0, 1, 2, 3});
  CHECK(classes.of_link == Numbers{0, 0, 1, 2});
}
