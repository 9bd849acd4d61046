// Layers placed on stages in any way: as a pipeline where they are cut in their order, two towers
// by their closed form.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <string>
#include <vector>

#include "sim/lower/lower.h"
#include "sim/simulate/step.h"
#include "tests/simulate/mixed_jobs.h"

using namespace trainyard;

namespace {

// Layers of 100 us forward and 200 us back that hand on 4 MB, each reading the one before it.
std::string chain(int layers) {
  std::string rows;
  for (int i = 0; i < layers; ++i)
    rows += fmt::format(R"({}{{ "name": "l{}", "ops": [
        {{ "op": "time", "forward": "{}us", "backward": "{}us", "micro_batch": 1, "keeps": 5000,
           "parameters": 300000, "shape": [1000000] }}] }})",
                        i == 0 ? "" : ",", i, 90 + 10 * i, 200 + 7 * i);
  return rows;
}

std::string job(const std::string& layers, const std::string& more) {
  return fmt::format(
      R"("model": {{ "kind": "layers", "input": {{ "shape": [8] }}, "layers": [{}] }},
      "cluster": {{ "nodes": 1, "node": "dgx-a100-80gb", "gpus_used": 4 }},
      "training": {{ "global_batch": 8, "micro_batch": 1, "precision": {{ "compute": "fp32" }},
        "optimizer": {{ "type": "sgd" }} }}, {})",
      layers, more);
}

std::string given(const std::string& stages) {
  return R"("branches": { "placed": "given", "stages": [)" + stages + "] }";
}

StepReport report_of(const std::string& text, const std::vector<std::string>& sets) {
  return simulate::simulate(test::scenario_of(text, sets)).report;
}

}  // namespace

TEST_CASE("layers placed in their order run as a pipeline that cuts them there") {
  const auto of = [](const std::string& how) {
    return job(chain(7),
               R"("parallelism": { "pp": 2, "pipeline": { "schedule": "gpipe", )" + how + "} }");
  };
  const std::string cut = of(R"("layer_split": [2, 3])");
  const std::string placed = of(given(R"({ "layers": ["l0", "l1", "l2"] }, { "layers": ["l3", "l4",
                                         "l5", "l6"] })"));
  for (const char* set : {"training.micro_batch=1", "training.micro_batch=2",
                          "parallelism.pipeline.schedule=sequential", "training.recompute=full",
                          "simulation.fidelity=flow", "parallelism.pipeline.overlap_p2p=false",
                          "parallelism.data_parallel.kind=zero1", "cluster.gpus_used=2"}) {
    CAPTURE(set);
    const StepReport one = report_of(cut, {set}), other = report_of(placed, {set});
    CHECK(one.step_time == other.step_time);
    CHECK(one.pipeline_bytes == other.pipeline_bytes);
    REQUIRE(one.ranks.size() == other.ranks.size());
    for (std::size_t i = 0; i < one.ranks.size(); ++i) {
      CHECK(one.ranks[i].breakdown == other.ranks[i].breakdown);
      CHECK(one.ranks[i].memory == other.ranks[i].memory);
    }
  }
}

namespace {

std::string timed(const std::string& name, const std::string& after, int forward, int backward) {
  return fmt::format(R"({{ "name": "{}", "after": [{}], "ops": [
      {{ "op": "time", "forward": "{}us", "backward": "{}us", "micro_batch": 1,
         "parameters": 1, "shape": [1000000] }}] }})",
                     name, after, forward, backward);
}

// Two layers in each of two towers, and a head that reads both.
std::string towers() {
  return timed("a1", R"("input")", 100, 210) + "," + timed("a2", R"("a1")", 120, 230) + "," +
         timed("b1", R"("input")", 100, 210) + "," + timed("b2", R"("b1")", 120, 230) + "," +
         R"({ "name": "head", "after": ["a2", "b2"], "ops": [
              { "op": "time", "after": ["inputs"], "forward": "50us", "backward": "90us",
                "micro_batch": 1, "shape": [1] }] })";
}

// A step of one micro-batch on two GPUs; launches and messages' kernels take nothing.
struct Run {
  Duration step{};     // without the optimizer
  Duration message{};  // the shortest
};
Run run(const std::string& branches, const std::string& layers = towers()) {
  const std::string text =
      job(layers,
          R"("parallelism": { "pp": 2, "pipeline": { "schedule": "gpipe", )" + branches + "} }");
  const std::vector<std::string> sets = {"cluster.gpus_used=2", "training.global_batch=1",
                                         "training.launch_time=0us"};
  const auto step = simulate_step(simulate::job_of(test::scenario_of(text, sets)));
  Run result{.message = Duration::max()};
  for (const std::vector<TransferEstimate>& table : step->lowered.transfers)
    for (const TransferEstimate& estimate : table)
      if (estimate.point_to_point)
        result.message =
            std::min(result.message,
                     to_duration(estimate.terms.latency +
                                 Seconds(static_cast<double>(estimate.terms.wire_bytes.count()) /
                                         estimate.terms.bandwidth.count())));
  const StepReport report = report_of(text, sets);
  result.step =
      *report.step_time - report.breakdown[static_cast<std::size_t>(TimeCategory::optimizer)];
  return result;
}

}  // namespace

TEST_CASE("two towers take what one takes, the head, and a message each way") {
  using std::chrono::microseconds;
  const Run towers = run(given(R"({ "layers": ["a*", "head"] }, { "layers": ["b*"] })"));
  const Duration expected = microseconds(220 + 140 + 440) + 2 * towers.message;
  CHECK(std::abs((towers.step - expected).count()) <= 4);
  // By time the same is found, whichever GPU has which.
  CHECK(run(R"("branches": {})").step == towers.step);
  // In series every layer waits for the one before it, and what crosses is on the way.
  const Run series = run(given(R"({ "layers": ["a*"] }, { "layers": ["b*", "head"] })"));
  CHECK(series.step == towers.step);
  const Run alternating =
      run(given(R"({ "layers": ["a1", "b2"] }, { "layers": ["b1", "a2", "head"] })"));
  CHECK(alternating.step > towers.step);
}

namespace {

// Memory that a stage's GPU holds of activations, with `recompute`: a stem, a layer beside it on
// stage 0; on stage 1 one that keeps nothing, one that keeps the stem's output, and their sum.
std::int64_t second_stage(const std::string& recompute, const std::vector<std::string>& sets = {}) {
  const std::string linear = R"("ops": [{ "op": "linear", "in": 1024, "out": 1024 }])";
  const std::string layers =
      R"({ "name": "stem", )" + linear + R"(}, { "name": "a", "after": ["stem"], )" + linear +
      R"(}, { "name": "p1", "after": ["stem"], "ops": [{ "op": "scale" }] },
      { "name": "p2", "after": ["stem"], )" +
      linear +
      R"(}, { "name": "p3", "after": ["p1", "p2"], "ops": [{ "op": "add", "after": ["inputs"] }] },
      { "name": "head", "after": ["a", "p3"], "ops": [{ "op": "add", "after": ["inputs"] },
        { "op": "linear", "in": 1024, "out": 10 }, { "op": "loss" }] })";
  const std::string text = fmt::format(
      R"("model": {{ "kind": "layers", "input": {{ "shape": [1024] }}, "layers": [{}] }},
      "cluster": {{ "nodes": 1, "node": "dgx-a100-80gb", "gpus_used": 2 }},
      "training": {{ "global_batch": 4096, "micro_batch": 1024, "recompute": {},
        "precision": {{ "compute": "fp32" }}, "optimizer": {{ "type": "sgd" }} }},
      "parallelism": {{ "pp": 2, "pipeline": {{ "schedule": "gpipe", {} }} }})",
      layers, recompute, given(R"({ "layers": ["stem", "a", "head"] }, { "layers": ["p*"] })"));
  const auto step = simulate_step(simulate::job_of(test::scenario_of(text, sets)));
  const engine::ActorId actor = step->lowered.classes.back().actor;
  return step->trace().peaks[actor].by_category[static_cast<std::size_t>(MemoryKind::activations)];
}

}  // namespace

TEST_CASE("a stage keeps what its own layers keep, whichever of them run again") {
  constexpr std::int64_t kTensors = 4 * (std::int64_t{4} << 20);  // of four micro-batches
  CHECK(second_stage(R"("none")") == kTensors);
  CHECK(second_stage(R"({ "method": "block", "layers": 1 })") == kTensors);
  CHECK(second_stage(R"({ "method": "every", "layers": 2 })") == kTensors);
  // Inputs of all three: the stem's once, and what the third one reads of the others.
  CHECK(second_stage(R"("full")") == 3 * kTensors);
  CHECK(second_stage(R"({ "method": "uniform", "layers": 3 })") == kTensors);
  // Of one micro-batch the stem's output alone, of three all inputs.
  CHECK(second_stage(R"("full")", {"training.recompute_micro_batches=except_last"}) ==
        (1 + 3 * 3) * kTensors / 4);
}

TEST_CASE("a layer that needs the second message of two awaits both, and so with gradients") {
  const auto layer = [](const char* name, const char* after, int forward, int backward, int size) {
    return fmt::format(R"({{ "name": "{}", "after": [{}], "ops": [
        {{ "op": "time", "after": ["inputs"], "forward": "{}us", "backward": "{}us",
           "micro_batch": 1, "parameters": 1, "shape": [{}] }}] }})",
                       name, after, forward, backward, size);
  };
  const std::string layers =
      layer("x1", R"("input")", 100, 210, 1000000) + "," + layer("x2", R"("x1")", 120, 230, 1) +
      "," + layer("y2", R"("x2")", 50, 60, 1) + "," + layer("y1", R"("x1")", 50, 70, 1) + "," +
      layer("head", R"("y1", "y2")", 10, 20, 1);
  const Run own = run(given(R"({ "layers": ["x*"] }, { "layers": ["y*", "head"] })"), layers);
  const Duration expected = std::chrono::microseconds(220 + 110 + 150 + 440) + 2 * own.message;
  // Kernels beside the large messages are slower by what those take.
  CHECK((own.step - expected).count() >= 0);
  CHECK(own.step - expected <= std::chrono::microseconds(10));
}

TEST_CASE("blocking sends hold up the layers behind them") {
  const std::string beside =
      timed("a1", R"("input")", 100, 210) + "," + timed("a2", R"("a1")", 120, 230) + "," +
      timed("b1", R"("a1")", 10, 10) + "," + R"({ "name": "head", "after": ["a2", "b1"], "ops": [
          { "op": "time", "after": ["inputs"], "forward": "50us", "backward": "90us",
            "micro_batch": 1, "shape": [1] }] })";
  const std::string text =
      job(beside, R"("parallelism": { "pp": 2, "pipeline": { "schedule": "gpipe", )" +
                      given(R"({ "layers": ["a*", "head"] }, { "layers": ["b*"] })") + "} }");
  const auto time = [&](const char* overlap) {
    return *report_of(text, {"cluster.gpus_used=2", "training.global_batch=1", overlap}).step_time;
  };
  CHECK(time("parallelism.pipeline.overlap_p2p=false") >
        time("parallelism.pipeline.overlap_p2p=true"));
}
