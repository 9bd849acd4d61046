#include <doctest/doctest.h>

#include <algorithm>

#include "sim/base/random.h"
#include "sim/engine/sharing.h"
#include "tests/support/reference_engine.h"
#include "tests/support/rooms.h"

using namespace trainyard;
using namespace trainyard::testing;

namespace {

constexpr std::int64_t kFast = std::int64_t{1} << 50;

struct Network {
  IdVector<LinkId, std::int64_t> capacity;
  std::vector<Path> paths;
  std::vector<std::int64_t> limits;

  std::vector<std::int64_t> solve() const {
    std::vector<Flow> flows;
    for (std::size_t f = 0; f < paths.size(); ++f)
      flows.push_back({paths[f], limits.empty() ? kFast : limits[f]});
    std::vector<std::int64_t> rates;
    MaxMinSharing().rates(capacity, flows, rates);
    return rates;
  }
};

Path over(std::initializer_list<std::uint32_t> links) {
  Path path;
  for (std::uint32_t link : links)
    path.push_back({LinkId{link}});
  return path;
}

Network random_network(SplitMix64& random, std::uint64_t max_flows, std::uint64_t rate) {
  Network network;
  const std::uint64_t links = 1 + random.below(12);
  for (std::uint64_t l = 0; l < links; ++l)
    network.capacity.push_back(static_cast<std::int64_t>(1 + random.below(rate)));
  for (std::uint64_t f = random.below(max_flows) + 1; f > 0; --f) {
    Path& path = network.paths.emplace_back();
    for (std::uint64_t hops = random.below(5); hops > 0; --hops)
      path.push_back({static_cast<LinkId>(random.below(links)),
                      static_cast<std::int32_t>(1 + random.below(3))});
    network.limits.push_back(static_cast<std::int64_t>(1 + random.below(rate)));
  }
  return network;
}

}  // namespace

TEST_CASE("parking lot: the long flow and the short ones get half of each link") {
  Network network;
  for (int l = 0; l < 3; ++l)
    network.capacity.push_back(10'000);
  network.paths = {over({0, 1, 2}), over({0}), over({1}), over({2})};
  CHECK(network.solve() == std::vector<std::int64_t>{5000, 5000, 5000, 5000});
}

TEST_CASE("parking lot of unequal links, by hand") {
  // Link 0 (6) saturates first at 2 for three flows; the flows of link 1 (10) then share 8, one of
  // them up to its limit of 3; link 2 (100) has one flow left, which takes the rest.
  Network network;
  for (std::int64_t capacity : {6, 10, 100})
    network.capacity.push_back(capacity);
  network.paths = {over({0}), over({0, 1, 2}), over({0}), over({1}), over({1}), over({2})};
  network.limits = {kFast, kFast, kFast, kFast, 3, kFast};
  CHECK(network.solve() == std::vector<std::int64_t>{2, 2, 2, 5, 3, 98});
}

TEST_CASE("links that saturate together freeze their flows together") {
  // Both links have a share of floor(10 / 3) = 3. One after the other, the flow that is only on the
  // second would get the remainder of the first, depending on which came first.
  Network network;
  for (int l = 0; l < 2; ++l)
    network.capacity.push_back(10);
  network.paths = {over({0, 1}), over({0, 1}), over({0}), over({1})};
  CHECK(network.solve() == std::vector<std::int64_t>{3, 3, 3, 3});
}

TEST_CASE("the heap and the rounds over all links give the same rates") {
  SplitMix64 random(1);
  for (int trial = 0; trial < 3000; ++trial) {
    const Network network = random_network(random, 40, trial % 2 == 0 ? 50 : 1'000'000'000'000);
    CAPTURE(trial);
    CHECK(network.solve() == reference_rates({network.capacity.begin(), network.capacity.end()},
                                             network.paths, network.limits));
  }
}

TEST_CASE("rates are feasible and every flow has a bottleneck") {
  SplitMix64 random(2);
  for (int trial = 0; trial < 2000; ++trial) {
    const Network network = random_network(random, 30, 1'000'000'000'000);
    const std::vector<std::int64_t> rates = network.solve();
    IdVector<LinkId, std::int64_t> load(network.capacity.size()), users(network.capacity.size()),
        fastest(network.capacity.size());
    for (std::size_t f = 0; f < rates.size(); ++f) {
      for (const PathLink& step : network.paths[f]) {
        load[step.link] += rates[f] * step.count;
        users[step.link] += step.count;
        fastest[step.link] = std::max(fastest[step.link], rates[f]);
      }
    }
    CAPTURE(trial);
    for (LinkId link : load.ids())
      CHECK((load[link] <= network.capacity[link] || fastest[link] == 1));
    for (std::size_t f = 0; f < rates.size(); ++f) {
      CHECK(rates[f] <= network.limits[f]);
      bool held = rates[f] == network.limits[f];
      for (const PathLink& step : network.paths[f])
        held = held || (network.capacity[step.link] - load[step.link] < users[step.link] &&
                        rates[f] == fastest[step.link]);
      CHECK(held);
    }
  }
}

TEST_CASE("rates do not depend on the order of the flows") {
  SplitMix64 random(3);
  for (int trial = 0; trial < 500; ++trial) {
    Network network = random_network(random, 20, 1000);
    std::vector<std::int64_t> rates = network.solve();
    std::reverse(network.paths.begin(), network.paths.end());
    std::reverse(network.limits.begin(), network.limits.end());
    std::reverse(rates.begin(), rates.end());
    CHECK(network.solve() == rates);
  }
}

TEST_CASE("k symmetric copies of a network get the rates of one with every count times k") {
  SplitMix64 random(4);
  for (int trial = 0; trial < 500; ++trial) {
    const Network one = random_network(random, 10, 1'000'000);
    const std::int32_t k = 2 + static_cast<std::int32_t>(random.below(5));
    Network folded = one, unfolded = one;
    for (Path& path : folded.paths)
      for (PathLink& step : path)
        step.count *= k;
    for (std::int32_t copy = 1; copy < k; ++copy) {
      unfolded.paths.insert(unfolded.paths.end(), one.paths.begin(), one.paths.end());
      unfolded.limits.insert(unfolded.limits.end(), one.limits.begin(), one.limits.end());
    }
    const std::vector<std::int64_t> rates = folded.solve(), all = unfolded.solve();
    for (std::size_t f = 0; f < all.size(); ++f)
      CHECK(all[f] == rates[f % rates.size()]);
  }
}

TEST_CASE("disjoint parts, links in series and wide links change no rate") {
  SplitMix64 random(5);
  for (int trial = 0; trial < 500; ++trial) {
    const Network one = random_network(random, 15, 1'000'000);
    const std::vector<std::int64_t> rates = one.solve();
    const auto links = static_cast<std::uint32_t>(one.capacity.size());

    Network with_other = one;
    with_other.capacity.push_back(10);
    with_other.paths.push_back({{LinkId{links}}});
    with_other.limits.push_back(1000);
    std::vector<std::int64_t> more = with_other.solve();
    CHECK(more.back() == 10);
    more.pop_back();
    CHECK(more == rates);

    Network in_series = one;  // the first link twice
    in_series.capacity.push_back(one.capacity[LinkId{0}]);
    for (Path& path : in_series.paths)
      for (std::size_t i = 0, n = path.size(); i < n; ++i)
        if (path[i].link == LinkId{0}) path.push_back({LinkId{links}, path[i].count});
    CHECK(in_series.solve() == rates);

    Network with_wide = one;
    with_wide.capacity.push_back(kFast);
    for (Path& path : with_wide.paths)
      path.push_back({LinkId{links}});
    CHECK(with_wide.solve() == rates);
  }
}
