// How many servers and ranks a token visits, against counting every choice, and what travels.
#include "models/layer/expert_routing.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <bit>
#include <vector>

#include "sim/base/random.h"
#include "tests/models/work_support.h"
#include "tests/support/about.h"
#include "tests/support/rooms.h"

using namespace trainyard;

namespace {

// Every choice of T of G groups and then of k experts in them, counted one by one.
double counted(const Routing& r, int parts) {
  const auto experts = static_cast<unsigned>(r.experts);
  const auto in_group = static_cast<unsigned>(r.experts / r.groups);
  std::int64_t choices = 0, visits = 0;
  for (unsigned groups = 0; groups < 1U << r.groups; ++groups) {
    if (std::popcount(groups) != r.top_groups) continue;
    for (unsigned chosen = 0; chosen < 1U << experts; ++chosen) {
      if (std::popcount(chosen) != r.top_k) continue;
      bool allowed = true;
      unsigned seen = 0;
      for (unsigned e = 0; e < experts; ++e) {
        if ((chosen >> e & 1U) == 0) continue;
        allowed &= (groups >> e / in_group & 1U) != 0;
        unsigned part = 0;
        while (experts * (part + 1) / static_cast<unsigned>(parts) <= e)
          ++part;
        seen |= 1U << part;
      }
      if (!allowed) continue;
      ++choices;
      visits += std::popcount(seen);
    }
  }
  return static_cast<double>(visits) / static_cast<double>(choices);
}

double binomial(int n, int k) {
  double value = 1;
  for (int i = 0; i < k; ++i)
    value *= static_cast<double>(n - i) / (i + 1);
  return value;
}

Transformer mixture() {
  Transformer network = llama(4, 512, 8, 8, 1536, 4096);
  network.moe = {.experts = 32, .top_k = 4, .ffn_hidden = 768, .groups = 8, .top_groups = 2};
  return network;
}

LayerWork experts_layer(const Execution& how) {
  return last_layer(network_work(mixture(), how));
}

}  // namespace

TEST_CASE("parts visited are those of every choice counted, in groups or not") {
  int cases = 0;
  for (const std::int64_t experts : {4, 6, 8, 12}) {
    for (std::int64_t groups = 1; groups <= std::min<std::int64_t>(experts, 6); ++groups) {
      if (experts % groups != 0) continue;
      for (std::int64_t top_groups = 1; top_groups <= groups; ++top_groups) {
        for (std::int64_t k = 1; k <= std::min<std::int64_t>(4, top_groups * experts / groups);
             ++k) {
          const Routing routing{experts, k, groups, top_groups};
          for (const int parts : {1, 2, 3, 4, 6, 8}) {
            CAPTURE(experts);
            CAPTURE(groups);
            CAPTURE(top_groups);
            CAPTURE(k);
            CAPTURE(parts);
            CHECK(parts_visited(routing, parts) == about(counted(routing, parts)).within(1e-12));
            ++cases;
          }
        }
      }
    }
  }
  CHECK(cases > 250);
}

// M (1 - C(E - E/M, k) / C(E, k)), and T (1 - C(F - E/G, k) / C(F, k)) if parts are groups.
TEST_CASE("a token of 8 of 256 experts visits 5.3 of 8 servers, 3.6 if it may use 4") {
  const double free = parts_visited({256, 8, 1, 1}, 8);
  CHECK(free == about(8 * (1 - binomial(224, 8) / binomial(256, 8))).within(1e-12));
  CHECK(free == about(5.295).within(1e-4));
  const double limited = parts_visited({256, 8, 8, 4}, 8);
  CHECK(limited == about(4 * (1 - binomial(96, 8) / binomial(128, 8))).within(1e-12));
  CHECK(limited == about(3.63).within(0.005));
  CHECK(parts_visited({256, 8, 8, 8}, 8) == about(free).within(1e-12));
  // One part holds all; as many parts as experts are k; one chosen group is one server.
  CHECK(parts_visited({256, 8, 8, 4}, 1) == about(1).within(1e-12));
  CHECK(parts_visited({256, 8, 8, 4}, 256) == about(8).within(1e-12));
  CHECK(parts_visited({256, 8, 8, 1}, 8) == about(1).within(1e-12));
}

TEST_CASE("drawn tokens visit as many parts on average") {
  SplitMix64 random(2024);
  const Routing routing{64, 6, 8, 3};
  constexpr int kTokens = 40000;
  for (const int parts : {4, 8, 16, 32}) {
    std::int64_t visits = 0;
    for (int token = 0; token < kTokens; ++token) {
      // The first entries of a shuffle: groups, then experts of them.
      std::vector<int> groups = {0, 1, 2, 3, 4, 5, 6, 7}, offered;
      for (std::size_t i = 0; i < 3; ++i) {
        std::swap(groups[i], groups[i + random.below(8 - i)]);
        for (int e = 0; e < 8; ++e)
          offered.push_back(8 * groups[i] + e);
      }
      std::vector<bool> seen(static_cast<std::size_t>(parts), false);
      for (std::size_t i = 0; i < 6; ++i) {
        std::swap(offered[i], offered[i + random.below(24 - i)]);
        seen[static_cast<std::size_t>(offered[i] * parts / 64)] = true;
      }
      visits += std::count(seen.begin(), seen.end(), true);
    }
    CHECK(parts_visited(routing, parts) ==
          about(static_cast<double>(visits) / kTokens).within(0.01));
  }
}

TEST_CASE("rows that share their way are not copied at home, and say how they are routed") {
  Execution how = execution(2, 256);
  how.experts.ranks = 8;
  const LayerWork plain = experts_layer(how);
  how.experts.hierarchical_dispatch = true;
  const LayerWork shared = experts_layer(how);
  const auto exchanges = collectives(shared.forward);
  REQUIRE(exchanges.size() == 2);
  for (const GroupCollective& exchange : exchanges) {
    CHECK(exchange.routing == Routing{32, 4, 8, 2, 512});
    CHECK(exchange.bytes.count() == 2 * 256 * 4 * 512 * 2);
  }
  CHECK(collectives(plain.forward)[0].routing == Routing{});
  const auto has = [](const LayerWork& layer, const char* name) {
    const auto lines = script(layer.forward);
    return std::find(lines.begin(), lines.end(), name) != lines.end();
  };
  CHECK(has(plain, "dispatch sort"));
  CHECK_FALSE(has(shared, "dispatch sort"));
  CHECK(has(shared, "dispatch by expert"));
  // The experts' products are the same.
  CHECK(sum_of_flops(shared.forward) == sum_of_flops(plain.forward));
  CHECK(sum_of_flops(shared.backward) == sum_of_flops(plain.backward));
}

// A byte per element and four per 128 of them, there; two bytes back; the same in the backward
// pass, where gradients go to the experts and back.
TEST_CASE("rows travel to experts in fp8 and back in bf16") {
  Execution how = execution(2, 256);
  how.compute = Dtype::fp8;
  how.experts.ranks = 8;
  for (const bool hierarchical : {false, true}) {
    how.experts.hierarchical_dispatch = hierarchical;
    how.experts.dispatch_dtype.reset();
    const std::int64_t rows = 2 * 256 * 4;
    for (const GroupCollective& exchange : collectives(experts_layer(how).forward))
      CHECK(exchange.bytes.count() == rows * 512 * 2);
    how.experts.dispatch_dtype = Dtype::fp8;
    const LayerWork narrow = experts_layer(how);
    for (const auto& items : {narrow.forward, narrow.backward}) {
      const auto exchanges = collectives(items);
      REQUIRE(exchanges.size() == 2);
      CHECK(exchanges[0].bytes.count() == rows * (512 + 4 * 4));
      CHECK(exchanges[1].bytes.count() == rows * 512 * 2);
    }
  }
}
