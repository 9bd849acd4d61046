// Where a step stands among others is told without following every rank, and is what a summary
// says.
#include <doctest/doctest.h>

#include "sim/simulate/report/summarize.h"
#include "tests/simulate/gpt_job.h"

using namespace trainyard;

namespace {

StepReport check_standing(const Job& job) {
  const StepReport whole = summarize(job, *simulate_step(job, {.detail = Detail::summary}));
  const StepReport part = standing(job, *simulate_step(job, {.detail = Detail::standing}));
  CHECK(part.simulated_step == whole.simulated_step);
  CHECK(part.step_time == whole.step_time);
  CHECK(part.mfu == whole.mfu);
  CHECK(part.memory.peak == whole.memory.peak);
  CHECK(part.slowest_rank == whole.slowest_rank);
  CHECK(part.breakdown == whole.breakdown);
  return whole;
}

}  // namespace

TEST_CASE("a standing agrees with the summary, whatever ranks divide") {
  for (const auto& [tensor, data, stages] :
       {std::array{1, 1, 1}, std::array{4, 1, 1}, std::array{1, 4, 1}, std::array{1, 1, 4},
        std::array{2, 2, 2}})
    check_standing(gpt_job(tensor, data, stages));
}

TEST_CASE("a standing is that of the slowest rank, also where this is not of the first stage") {
  Job late = gpt_job(1, 1, 4);
  late.stragglers = {{.rank = 2, .compute_slowdown = 100}};
  CHECK(check_standing(late).slowest_rank == 2);
}

TEST_CASE("a standing agrees where servers update, at once and at each rank's own pace") {
  Job served = gpt_job(1, 4, 1);
  served.plan.data_parallel.kind = "parameter_server";
  served.cluster.server.host_memory_bandwidth = BytesPerSecond(1e11);
  check_standing(served);
  served.plan.data_parallel.parameter_servers.updates = recipe::ServerUpdates::asynchronous;
  check_standing(served);
}
