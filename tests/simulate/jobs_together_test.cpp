// Several jobs on one cluster: what they share they divide, and what they do not share costs
// nothing.
#include "sim/simulate/jobs_together.h"

#include <doctest/doctest.h>

#include <tuple>

#include "sim/base/out_of_range.h"
#include "sim/simulate/step.h"
#include "tests/simulate/toy.h"
#include "tests/support/about.h"
#include "tests/support/networks.h"
#include "tests/support/rooms.h"

using namespace trainyard;

namespace {

// Servers of one GPU and one NIC in two racks of `per_rack`, with an uplink as wide as `uplink`
// NICs.
ClusterSpec racks(int per_rack, double uplink) {
  ClusterSpec cluster = toy::cluster(1, 2 * per_rack);
  cluster.fabric = topologies::Clos{
      {{.name = "rack", .gpus = per_rack},
       {.name = "row", .gpus = 2 * per_rack, .oversubscription = per_rack / uplink}}};
  return cluster;
}

// A data-parallel job on the servers that are in use, whose gradients leave after all passes.
Job job_on(const ClusterSpec& cluster, std::vector<int> used, int layers = 4) {
  Job job;
  job.network = gpt(layers, 1024, 16, 32000);
  job.cluster = cluster;
  job.cluster.gpus_used = std::move(used);
  const int ranks = static_cast<int>(job.cluster.gpus_in_use());
  job.recipe.global_batch = ranks;
  job.recipe.micro_batch.sequence_length = 512;
  job.plan.degrees.data = ranks;
  job.plan.data_parallel.overlap_backward = false;
  job.fidelity = Fidelity::flow;
  return job;
}

Job beside(Job job, const Job& other) {
  job.others.push_back({"other", other});
  return job;
}

double ratio(Duration a, Duration b) {
  return Seconds(a).count() / Seconds(b).count();
}

}  // namespace

TEST_CASE("jobs that share no link take the times that they take alone") {
  // Each in a rack of its own, and both over both racks whose uplinks carry all NICs.
  for (const auto& [uplink, first, second] :
       {std::tuple(1.0, std::vector{1, 1, 0, 0}, std::vector{0, 0, 1, 1}),
        std::tuple(2.0, std::vector{1, 0, 1, 0}, std::vector{0, 1, 0, 1})}) {
    const ClusterSpec cluster = racks(2, uplink);
    const auto step = simulate_step(beside(job_on(cluster, first), job_on(cluster, second, 6)), {});
    REQUIRE(step->jobs.size() == 2);
    for (const JobShare& share : step->jobs) {
      CHECK(share.fits);
      CHECK(share.ranks == 2);
      CHECK(share.steps >= 4);
      CHECK(share.together == share.alone);
    }
    CHECK(step->window.step() == step->jobs[0].together);
  }
}

TEST_CASE("also jobs whose steps reach into each other, and whose servers are not equally fast") {
  const ClusterSpec cluster = racks(4, 4);
  Job first = job_on(cluster, {1, 1, 0, 0, 1, 1, 0, 0});
  Job second = job_on(cluster, {0, 0, 1, 1, 0, 0, 0, 0}, 6);
  for (Job* job : {&first, &second}) {
    job->plan.data_parallel.kind = "zero3";
    job->compute_jitter = 0.05;
  }
  const auto step = simulate_step(beside(first, second), {});
  for (const JobShare& share : step->jobs)
    CHECK(ratio(share.together, share.alone) == about(1).within(1e-9));
}

TEST_CASE("a step in a row is a step, by every schedule that flushes") {
  const ClusterSpec cluster = racks(4, 4);
  for (const auto& [schedule, chunks, saved] :
       {std::tuple("gpipe", 1, 0.0), std::tuple("1f1b", 1, 0.0), std::tuple("zb_h1", 1, 0.1),
        std::tuple("zb_h2", 1, 0.1), std::tuple("interleaved_1f1b", 2, 0.0),
        std::tuple("breadth_first", 2, 0.0), std::tuple("zb_v", 2, 0.1),
        std::tuple("v_half", 2, 0.1), std::tuple("dualpipe_v", 2, 0.1),
        std::tuple("dualpipe", 1, 0.1), std::tuple("chimera", 1, 0.1)}) {
    CAPTURE(schedule);
    Job first = job_on(cluster, {1, 1, 1, 1, 0, 0, 0, 0}, 8);
    first.plan.degrees.data = 1;
    first.plan.degrees.pipeline = 4;
    first.plan.pipeline.schedule = schedule;
    first.plan.pipeline.chunks = chunks;
    first.recipe.global_batch = 8;
    const Job second = job_on(cluster, {0, 0, 0, 0, 1, 1, 0, 0});
    const Duration alone = simulate_step(first, {})->window.step();
    const auto step = simulate_step(beside(first, second), {});
    CHECK(step->jobs[0].together == step->jobs[0].alone);
    // Where stages end apart, the next step begins on one while another goes on.
    CHECK(ratio(step->jobs[0].together, alone) <= 1 + 1e-3);
    CHECK(ratio(step->jobs[0].together, alone) >= 1 - 1e-3 - saved);
    for (const Role& role : step->plan.cast.roles)
      CHECK(role.round_calls.size() == static_cast<std::size_t>(step->plan.rounds.count));
  }
}

TEST_CASE("a job by itself sits where it sits beside the others") {
  // Two pairs of a mesh of four have links of unlike width.
  ClusterSpec cluster = toy::cluster(4, 1);
  cluster.server.intra = IntraKind::nvlink_mesh;
  cluster.server.mesh = {{0, 1, 1}, {0, 2, 1}, {0, 3, 1}, {1, 2, 1}, {1, 3, 1}, {2, 3, 4}};
  const auto step = simulate_step(beside(job_on(cluster, {2}), job_on(cluster, {2})), {});
  CHECK(step->jobs[0].together == step->jobs[0].alone);
  CHECK(step->jobs[1].together == step->jobs[1].alone);
  CHECK(step->jobs[1].alone < step->jobs[0].alone);
}

TEST_CASE("equal jobs on one uplink each have half of it") {
  const ClusterSpec cluster = racks(2, 1);
  const Job first = job_on(cluster, {1, 0, 1, 0}), second = job_on(cluster, {0, 1, 0, 1});
  const auto step = simulate_step(beside(first, second), {});
  REQUIRE(step->jobs.size() == 2);
  // Alone, an all-reduce of two ranks moves at the uplink's rate; half of it takes as long again.
  const auto alone = simulate_step(first, {.detail = Detail::summary});
  const Duration moves = alone->breakdowns[0][static_cast<std::size_t>(TimeCategory::exposed_dp)];
  REQUIRE(moves > std::chrono::milliseconds(2));
  for (const JobShare& share : step->jobs)
    CHECK(ratio(share.together - share.alone, moves) == about(1).within(0.02));
  CHECK(step->jobs[0].together == step->jobs[1].together);
}

TEST_CASE("three jobs on one uplink each have a third, and names keep them apart") {
  const ClusterSpec cluster = racks(3, 1);
  Job first = job_on(cluster, {1, 0, 0, 1, 0, 0});
  first.others.push_back({"second", job_on(cluster, {0, 1, 0, 0, 1, 0})});
  first.others.push_back({"third", job_on(cluster, {0, 0, 1, 0, 0, 1})});
  const auto step = simulate_step(first, {});
  REQUIRE(step->jobs.size() == 3);
  const auto pair = simulate_step(
      beside(job_on(cluster, {1, 0, 0, 1, 0, 0}), job_on(cluster, {0, 1, 0, 0, 1, 0})), {});
  const Duration one = step->jobs[0].alone, two = pair->jobs[0].together,
                 three = step->jobs[0].together;
  CHECK(ratio(three - one, two - one) == about(2).within(1e-3));
  CHECK(step->jobs[1].name == "second");
  CHECK(step->jobs[2].name == "third");
}

TEST_CASE("jobs together: folded ranks take the times of all of them") {
  const ClusterSpec cluster = racks(4, 1.5);
  Job first = job_on(cluster, {1, 1, 0, 0, 1, 1, 0, 0});
  Job other = job_on(cluster, {0, 0, 1, 1, 0, 0, 1, 1}, 7);
  other.recipe.launch_time = std::chrono::microseconds(3);
  first = beside(first, other);
  const auto folded = simulate_step(first, {}), whole = simulate_step(first, {.unfold = true});
  CHECK(folded->lowered.machine.actors.size() < whole->lowered.machine.actors.size());
  CHECK(folded->window.begin == whole->window.begin);
  CHECK(folded->window.end == whole->window.end);
  for (std::size_t at = 0; at < 2; ++at)
    CHECK(folded->jobs[at].together == whole->jobs[at].together);
  // What is reported is the first's alone.
  CHECK(folded->lowered.class_of_rank.size() == 4);
  CHECK(folded->placement.size() == 4);
  CHECK(folded->breakdowns.size() == folded->lowered.classes.size());
}

TEST_CASE("a job with short steps and one with long ones both do enough of them") {
  const ClusterSpec cluster = racks(2, 1);
  const Job small = job_on(cluster, {1, 0, 1, 0}, 2);
  Job large = job_on(cluster, {0, 1, 0, 1}, 2);
  large.recipe.global_batch = 24;  // micro-batches before gradients move
  const auto step = simulate_step(beside(small, large), {});
  const auto swapped = simulate_step(beside(large, small), {});
  CHECK(ratio(step->jobs[1].alone, step->jobs[0].alone) > 2);
  CHECK(step->jobs[1].steps >= 3);
  CHECK(swapped->jobs[1].steps >= 8);
  // Whichever is reported, both slow each other down.
  for (const auto& of :
       {std::pair(&step->jobs[0], &swapped->jobs[1]), std::pair(&step->jobs[1], &swapped->jobs[0])})
    CHECK(of.first->slowdown() == about(of.second->slowdown()).within(0.1));
  CHECK(step->jobs[0].slowdown() > 1.01);
  CHECK(step->jobs[1].slowdown() > 1.01);
}

TEST_CASE("a job's GPUs on a server follow those of the jobs before it") {
  ClusterSpec cluster = toy::cluster(8, 2);
  const Job first = job_on(cluster, {4, 4}), second = job_on(cluster, {3, 2});
  const auto step = simulate_step(beside(first, second), {});
  CHECK(step->placement ==
        DevicePlacement{{0, 0}, {0, 1}, {0, 2}, {0, 3}, {1, 0}, {1, 1}, {1, 2}, {1, 3}});
  CHECK(step->together->players() == 13);
  CHECK(in_order(simulate_step(second, {})->plan.cast, second.cluster, std::vector{4, 4}) ==
        DevicePlacement{{0, 4}, {0, 5}, {0, 6}, {1, 4}, {1, 5}});
}

TEST_CASE("a straggler of one job slows the other only as far as they share links") {
  const ClusterSpec cluster = racks(2, 1);
  Job first = job_on(cluster, {1, 0, 1, 0});
  const Job second = job_on(cluster, {0, 1, 0, 1});
  first.stragglers = {{0, 3.0}};
  const auto step = simulate_step(beside(first, second), {});
  // It waits for its own slow rank, by which the other is done with the link.
  CHECK(step->jobs[0].alone > step->jobs[1].alone);
  CHECK(step->jobs[1].slowdown() < 2);
}

TEST_CASE("steps that differ too much are refused") {
  const ClusterSpec cluster = racks(2, 1);
  const Job small = job_on(cluster, {1, 0, 1, 0}, 1);
  Job large = job_on(cluster, {0, 1, 0, 1}, 8);
  large.recipe.global_batch = 2 * 4096;
  CHECK_THROWS_AS(simulate_step(beside(small, large), {}), OutOfRange);
  CHECK_THROWS_AS(simulate_step(beside(large, small), {}), OutOfRange);
}
