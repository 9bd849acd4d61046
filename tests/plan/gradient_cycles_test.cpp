// What leaves together where threads look for gradients in cycles.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <vector>

#include "sim/base/random.h"
#include "sim/plan/replicas/parts/cycles/fuse_by_cycles.h"
#include "tests/support/about.h"

using namespace trainyard;
using plan::add_agreement;
using plan::CalledGradient;
using plan::CycleTerms;
using plan::fuse_by_cycles;
using plan::FusedGradients;

namespace {

constexpr double kEps = 1e-12;

}  // namespace

TEST_CASE("gradients called together leave in buffers, each when its last is made") {
  std::vector<CalledGradient> gradients;
  for (int n = 0; n < 10; ++n)
    gradients.push_back({Bytes(4), 0, 1.0 + n});
  const auto fused = fuse_by_cycles(gradients, {.cycle = 0.1, .buffer = Bytes(13)});
  REQUIRE(fused.size() == 4);
  for (std::size_t i = 0; i < fused.size(); ++i) {
    CHECK(fused[i].tensors == (i < 3 ? 3 : 1));
    CHECK(fused[i].late == 0);
  }
}

TEST_CASE("a gradient alone waits for half a cycle, the next from one look to the next") {
  // Calls come every 1.5 cycles, and each is made when it is called.
  std::vector<CalledGradient> gradients;
  for (int n = 0; n < 6; ++n)
    gradients.push_back({Bytes(4), 3.0 * n, 3.0 * n});
  const CycleTerms terms{.cycle = 2, .buffer = Bytes(100)};
  const auto fused = fuse_by_cycles(gradients, terms);
  REQUIRE(fused.size() == gradients.size());
  // Looks at 1, 3, 5, ...: those of 0, 3, 6, 9 are found at 1, 3, 7, 9.
  for (std::size_t i = 0; i < fused.size(); ++i)
    CHECK(std::abs(fused[i].late - (i % 2 == 0 ? 1 : 0)) < kEps);
}

TEST_CASE("an agreement is waited for once by what one look finds") {
  std::vector<CalledGradient> gradients(3, {Bytes(4), 0, 0});
  CycleTerms terms{.cycle = 2, .buffer = Bytes(8), .agreement = 0.25, .agreement_each = 0.5};
  const auto fused = fuse_by_cycles(gradients, terms);
  REQUIRE(fused.size() == 2);
  CHECK(std::abs(fused[0].late - (1 + 0.25 + 3 * 0.5)) < kEps);
  CHECK(fused[1].late == 0);
  // Looks that find nothing agree as well, one after the other.
  terms = {.cycle = 1, .buffer = Bytes(8), .agreement = 4};
  gradients = {{Bytes(4), 0, 0}, {Bytes(4), 5, 5}};
  const auto late = fuse_by_cycles(gradients, terms);
  REQUIRE(late.size() == 2);
  CHECK(std::abs(late[0].late - 4.5) < kEps);
  CHECK(std::abs(late[1].late - (8.5 + 4 - 5)) < kEps);
}

TEST_CASE("ranks that remember agree in rounds, others through one that hears of all") {
  for (const int ranks : {2, 3, 8, 9, 1024}) {
    const double rounds = std::ceil(std::log2(ranks));
    CycleTerms terms;
    add_agreement(terms, ranks, 0.5, true);
    CHECK(terms.agreement == rounds * 0.5);
    CHECK(terms.agreement_each == 0);
    add_agreement(terms, ranks, 0.5, false);
    CHECK(terms.agreement == 4 * rounds * 0.5);
    CHECK(terms.agreement_each == about(ranks * 1e-6));
  }
}

TEST_CASE("every gradient leaves once, in order, not before it is made and looked for") {
  SplitMix64 random(7);
  for (int trial = 0; trial < 2000; ++trial) {
    std::vector<CalledGradient> gradients;
    double called = 0, made = 0;
    const auto count = static_cast<int>(1 + random.below(40));
    for (int n = 0; n < count; ++n) {
      called += static_cast<double>(random.below(100)) * 1e-5;
      made = std::max(made, called) + static_cast<double>(random.below(100)) * 1e-5;
      gradients.push_back({Bytes(static_cast<std::int64_t>(1 + random.below(20))), called, made});
    }
    const CycleTerms terms{.cycle = 1e-5 * static_cast<double>(1 + random.below(200)),
                           .buffer = Bytes(16),
                           .agreement = 1e-5 * static_cast<double>(random.below(20)),
                           .agreement_each = 1e-6 * static_cast<double>(random.below(3))};
    std::size_t at = 0;
    double before = 0;
    for (const FusedGradients& group : fuse_by_cycles(gradients, terms)) {
      REQUIRE(group.tensors > 0);
      Bytes bytes;
      for (int n = 0; n < group.tensors; ++n)
        bytes = bytes + gradients.at(at++).bytes;
      CHECK((group.tensors == 1 || bytes <= terms.buffer));
      CHECK(group.late >= 0);
      const double leaves = std::max(gradients[at - 1].made, before) + group.late;
      CHECK(leaves >= gradients[at - 1].called + terms.agreement - kEps);
      before = leaves;
    }
    CHECK(at == gradients.size());
  }
}
