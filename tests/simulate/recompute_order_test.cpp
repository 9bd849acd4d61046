// When stages run again, and which micro-batches do not, by closed forms.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <string>
#include <vector>

#include "tests/simulate/mixed_jobs.h"
#include "tests/support/about.h"

using namespace trainyard;
constexpr Duration kGroup{200'000'000};  // forward of a stage, ps
// Kernels that run beside a message are slower by what it takes, ps.
constexpr std::int64_t kMessages = 1'000'000;

namespace {

// Two stages of two layers of 100 us forward and 200 back, which run again together, between a
// first and a last layer of no time; nothing is sent.
StepReport two_stages(const std::vector<std::string>& more) {
  std::string layers;
  for (int i = 0; i < 6; ++i) {
    const bool end = i == 0 || i == 5;
    layers += fmt::format(R"({}{{ "name": "l{}", "ops": [
        {{ "op": "time", "forward": "{}us", "backward": "{}us", "micro_batch": 1, "keeps": {},
           "parameters": 1, "shape": [1] }}] }})",
                          i == 0 ? "" : ",", i, end ? 0 : 100, end ? 0 : 200, end ? 0 : 10'000'000);
  }
  const std::string text = fmt::format(
      R"("model": {{ "kind": "layers", "input": {{ "shape": [1] }}, "layers": [{}] }},
      "cluster": {{ "nodes": 1, "node": "dgx-a100-80gb", "gpus_used": 2 }},
      "training": {{ "global_batch": 4, "micro_batch": 1, "launch_time": "0us",
        "precision": {{ "compute": "fp32" }}, "optimizer": {{ "type": "sgd" }},
        "recompute": {{ "method": "uniform", "layers": 2 }} }},
      "parallelism": {{ "pp": 2, "pipeline": {{ "schedule": "gpipe" }} }})",
      layers);
  return simulate::simulate(test::scenario_of(text, more)).report;
}

Duration compute(const StepReport& report, std::size_t rank) {
  return report.ranks[rank].breakdown[static_cast<std::size_t>(TimeCategory::compute)];
}

std::int64_t difference(Duration one, Duration other) {
  return (one - other).count();
}

}  // namespace

TEST_CASE("what runs again ahead of the gradients is hidden by the stages behind") {
  const std::vector<std::string> one = {"training.global_batch=1",
                                        "parallelism.pipeline.schedule=sequential"};
  std::vector<std::string> ahead = one;
  ahead.emplace_back("training.recompute_ahead=true");
  const StepReport late = two_stages(one), early = two_stages(ahead);
  // The first stage's, of 200 us, while the last one runs again and back. Both still compute it.
  CHECK(difference(late.simulated_step, early.simulated_step) == kGroup.count());
  for (std::size_t rank = 0; rank < 2; ++rank)
    CHECK(std::abs(difference(compute(late, rank), compute(early, rank))) < kMessages);
  // In a full pipeline only what fills it is hidden.
  const StepReport full = two_stages({}),
                   full_early = two_stages({"training.recompute_ahead=true"});
  CHECK(difference(full.simulated_step, full_early.simulated_step) == kGroup.count());
}

TEST_CASE("one micro-batch of a step does not run again, and is held whole") {
  const StepReport all = two_stages({});
  const StepReport but_one = two_stages({"training.recompute_micro_batches=except_last"});
  for (std::size_t rank = 0; rank < 2; ++rank)
    CHECK(std::abs(difference(compute(all, rank), compute(but_one, rank)) - kGroup.count()) <
          kMessages);
  CHECK(difference(all.simulated_step, but_one.simulated_step) == kGroup.count());
  // What two layers keep is there from its forward pass on, and again when the next one runs again:
  // as much as at the peak of the others.
  const auto held = [](const StepReport& report) { return report.memory.allocated.count(); };
  CHECK(held(all) > 2 * 40'000'000);
  CHECK(std::abs(held(but_one) - held(all)) < 100);
}

TEST_CASE("FLOPs that run again are those of all micro-batches but one") {
  const auto again = [](const std::vector<std::string>& sets) {
    const StepReport report =
        simulate::simulate(
            test::scenario_of(fmt::format("{}{}", test::kGpt,
                                          R"(, "cluster": { "nodes": 1, "node": "dgx-a100-80gb" },
                                   "parallelism": { "pp": 2, "dp": 4, "pipeline": {} })"),
                              sets))
            .report;
    return report.hfu / report.mfu - 1;
  };
  const double all = again({"training.recompute=full"});
  CHECK(all > 0.2);
  // Four micro-batches.
  CHECK(again({"training.recompute=full", "training.recompute_micro_batches=except_last"}) ==
        about(0.75 * all));
}
