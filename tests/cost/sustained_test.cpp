// Laws of products from one measured rate.
#include "sim/cost/borrowed/sustained.h"

#include <doctest/doctest.h>

#include <cmath>

#include "models/layer/peak.h"
#include "tests/support/about.h"

using namespace trainyard;
using cost::GemmLaw;
using cost::Profile;
using models::Dtype;

namespace {

cost::MachinePeaks peaks() {
  cost::MachinePeaks peaks;
  peaks.fp32 = FlopsPerSecond(30e12);
  peaks.tf32 = FlopsPerSecond(60e12);
  peaks.fp16 = peaks.bf16 = FlopsPerSecond(120e12);
  peaks.memory_bandwidth = BytesPerSecond(300e9);
  return peaks;
}

GemmLaw law_of(Dtype dtype) {
  GemmLaw law;
  law.dtype = dtype;
  law.fixed = Seconds(6e-6);
  law.compute_efficiency = 0.75;
  law.memory_efficiency = 0.8;
  law.exponent = 1.5;
  law.m = {16, 4096};
  law.residuals.push_back({8192, 8192, 8192, 1, 1.3});
  law.from.machine = "another";
  return law;
}

models::Gemm product(Dtype dtype, std::int64_t size = 8192) {
  models::Gemm gemm;
  gemm.m = gemm.n = gemm.k = size;
  gemm.dtype = dtype;
  return gemm;
}

double share_of(const Profile& profile, const models::Gemm& gemm) {
  const cost::MachinePeaks machine = peaks();
  const Seconds time = fitted_compute_cost(profile, machine)->time(gemm).time;
  return flops(gemm).count() / time.count() / peak_of(machine, gemm.dtype).count();
}

}  // namespace

TEST_CASE("arithmetic of the measured size takes what was measured") {
  Profile profile;
  profile.gemm = {law_of(Dtype::fp16)};
  SUBCASE("of four constants") {}
  SUBCASE("counted in tiles") {
    profile.gemm[0].tiles = {58, 0.8, 0.9, 200};
  }
  SUBCASE("without a fixed time, as a roofline") {
    profile.gemm[0].fixed = Seconds{};
    profile.gemm[0].exponent = 8;
  }
  take_sustained(profile, peaks(), {{Dtype::fp16, 0.55, "it"}, {Dtype::fp32, 0.45, "it"}});
  // Memory and the start come to it.
  CHECK(share_of(profile, product(Dtype::fp16)) < 0.55);
  CHECK(share_of(profile, product(Dtype::fp16)) == about(0.55).within(0.03));
  CHECK(share_of(profile, product(Dtype::fp32)) == about(0.45).within(0.01));
  // bf16 runs on the same units; small products reach less.
  CHECK(share_of(profile, product(Dtype::bf16)) == share_of(profile, product(Dtype::fp16)));
  CHECK(share_of(profile, product(Dtype::fp16, 512)) < 0.5);
  const auto estimate = fitted_compute_cost(profile, peaks())->time(product(Dtype::fp16));
  CHECK(estimate.basis == Basis::extrapolated);
}

TEST_CASE("laws of the GPU itself stand beside what was measured of other types") {
  Profile profile;
  profile.gemm = {law_of(Dtype::bf16)};
  const Profile fitted = profile;
  add_sustained(profile, peaks(), {{Dtype::fp16, 0.5, "it"}, {Dtype::bf16, 0.5, "it"}});
  CHECK(profile.gemm == fitted.gemm);
  add_sustained(profile, peaks(), {{Dtype::fp32, 0.45, "it"}, {Dtype::tf32, 1.1, "it"}});
  REQUIRE(profile.gemm.size() == 3);
  CHECK(profile.gemm[0] == fitted.gemm[0]);
  CHECK(share_of(profile, product(Dtype::fp32)) == about(0.45).within(0.01));
  // What was measured is arithmetic alone; the memory, which comes to it, takes a fifth of its
  // time.
  const double work = 2.0 * 8192 * 8192 * 8192, arithmetic = work / (1.1 * 60e12);
  const double memory = 3.0 * 8192 * 8192 * 4 / (0.8 * 300e9);
  const double both = 6e-6 + std::pow(std::pow(arithmetic, 1.5) + std::pow(memory, 1.5), 1 / 1.5);
  CHECK(share_of(profile, product(Dtype::tf32)) == about(work / both / 60e12));
}

TEST_CASE("attention of other GPUs' laws follows products of 16 bits") {
  Profile profile;
  profile.gemm = {law_of(Dtype::fp16), law_of(Dtype::fp32)};
  cost::AttentionLaw attention;
  attention.forward = 0.6;
  attention.backward = 0.5;
  profile.attention = {attention};
  Profile slower = profile;
  take_sustained(slower, peaks(), {{Dtype::fp32, 0.1, "it"}});
  CHECK(slower.attention == profile.attention);
  take_sustained(slower, peaks(), {{Dtype::fp16, 0.3, "it"}});
  const double ratio = slower.gemm.back().compute_efficiency / 0.75;
  CHECK(ratio < 0.5);
  CHECK(slower.attention[0].forward == about(0.6 * ratio));
  CHECK(slower.attention[0].backward == about(0.5 * ratio));
  CHECK(slower.gemm.size() == 2);  // the old law of fp16 gave way
}

TEST_CASE("tensor cores that were not measured follow those that were, not CUDA cores") {
  Profile profile;
  profile.gemm = {law_of(Dtype::fp16)};
  take_sustained(profile, peaks(), {{Dtype::fp32, 0.3, "it"}, {Dtype::bf16, 0.6, "it"}});
  CHECK(share_of(profile, product(Dtype::tf32)) == about(0.6).within(0.03));
  CHECK(share_of(profile, product(Dtype::fp16)) == share_of(profile, product(Dtype::bf16)));
}

TEST_CASE("attention takes the ratio of its own type") {
  Profile profile;
  profile.gemm = {law_of(Dtype::fp16)};
  cost::AttentionLaw attention;
  attention.forward = attention.backward = 0.6;
  attention.dtype = Dtype::bf16;
  profile.attention = {attention};
  take_sustained(profile, peaks(), {{Dtype::fp16, 0.75, "it"}, {Dtype::bf16, 0.375, "it"}});
  CHECK(profile.attention[0].forward == about(0.3));
}

TEST_CASE("more memory bandwidth makes nothing slower") {
  double before = 0;
  for (const double bandwidth : {1e9, 50e9, 120e9, 150e9, 200e9, 300e9, 1e12, 1e13}) {
    Profile profile;
    profile.gemm = {law_of(Dtype::fp16)};
    cost::MachinePeaks machine = peaks();
    machine.memory_bandwidth = BytesPerSecond(bandwidth);
    take_sustained(profile, machine, {{Dtype::fp16, 0.5, "it"}});
    const Seconds time = fitted_compute_cost(profile, machine)->time(product(Dtype::fp16)).time;
    CHECK((before == 0 || time.count() <= before));
    before = time.count();
  }
}

TEST_CASE("without any law there is nothing to take") {
  Profile profile;
  take_sustained(profile, peaks(), {{Dtype::fp16, 0.5, "it"}});
  add_sustained(profile, peaks(), {{Dtype::fp16, 0.5, "it"}});
  CHECK(profile == Profile());
}
