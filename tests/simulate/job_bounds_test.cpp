// Bounds of jobs that share what they know of layers are those of each job by itself.
#include "sim/simulate/sketch/job_bounds.h"

#include <doctest/doctest.h>

#include <string>
#include <tuple>
#include <vector>

#include "sim/simulate/simulate.h"
#include "tests/scenario/temporary.h"
#include "tests/support/rooms.h"

using namespace trainyard;

namespace {

auto numbers(const simulate::JobBound& bound) {
  return std::tuple(bound.memory.count(), bound.capacity.count(), bound.kernels, bound.repeated,
                    bound.waits, bound.fill, bound.update);
}

// Whether each job's bound is the same from one JobBounds for all and from one of its own.
void check_alike(const std::string& path, const std::vector<std::vector<std::string>>& changes) {
  std::vector<simulate::Job> jobs;
  for (const std::vector<std::string>& sets : changes)
    jobs.push_back(simulate::job_of(load_scenario(path, sets).base));
  const simulate::JobBounds shared(jobs.front());
  for (int time = 0; time < 2; ++time) {
    for (std::size_t at = 0; at < jobs.size(); ++at) {
      CAPTURE(at);
      const simulate::JobBound bound = shared.of(jobs[at]);
      CHECK(bound.kernels > 0);
      CHECK(numbers(bound) == numbers(simulate::JobBounds(jobs[at]).of(jobs[at])));
    }
  }
}

}  // namespace

TEST_CASE("bounds of plans on one cluster are those of each plan by itself") {
  test::Folder folder("bounds");
  const std::string path = folder.write("gpt.json", R"({
    "version": 1, "name": "gpt",
    "model": {"layers": 8, "hidden": 1024, "heads": 16, "vocab": 51200},
    "cluster": {"preset": "selene", "nodes": 2},
    "training": {"global_batch": 64, "micro_batch": 1, "sequence_length": 1024,
                 "precision": {"compute": "bf16", "gradients": "fp32"}},
    "parallelism": {"tp": 2, "pp": 2}})");
  check_alike(path,
              {{},
               {"training.micro_batch=2"},
               {"model.hidden=2048"},
               {"parallelism.tp=4"},
               {"parallelism.cp=2", "training.fused_attention=true"},
               {"parallelism.pp=4"},
               {"parallelism.sequence_parallel=true"},
               {"parallelism.rank_order=dp-tp-pp"},
               {"parallelism.pipeline.schedule=gpipe"},
               {"parallelism.pipeline.schedule=interleaved_1f1b"},
               {"parallelism.pipeline.layer_split=balanced_with_embeddings"},
               {"parallelism.pipeline.layer_split=by_time"},
               {"training.recompute=full"},
               {"training.recompute=selective"},
               {R"(training.recompute={"method": "block", "layers": 1})"},
               {"training.forward_only=true"},
               {"training.precision.compute=fp32"},
               {"training.execution=eager"},
               {"training.launch_time=20us"},
               {R"(perturbations.compute_jitter={"cv": 0.05})"},
               {R"(perturbations.stragglers=[{"select": {"rank": 0}, "compute_slowdown": 0.5}])"}});
}

TEST_CASE("layers of another network are not those that are known") {
  const std::string path = TRAINYARD_SOURCE_DIR "/configs/scenarios/dlrm-8xa100.json";
  check_alike(
      path,
      {{}, {"parallelism.embedding_parallel.sharding=column_wise"}, {"model.preset=dlrm-dcnv2"}});
}

TEST_CASE("a step is at least its bound, and not much more, wherever the stages' layers are") {
  test::Folder folder("bounds");
  const std::string path = folder.write("gpt.json", R"({
    "version": 1, "name": "gpt",
    "model": {"layers": 16, "hidden": 2048, "heads": 16, "vocab": 1024},
    "cluster": {"preset": "selene", "nodes": 1},
    "training": {"global_batch": 32, "micro_batch": 1, "sequence_length": 2048,
                 "precision": {"compute": "bf16", "gradients": "fp32"}},
    "parallelism": {"pp": 8}})");
  for (const auto& [schedule, chunks, most] : {std::tuple{"1f1b", 1, 1.02},
                                               {"gpipe", 1, 1.02},
                                               {"interleaved_1f1b", 2, 1.02},
                                               {"breadth_first", 2, 1.1},
                                               {"zb_h1", 1, 1.1},
                                               {"zb_h2", 1, 1.02},
                                               {"zb_auto", 1, 1.02},
                                               {"zb_v", 2, 1.05},
                                               {"v_half", 2, 1.2},
                                               {"v_min", 2, 1.5},
                                               {"chimera", 1, 1.3},
                                               {"dualpipe", 1, 1.1},
                                               {"dualpipe_v", 2, 1.1}}) {
    const std::string name = schedule;
    CAPTURE(name);
    const scenario::Scenario scenario =
        load_scenario(path, {"parallelism.pipeline.schedule=" + name,
                             "parallelism.pipeline.chunks_per_stage=" + std::to_string(chunks)})
            .base;
    const simulate::Job job = simulate::job_of(scenario);
    const simulate::JobBound bound = simulate::JobBounds(job).of(job);
    const simulate::StepReport report = simulate::simulate(scenario, {.timeline = false}).report;
    const double step = Seconds(report.simulated_step).count();
    CHECK(bound.seconds() <= step);
    CHECK(step <= most * bound.seconds());
    CHECK(bound.memory <= report.memory.peak);
  }
}

TEST_CASE(
    "an algorithm that is chosen may be faster than the library's, and none is above its step") {
  test::Folder folder("bounds");
  const std::string path = folder.write("gpt.json", R"({
    "version": 1, "name": "gpt",
    "model": {"layers": 8, "hidden": 256, "heads": 16, "vocab": 1024},
    "cluster": {"preset": "selene", "nodes": 1},
    "training": {"global_batch": 16, "micro_batch": 1, "sequence_length": 32,
                 "precision": {"compute": "bf16", "gradients": "fp32"}},
    "parallelism": {"tp": 8}})");
  std::vector<double> bounds, steps;
  for (const char* algorithm : {"auto", "ring", "tree", "halving_doubling"}) {
    CAPTURE(algorithm);
    const scenario::Scenario scenario =
        load_scenario(path, {std::string("collectives.allreduce.algorithm=") + algorithm}).base;
    const simulate::Job job = simulate::job_of(scenario);
    const simulate::StepReport report = simulate::simulate(scenario, {.timeline = false}).report;
    bounds.push_back(simulate::JobBounds(job).of(job).seconds());
    steps.push_back(Seconds(report.simulated_step).count());
    CHECK(bounds.back() <= steps.back());
  }
  CHECK(steps.back() < bounds.front());  // of the library's own choice
}
