// What a profile changes in a whole step besides the times of its kernels and messages.
#include <doctest/doctest.h>

#include <cmath>

#include "sim/simulate/report/summarize.h"
#include "tests/simulate/toy.h"
#include "tests/support/networks.h"
#include "tests/support/rooms.h"

using namespace trainyard;

namespace {

// Four data-parallel ranks whose all-reduces hide behind the backward pass.
Job job(const Profile& profile) {
  Transformer network = gpt(4, 512, 8, 8192);
  Job result;
  result.network = network;
  result.cluster = toy::cluster(4, 1);
  result.recipe.global_batch = 16;
  result.recipe.micro_batch.sequence_length = 256;
  result.plan.degrees = {.data = 4};
  result.plan.data_parallel.bucket_size = Bytes(4 << 20);
  result.prices = {{profile, ""}};
  return result;
}

Duration end_of(const Profile& profile) {
  return simulate_step(job(profile))->trace().end;
}

Profile profile(int share) {  // communication holds 1 / share of the multiprocessors
  Profile made;
  made.name = "test";
  made.collective_channels = share == 0 ? 0 : toy::cluster(4, 1).server.gpu.multiprocessors / share;
  return made;
}

Profile with(double gemm, double memory_bound) {
  Profile made = profile(2);
  made.overlap = OverlapLaw{gemm, memory_bound, 1, {}};
  return made;
}

}  // namespace

TEST_CASE("kernels slow down beside communication by the weights of the overlap law") {
  const Duration alone = end_of(profile(0));
  const Duration shared = end_of(profile(2));
  REQUIRE(shared > alone);
  CHECK(end_of(with(1, 1)) == shared);
  CHECK(end_of(with(0, 0)) == alone);
  const Duration gemm_only = end_of(with(1, 0));
  const Duration memory_only = end_of(with(0, 1));
  CHECK(gemm_only > alone);
  CHECK(gemm_only < shared);
  CHECK(memory_only > alone);
  CHECK(memory_only < shared);
  CHECK(end_of(with(1.5, 1.5)) > shared);
}

TEST_CASE("what is extrapolated is listed with its share, the largest first") {
  Profile fitted = profile(0);
  GemmLaw law;
  law.dtype = Dtype::bf16;
  law.fixed = Seconds(5e-6);
  law.compute_efficiency = law.memory_efficiency = 0.8;
  law.exponent = 2;
  law.n = {64, 1024};
  law.from.basis = Basis::interpolated;
  fitted.gemm = {law};
  const Job given = job(fitted);
  const StepReport report = summarize(given, *simulate_step(given));
  REQUIRE(report.extrapolated.size() > 1);
  double sum = 0;
  for (std::size_t i = 0; i < report.extrapolated.size(); ++i) {
    const Extrapolation& part = report.extrapolated[i];
    CHECK(part.what.find("gemm ") == 0);
    CHECK(part.why == "n is beyond the 1024 fitted");
    if (i > 0) CHECK(part.fraction <= report.extrapolated[i - 1].fraction);
    sum += part.fraction;
  }
  double share = 0;
  for (const BasisShare& basis : report.basis)
    if (basis.basis == Basis::extrapolated) share = basis.fraction;
  CHECK(std::abs(sum - share) < 1e-12);
  CHECK(share > 0);
  CHECK(share < 1);
}

TEST_CASE("a step inside of everything that was fitted extrapolates nothing") {
  const Job given = job(profile(0));
  CHECK(summarize(given, *simulate_step(given)).extrapolated.empty());
}
