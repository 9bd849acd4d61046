// The ledger of memory, on every job that is shipped.
#include <doctest/doctest.h>

#include <algorithm>
#include <fstream>
#include <numeric>
#include <set>
#include <sstream>

#include "sim/simulate/memory/memory_floor.h"
#include "sim/simulate/report/summarize.h"
#include "sim/simulate/simulate.h"
#include "sim/simulate/sketch/job_sketch.h"
#include "tests/support/about.h"
#include "tests/support/rooms.h"

using namespace trainyard;

namespace {

// Of configs/scenarios, but those that take minutes.
std::vector<std::string> shipped_scenarios() {
  std::ifstream file(TRAINYARD_SOURCE_DIR "/tests/cli/scenarios.txt");
  std::vector<std::string> paths;
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    std::string name, command, code, size;
    if (!(words >> name >> command >> code) || name.front() == '#') continue;
    if (words >> size) continue;
    paths.push_back(std::string(TRAINYARD_SOURCE_DIR "/configs/scenarios/") + name + ".json");
  }
  return paths;
}

bool is_moved_by_compute_alone(const Program& program) {
  return std::all_of(program.blocks.begin(), program.blocks.end(), [](const Block& block) {
    return std::all_of(block.ops.begin(), block.ops.end(),
                       [](const Op& op) { return op.effects == 0 || op.stream == 0; });
  });
}

// Whatever memory its GPUs have, a job may fit if all of its floors do.
void check_may_fit(Job job, const Step& step) {
  Bytes most;
  for (const MemoryFloor& floor : memory_floors(job, step.plan))
    most = std::max(most, floor.on_device);
  for (const Bytes memory : {Bytes(most.count() / 2), most - Bytes(1), most, 2 * most}) {
    job.cluster.server.gpu.memory = memory;
    const std::vector<MemoryFloor> floors = memory_floors(job, step.plan);
    CHECK(may_fit(job, step.plan) ==
          std::all_of(floors.begin(), floors.end(),
                      [](const MemoryFloor& floor) { return floor.may_fit(); }));
  }
}

// Each shipped job, but those that share their cluster, with its step.
template <class Visit>
void visit_shipped(const Visit& visit) {
  for (const std::string& path : shipped_scenarios()) {
    CAPTURE(path);
    const ScenarioSet set = load_scenario(path);
    std::vector<Scenario> all = set.variants;
    if (all.empty()) all.push_back(set.base);
    for (const Scenario& scenario : all) {
      if (!scenario.other_jobs.empty()) continue;
      CAPTURE(scenario.variant);
      const Job job = simulate::job_of(scenario);
      const auto step = simulate::step_of(
          scenario, job, {.unfold = false, .run = true, .detail = simulate::Detail::outline});
      if (!std::holds_alternative<Deadlock>(step->outcome)) visit(job, *step);
    }
  }
}

double share(const std::vector<double>& ratios, double near) {
  const auto count = std::count_if(ratios.begin(), ratios.end(), [&](double ratio) {
    return ratio >= 1 - near && ratio <= 1 + near;
  });
  return static_cast<double>(count) / static_cast<double>(ratios.size());
}

double share_of(Bytes bytes, Bytes capacity) {
  return static_cast<double>(bytes.count()) / static_cast<double>(capacity.count());
}

}  // namespace

TEST_CASE("every shipped job peaks at its floor or above, and at it where no stream overlaps") {
  int jobs = 0, equal = 0, above = 0;
  visit_shipped([&](const Job& job, const Step& step) {
    ++jobs;
    const StepReport report = outline(job, step);
    const double told = share_of(report.memory.peak, report.memory.capacity);
    const std::vector<MemoryFloor> floors = memory_floors(job, step.plan);
    for (std::size_t c = 0; c < step.lowered.classes.size(); ++c) {
      const lower::RankClass& own = step.lowered.classes[c];
      const auto role = static_cast<std::size_t>(own.role);
      const Bytes peak = step.trace().peaks[own.actor].peak;
      CAPTURE(step.plan.cast.roles[role].name);
      CHECK(floors[role].held <= peak);
      const bool alone = is_moved_by_compute_alone(step.plan.cast.roles[role].program);
      if (alone) CHECK(floors[role].held == peak);
      (floors[role].held == peak ? equal : above) += 1;
      if (floors[role].capacity > Bytes(0))
        CHECK(share_of(floors[role].on_device, floors[role].capacity) <= told);
    }
    check_may_fit(job, step);
    const MemoryFloor floor = memory_floor(job);
    if (report.memory.capacity > Bytes(0)) CHECK(share_of(floor.on_device, floor.capacity) <= told);
    if (report.fits) CHECK(floor.may_fit());
  });
  MESSAGE("jobs " << jobs << ", classes at their floor " << equal << ", above it " << above);
  CHECK(jobs > 100);
  CHECK(equal > above);
}

// What ranks changes is where sketches of the same job differ; how near they are says how fine that
// may be.
TEST_CASE("sketches of shipped jobs are near their steps") {
  std::vector<double> times, bytes;
  visit_shipped([&](const Job& job, const Step& step) {
    const StepReport report = outline(job, step);
    const JobSketch sketch = simulate::JobSketches(job).of(job);
    Bytes held;
    for (const engine::MemoryPeak& peak : step.trace().peaks)
      held = std::max(held, peak.peak);
    times.push_back(std::accumulate(sketch.seconds.begin(), sketch.seconds.end(), 0.0) /
                    Seconds(report.simulated_step).count());
    bytes.push_back(std::accumulate(sketch.bytes.begin(), sketch.bytes.end(), 0.0) /
                    static_cast<double>(held.count()));
  });
  MESSAGE("time within 5, 10, 20 %: " << share(times, 0.05) << " " << share(times, 0.1) << " "
                                      << share(times, 0.2));
  MESSAGE("memory within 2, 5, 10 %: " << share(bytes, 0.02) << " " << share(bytes, 0.05) << " "
                                       << share(bytes, 0.1));
  CHECK(share(times, 0.1) > 0.6);
  CHECK(share(bytes, 0.05) > 0.8);
}

TEST_CASE("sketches count a tied matrix once in FSDP's sums") {
  const ScenarioSet set =
      load_scenario(TRAINYARD_SOURCE_DIR "/configs/scenarios/gpt-22b-8xa100.json");
  json::Value patch = json::Value::object();
  json::set(patch, "/model/layers", json::Value::of(4));
  json::set(patch, "/model/vocab", json::Value::of(512000));
  json::set(patch, "/training/global_batch", json::Value::of(16));
  json::set(patch, "/training/micro_batch", json::Value::of(1));
  json::set(patch, "/parallelism/tp", json::Value::of(1));
  json::set(patch, "/parallelism/sequence_parallel", json::Value::of(false));
  json::set(patch, "/parallelism/dp", json::Value::of(8));
  json::set(patch, "/parallelism/data_parallel/kind", json::Value::of("fsdp"));
  json::set(patch, "/parallelism/data_parallel/reduce_every_microbatch", json::Value::of(false));
  const auto gradients = [&](bool tied) {
    json::set(patch, "/model/tied_embeddings", json::Value::of(tied));
    const std::optional<Scenario> changed = with_patch(set.base, patch);
    REQUIRE(changed);
    const Job job = simulate::job_of(*changed);
    return simulate::JobSketches(job)
        .of(job)
        .bytes[static_cast<std::size_t>(MemoryKind::gradients)];
  };
  CHECK(gradients(false) - gradients(true) == 4.0 * 512000 * 6144);
}

// A chunk's sums are whole from its first backward pass to its last: of all chunks at once where
// their passes take turns, of one where each chunk has all its micro-batches in one group.
TEST_CASE("sketches hold what FSDP sums over micro-batches") {
  const ScenarioSet set =
      load_scenario(TRAINYARD_SOURCE_DIR "/configs/scenarios/gpt-22b-8xa100.json");
  for (const int microbatches : {2, 4, 8, 16}) {
    CAPTURE(microbatches);
    json::Value patch = json::Value::object();
    json::set(patch, "/model/preset", json::Value::of("llama2-7b"));
    json::set(patch, "/training/global_batch", json::Value::of(2 * microbatches));
    json::set(patch, "/training/micro_batch", json::Value::of(1));
    for (const char* degree : {"tp", "pp", "dp"})
      json::set(patch, std::string("/parallelism/") + degree, json::Value::of(2));
    json::set(patch, "/parallelism/data_parallel/kind", json::Value::of("fsdp"));
    json::set(patch, "/parallelism/pipeline/schedule", json::Value::of("interleaved_1f1b"));
    json::set(patch, "/parallelism/pipeline/chunks_per_stage", json::Value::of(4));
    const std::optional<Scenario> changed = with_patch(set.base, patch);
    REQUIRE(changed);
    const Job job = simulate::job_of(*changed);
    const auto step = simulate::step_of(
        *changed, job, {.unfold = false, .run = true, .detail = simulate::Detail::outline});
    const auto& held = outline(job, *step).memory.by_category;
    const auto& guessed = simulate::JobSketches(job).of(job).bytes;
    double all = 0;
    for (std::size_t kind = 0; kind < static_cast<std::size_t>(MemoryKind::fragmentation); ++kind)
      all += static_cast<double>(held[kind].count());
    CHECK(std::accumulate(guessed.begin(), guessed.end(), 0.0) == about(all).within(0.07));
  }
}
