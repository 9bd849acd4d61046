// Jobs that use a part of their servers, groups that lie unevenly over servers, and two casts on
// one cluster.
#include <doctest/doctest.h>

#include "sim/engine/engine.h"
#include "sim/lower/group_shape.h"
#include "sim/lower/lower.h"
#include "sim/plan/step_plan.h"
#include "sim/simulate/step.h"
#include "tests/simulate/toy.h"
#include "tests/support/about.h"
#include "tests/support/networks.h"
#include "tests/support/rooms.h"

using namespace trainyard;

namespace {

// Servers of eight GPUs with a NIC each, in a data-parallel job on the GPUs that are in use.
Job job_on(std::vector<int> used) {
  Job job;
  job.network = gpt(4, 1024, 16, 32000);
  job.cluster = toy::cluster(8, static_cast<int>(used.size()));
  job.cluster.gpus_used = std::move(used);
  const int ranks = static_cast<int>(job.cluster.gpus_in_use());
  job.recipe.global_batch = ranks;
  job.recipe.micro_batch.sequence_length = 512;
  job.plan.degrees.data = ranks;
  return job;
}

Duration end_of(const Job& job) {
  return simulate_step(job)->trace().end;
}

// One after another on the same servers, or each on servers of its own.
DevicePlacement beside(const Cast& cast, const ClusterSpec& cluster, int first_server) {
  DevicePlacement placement = in_order(cast, cluster);
  for (Device& device : placement)
    device.server += first_server;
  return placement;
}

}  // namespace

TEST_CASE("ranks take the GPUs in use, server after server") {
  const Job job = job_on({2, 3});
  const auto step = simulate_step(job);
  CHECK(step->placement == DevicePlacement{{0, 0}, {0, 1}, {1, 0}, {1, 1}, {1, 2}});
}

TEST_CASE("a group that lies unevenly over servers goes at the pace of the fullest NIC") {
  // Four rings over 4 + 2 ranks: each NIC of the second server carries two of them.
  Job uneven = job_on({4, 2}), even = job_on({4, 4});
  const std::vector<int> players = {4, 2};
  GroupShapes shapes(uneven.cluster, players, true);
  const std::vector<int> six = {0, 1, 2, 3, 8, 9}, eight = {0, 1, 2, 3, 8, 9, 10, 11};
  const GroupShape part = shapes.of_group(six), whole = shapes.of_group(eight);
  CHECK(part.ranks == 6);
  CHECK(part.ranks_per_server == 4);
  CHECK(2 * part.inter_bandwidth.count() == whole.inter_bandwidth.count());
  for (Job* job : {&uneven, &even})
    CHECK(end_of(*job) > Duration(0));
}

TEST_CASE("closed form and flows agree on uneven groups of one job alone") {
  for (const std::vector<int>& used : {std::vector<int>{8, 4}, {6, 6}, {3, 8, 1}}) {
    Job job = job_on(used);
    const double closed = Seconds(end_of(job)).count();
    job.fidelity = Fidelity::flow;
    const double flow = Seconds(end_of(job)).count();
    CHECK(flow == about(closed).within(0.02));
  }
}

TEST_CASE("two jobs on servers of their own take the time that each takes alone") {
  const Job job = job_on({8, 8});
  const NetworkWork work = network_work(job.network, execution(job.recipe, job.plan));
  const StepPlan one = plan_step(work, job.recipe, job.plan);
  const Cast both = join(one.cast, one.cast, "other ");
  ClusterSpec cluster = job.cluster;
  cluster.servers = 4;
  cluster.gpus_used.clear();
  DevicePlacement placement = beside(one.cast, job.cluster, 0);
  const DevicePlacement second = beside(one.cast, job.cluster, 2);
  placement.insert(placement.end(), second.begin(), second.end());
  CHECK(both.players() == 32);
  const auto compute = roofline_compute_cost(peaks(cluster.server.gpu));
  const lower::GpuLaws laws{.compute = compute.get()};
  const auto messages = closed_form_message_cost();
  const Topology topology(cluster);
  for (const Fidelity fidelity : {Fidelity::closed_form, Fidelity::flow}) {
    LowerOptions options;
    options.fidelity = fidelity;
    const Lowered together =
        lower::lower(both, placement, cluster, &topology, {&laws, 1}, *messages, options);
    const Lowered alone = lower::lower(one.cast, beside(one.cast, job.cluster, 0), cluster,
                                       &topology, {&laws, 1}, *messages, options);
    const Trace trace = std::get<Trace>(run(together.machine));
    const Trace own = std::get<Trace>(run(alone.machine));
    CHECK(trace.end == own.end);
  }
}
