// The ledger of memory, on every job that is shipped.
#include <doctest/doctest.h>

#include <algorithm>
#include <fstream>
#include <set>
#include <sstream>

#include "sim/simulate/memory/memory_floor.h"
#include "sim/simulate/report/summarize.h"
#include "sim/simulate/simulate.h"
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

}  // namespace

TEST_CASE("every shipped job peaks at its floor or above, and at it where no stream overlaps") {
  int jobs = 0, equal = 0, above = 0;
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
      if (std::holds_alternative<Deadlock>(step->outcome)) continue;
      ++jobs;
      const StepReport report = outline(job, *step);
      const Bytes over = report.memory.peak - report.memory.capacity;
      const std::vector<MemoryFloor> floors = memory_floors(job, step->plan);
      for (std::size_t c = 0; c < step->lowered.classes.size(); ++c) {
        const lower::RankClass& own = step->lowered.classes[c];
        const auto role = static_cast<std::size_t>(own.role);
        const Bytes peak = step->trace().peaks[own.actor].peak;
        CAPTURE(step->plan.cast.roles[role].name);
        CHECK(floors[role].held <= peak);
        const bool alone = is_moved_by_compute_alone(step->plan.cast.roles[role].program);
        if (alone) CHECK(floors[role].held == peak);
        (floors[role].held == peak ? equal : above) += 1;
        if (floors[role].capacity > Bytes(0))
          CHECK(floors[role].on_device - floors[role].capacity <= over);
      }
      const MemoryFloor floor = memory_floor(job);
      if (report.memory.capacity > Bytes(0)) CHECK(floor.on_device - floor.capacity <= over);
      if (report.fits) CHECK(floor.may_fit());
    }
  }
  MESSAGE("jobs " << jobs << ", classes at their floor " << equal << ", above it " << above);
  CHECK(jobs > 100);
  CHECK(equal > above);
}
