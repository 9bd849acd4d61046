// How much there is to build and to simulate, counted before any of it is made: work grows in
// proportion to each of these numbers, and their ends are far beyond any job, near what a machine
// for this program holds (10 KB and 45 us for a layer, 6 KB and 45 us for a pass of it with its
// report, 1.4 KB and 4 us for a bucket).
#include <fmt/format.h>

#include <algorithm>

#include "models/families/network.h"
#include "sim/plan/input/batches.h"
#include "sim/plan/replicas/data_parallel.h"
#include "sim/plan/step_plan.h"
#include "sim/scenario/topics/assemble.h"

namespace trainyard::scenario {

namespace {

constexpr std::int64_t kMostLayerPasses = 1 << 18;
// Where those that repeat may be skipped: 21 s without a period that does, and no timeline.
constexpr std::int64_t kMostRepeatedPasses = 1 << 21;
constexpr double kMostPieces = 1 << 20;
constexpr std::int64_t kMostUnits = 1 << 14;  // 1 ms for each

// Buckets, tiles: `parameters` of a rank in pieces of `each`.
void check_pieces(const char* pointer, double parameters, double each, const char* pieces,
                  Findings& findings) {
  const double count = parameters / each;
  if (count <= kMostPieces) return;
  findings.error(pointer,
                 fmt::format("makes {:.0f} {} on each rank, at most {:.0f} are simulated", count,
                             pieces, kMostPieces),
                 fmt::format("make it {:.0f} times as large", count / kMostPieces + 1));
}

}  // namespace

void validate_work(const Scenario& scenario, Findings& findings) {
  const recipe::ParallelDegrees& degrees = scenario.plan.degrees;
  const std::int64_t of_step = microbatches_per_step(scenario);
  const std::int64_t steps =
      scenario.recipe.input && of_step > 0
          ? plan::input_rounds(*scenario.recipe.input, static_cast<int>(of_step)).count
          : 1;
  const std::int64_t microbatches = of_step * steps;
  const std::int64_t layers = scenario.network.chain().places;
  const bool may_repeat =
      scenario.exploit_periodicity && !scenario.recipe.input && scenario.other_jobs.empty();
  const std::int64_t most = may_repeat ? kMostRepeatedPasses : kMostLayerPasses;
  if (microbatches > 0 && layers > most / microbatches)
    findings.error("/training/global_batch",
                   fmt::format("{} micro-batches through {} layers are more than {} passes of a "
                               "layer, which are simulated at most",
                               microbatches, layers, most),
                   fmt::format("at most {} micro-batches: a step's time grows in proportion",
                               std::max<std::int64_t>(1, most / layers)));

  const auto all = static_cast<double>(
      parameter_count(scenario.network, scenario.recipe.micro_batch.sequence_length));
  const double own = all / degrees.tensor / degrees.pipeline;
  const recipe::DataParallelOptions& options = scenario.plan.data_parallel;
  const auto type = static_cast<double>(size_of(scenario.recipe.precision.gradients).count());
  const plan::DataParallelStrategy strategy = plan::strategy_of(scenario.plan, scenario.recipe);
  const bool exchanges = degrees.data * degrees.context > 1;
  if (exchanges && strategy.layer_units && layers > kMostUnits)
    findings.error(
        "/model/layers",
        fmt::format("{} gathers each of {} layers, embedding and head among them, by itself; at "
                    "most {} are simulated",
                    options.kind, layers, kMostUnits));
  if (exchanges && !strategy.layer_units)
    check_pieces("/parallelism/data_parallel/bucket_size", own * type,
                 static_cast<double>(options.bucket_size.count()), "buckets of gradients",
                 findings);
  if (scenario.recipe.offload.optimizer != recipe::OffloadTo::none)
    check_pieces("/training/offload/tile_parameters", own / strategy.optimizer_shards,
                 static_cast<double>(scenario.recipe.offload.tile_parameters.value()),
                 "tiles of the optimizer", findings);
}

}  // namespace trainyard::scenario
