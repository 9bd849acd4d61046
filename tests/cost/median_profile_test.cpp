// Laws for a GPU without a profile, from those of its kind.
#include <doctest/doctest.h>

#include "sim/cost/profile.h"
#include "tests/support/about.h"
#include "tests/support/rooms.h"

using namespace trainyard;

namespace {

Kin kin(const std::string& gpu, double efficiency, Basis basis = Basis::interpolated) {
  Kin result;
  result.profile.name = result.profile.gpu = gpu;
  result.link = BytesPerSecond(100e9);
  GemmLaw gemm;
  gemm.compute_efficiency = efficiency;
  gemm.fixed = Seconds(efficiency * 1e-5);
  gemm.residuals.push_back({1, 2, 3, 1, 1.5});
  gemm.m = {16, 4096};
  gemm.from = {"table", "machine of " + gpu, "2024", "many", "3 %", basis};
  result.profile.gemm.push_back(gemm);
  CollectiveLaw ring;
  ring.ranks = 8;
  ring.bandwidth = BytesPerSecond(efficiency * 50e9);
  ring.from = gemm.from;
  result.profile.collectives.push_back(ring);
  CollectiveLaw far = ring;
  far.servers = 2;
  result.profile.collectives.push_back(far);
  result.profile.launch = Seconds(efficiency * 1e-6);
  result.profile.launch_from = gemm.from;
  return result;
}

}  // namespace

TEST_CASE("a median profile takes the middle of what each law says, and the mean of two middles") {
  const Profile three =
      median_profile({kin("a", 0.9), kin("b", 0.5), kin("c", 0.6)}, BytesPerSecond(0));
  REQUIRE(three.gemm.size() == 1);
  CHECK(three.gemm.front().compute_efficiency == 0.6);
  CHECK(three.gemm.front().fixed == Seconds(0.6 * 1e-5));
  CHECK(three.launch == Seconds(0.6 * 1e-6));
  CHECK(three.name == "medians of a, b, c");
  const Profile two = median_profile({kin("a", 0.9), kin("b", 0.5)}, BytesPerSecond(0));
  CHECK(two.gemm.front().compute_efficiency == about(0.7));
}

TEST_CASE("what is of one chip alone is left out of a median profile") {
  const Profile one = median_profile({kin("a", 0.9)}, BytesPerSecond(0));
  CHECK(one.gemm.front().residuals.empty());
  CHECK(one.gemm.front().m == SizeRange{});
  CHECK(one.gemm.front().from.basis == Basis::extrapolated);
  CHECK(one.gemm.front().from.machine == "a");
  CHECK(one.collectives.empty());
  // What was assumed does not become a measurement by being carried over.
  const Profile assumed = median_profile({kin("a", 0.9, Basis::analytic)}, BytesPerSecond(0));
  CHECK(assumed.gemm.front().from.basis == Basis::analytic);
}

TEST_CASE("laws of a server's links are scaled to the link, those between servers left out") {
  const Profile fast =
      median_profile({kin("a", 0.9), kin("b", 0.5), kin("c", 0.6)}, BytesPerSecond(200e9));
  REQUIRE(fast.collectives.size() == 1);
  CHECK(fast.collectives.front().servers == 1);
  CHECK(fast.collectives.front().bandwidth.count() == about(2 * 0.6 * 50e9));
}

TEST_CASE("a median is of those profiles that have the law") {
  Kin without = kin("b", 0.5);
  without.profile.gemm.clear();
  without.profile.launch_from = {};
  const Profile two = median_profile({kin("a", 0.9), without}, BytesPerSecond(0));
  REQUIRE(two.gemm.size() == 1);
  CHECK(two.gemm.front().compute_efficiency == 0.9);
  CHECK(two.launch == Seconds(0.9 * 1e-6));
}

TEST_CASE("a chip with less power reaches less of its peak, and never more than what was fitted") {
  Profile settled;
  settled.settled_power = Watts(700);
  CHECK(share_at_power(settled, Watts(700), 1) == 1);
  CHECK(share_at_power(settled, Watts(350), 1) == about(0.683).within(0.001));
  // A board whose peak is three quarters: the same rate is a larger share of it.
  CHECK(share_at_power(settled, Watts(350), 4.0 / 3) == about(0.911).within(0.001));
  CHECK(share_at_power(settled, Watts(500), 7) == 1);
  CHECK(share_at_power(settled, Watts(0), 1) == 1);
  CHECK(share_at_power(Profile(), Watts(350), 1) == 1);
  Kin slower = kin("a", 0.9);
  slower.arithmetic = 0.5;
  const Profile one = median_profile({slower}, BytesPerSecond(0));
  CHECK(one.gemm.front().compute_efficiency == 0.45);
  CHECK(one.gemm.front().fixed == Seconds(0.9 * 1e-5));
}
