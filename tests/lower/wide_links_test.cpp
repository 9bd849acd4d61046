#include "sim/lower/flows/wide_links.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <vector>

#include "sim/base/random.h"
#include "sim/engine/sharing.h"

using namespace trainyard;
using namespace trainyard::lower;

namespace {

using Numbers = std::vector<std::uint32_t>;

// An edge of two ranks with these paths, all of layout 0.
void join(RankStructure& structure, const std::vector<Numbers>& paths) {
  structure.edges.push_back({.first_path = static_cast<std::uint32_t>(structure.paths.size()),
                             .paths = static_cast<std::uint32_t>(paths.size())});
  for (const Numbers& links : paths)
    structure.paths.push_back({0, 1, links});
}

PathLoad one(std::size_t, std::uint32_t) {
  return {.rate = 10, .at_once = 1};
}

}  // namespace

TEST_CASE("links that cannot fill are left out, one that can stays") {
  RankStructure structure;
  join(structure, {{0, 1}, {0, 2}});
  join(structure, {{0, 2}});
  // Three of 10 on the first: 29 would not carry them; two on the last.
  const std::vector<double> capacity = {29, 10, 20};
  leave_out_wide_links(structure, capacity, one);
  REQUIRE(structure.paths.size() == 3);
  for (const RankStructure::Path& path : structure.paths)
    CHECK(path.links == Numbers{0});
}

TEST_CASE("shares are floored: what fits together but not each alike may be held back") {
  // 3 + 3 + 5 are 11, but a third of 11 is 3.
  RankStructure structure;
  join(structure, {{0}});
  join(structure, {{0}});
  join(structure, {{0}});
  const auto load = [](std::size_t e, std::uint32_t) {
    return PathLoad{.rate = e == 2 ? 5 : 3, .at_once = 1};
  };
  RankStructure wider = structure;
  leave_out_wide_links(structure, std::vector<double>{11}, load);
  CHECK(structure.paths.size() == 3);
  leave_out_wide_links(wider, std::vector<double>{14}, load);  // a byte/s for each is left
  CHECK(wider.paths.empty());
}

TEST_CASE("transfers that may be in flight together count as often") {
  RankStructure structure;
  join(structure, {{0}});
  const std::vector<double> capacity = {19};
  RankStructure twice = structure;
  leave_out_wide_links(structure, capacity, one);
  CHECK(structure.edges[0].paths == 0);
  leave_out_wide_links(twice, capacity, [](std::size_t, std::uint32_t) {
    return PathLoad{.rate = 10, .at_once = 2};
  });
  CHECK(twice.edges[0].paths == 1);
}

TEST_CASE("a layout all of whose paths cross wide links keeps one, beside one that does not") {
  RankStructure structure;
  join(structure, {{0}, {0}, {1}, {0}});
  structure.paths[2].layout = structure.paths[3].layout = 1;
  join(structure, {{1}});
  leave_out_wide_links(structure, std::vector<double>{1000, 19}, one);
  REQUIRE(structure.edges[0].paths == 2);
  CHECK(structure.paths[0].links.empty());
  CHECK(structure.paths[0].layout == 0);
  CHECK(structure.paths[1].links == Numbers{1});
  CHECK(structure.edges[1].first_path == 2);
  CHECK(structure.paths[2].links == Numbers{1});
}

TEST_CASE("of paths that cross wide links alone the one of the largest load is kept") {
  RankStructure structure;
  join(structure, {{0}, {0}, {0}});
  structure.paths[0].load = structure.paths[2].load = engine::kFullLoad / 2;
  structure.paths[1].load = 2 * engine::kFullLoad;
  RankStructure crossing = structure;
  leave_out_wide_links(structure, std::vector<double>{1000, 19}, one);
  REQUIRE(structure.paths.size() == 1);
  CHECK(structure.paths[0].load == 2 * engine::kFullLoad);
  // Beside one that may be held back it may yet be the last; those of less load are not.
  crossing.paths[2].links = {1};
  join(crossing, {{1}});
  leave_out_wide_links(crossing, std::vector<double>{1000, 19}, one);
  REQUIRE(crossing.edges[0].paths == 2);
  CHECK(crossing.paths[0].links.empty());
  CHECK(crossing.paths[1].links == Numbers{1});
}

TEST_CASE("whatever is in flight, flows get what they get with all links") {
  SplitMix64 random(11);
  const auto below = [&random](std::uint64_t bound) {
    return static_cast<std::uint32_t>(random.below(bound));
  };
  std::size_t left_out = 0, kept = 0;
  for (int trial = 0; trial < 300; ++trial) {
    CAPTURE(trial);
    RankStructure structure;
    std::vector<std::int64_t> rates;
    std::vector<double> capacity;
    IdVector<LinkId, std::int64_t> links;
    for (std::uint32_t link = 0; link < 6; ++link) {
      capacity.push_back(1 + below(60));
      links.push_back(static_cast<std::int64_t>(capacity.back()));
    }
    for (std::uint32_t edge = 0; edge < 8; ++edge) {
      Numbers path;
      for (std::uint32_t link = 0; link < 6; ++link)
        if (below(3) == 0) path.push_back(link);
      path.push_back(below(6));
      join(structure, {path});
      structure.paths.back().weight = static_cast<std::int32_t>(1 + below(2));
      rates.push_back(1 + below(20));
    }
    RankStructure less = structure;
    leave_out_wide_links(less, capacity, [&](std::size_t e, std::uint32_t) {
      return PathLoad{.rate = rates[e], .at_once = 1};
    });
    for (std::uint32_t in_flight = 1; in_flight < 256; in_flight += 1 + below(8)) {
      std::vector<engine::Path> all, few;
      Numbers edges;
      for (std::uint32_t e = 0; e < 8; ++e) {
        if ((in_flight >> e & 1) == 0) continue;
        const auto path = [e](const RankStructure& of) {
          engine::Path made;
          for (std::uint32_t p = 0; p < of.edges[e].paths; ++p) {
            const RankStructure::Path& own = of.paths[of.edges[e].first_path + p];
            for (const std::uint32_t link : own.links)
              made.push_back({static_cast<LinkId>(link), own.weight});
          }
          return made;
        };
        edges.push_back(e);
        all.push_back(path(structure));
        few.push_back(path(less));
        left_out += all.back().size() - few.back().size();
        kept += few.back().size();
      }
      std::vector<engine::Flow> with, without;
      for (std::size_t i = 0; i < edges.size(); ++i) {
        with.push_back({all[i], rates[edges[i]]});
        without.push_back({few[i], rates[edges[i]]});
      }
      std::vector<std::int64_t> expected, got;
      engine::MaxMinSharing().rates(links, with, expected);
      engine::MaxMinSharing().rates(links, without, got);
      CHECK(got == expected);
    }
  }
  CHECK(left_out > 1000);
  CHECK(kept > 1000);
}
