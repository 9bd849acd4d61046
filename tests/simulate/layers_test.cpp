// Whole steps of tables of layers: given times in closed form, and every way of training them.
#include <doctest/doctest.h>

#include "models/layers/layer_table.h"
#include "sim/simulate/report/summarize.h"
#include "tests/simulate/toy.h"
#include "tests/support/rooms.h"

using namespace trainyard;

namespace {

constexpr Duration us(int count) {
  return std::chrono::microseconds(count);
}

TableLayer layer(std::string name, Duration forward, Duration backward, std::int64_t parameters,
                 std::optional<std::vector<std::string>> after = std::nullopt) {
  TableRow row;
  row.op = TableOp::time;
  row.name = "time";
  row.forward_time = forward;
  row.backward_time = backward;
  row.micro_batch = 1;
  row.parameters = parameters;
  row.keeps = 1000;
  return {std::move(name), std::nullopt, {row}, std::move(after)};
}

// Four layers of 100 us forward and 200 us backward; the last reads what the first has made.
LayerNetwork network(std::int64_t parameters) {
  const auto equal = [&](const char* name) { return layer(name, us(100), us(200), parameters); };
  LayerTable table{{10}, {}, {equal("a"), equal("b"), equal("c"), equal("d")}};
  TableRow join;
  join.op = TableOp::add;
  join.name = "join";
  join.after = std::vector<std::string>{"inputs"};
  table.layers[3].after = std::vector<std::string>{"c", "a"};
  table.layers[3].ops.insert(table.layers[3].ops.begin(), join);
  std::vector<TableProblem> problems;
  LayerNetwork network = resolve(table, problems);
  REQUIRE(problems.empty());
  return network;
}

Job job(const LayerNetwork& network, int data, int pipeline, int microbatches) {
  Job result;
  result.network = network;
  result.cluster = toy::cluster(data * pipeline, 1);
  result.recipe.global_batch = std::int64_t{microbatches} * data;
  result.recipe.launch_time = Duration(0);
  result.plan.degrees = {.tensor = 1, .data = data, .pipeline = pipeline};
  return result;
}

}  // namespace

TEST_CASE("a step of given times takes their sum for each micro-batch") {
  LayerTable table{{10}, {}, {}};
  for (const char* name : {"a", "b", "c"})
    table.layers.push_back(layer(name, us(120), us(250), 0));
  std::vector<TableProblem> problems;
  Job one = job(resolve(table, problems), 1, 1, 1);
  // Nothing is trained, so nothing needs a gradient.
  CHECK(simulate_step(one)->trace().end == 3 * us(120));
  for (TableLayer& each : table.layers)
    each.ops.front().parameters = 1;
  for (const int microbatches : {1, 5}) {
    one = job(resolve(table, problems), 1, 1, microbatches);
    one.recipe.optimizer = Optimizer::sgd;
    const Duration sum = microbatches * 3 * us(120 + 250);
    const Duration end = simulate_step(one)->trace().end;
    CHECK(end >= sum);
    CHECK(end - sum < us(1));  // three parameters are updated
  }
}

TEST_CASE("a pipeline of equal given times is as long as its slots") {
  Job cut = job(network(1), 1, 2, 6);
  const Duration end = simulate_step(cut)->trace().end;
  const Duration slots = (6 + 2 - 1) * 2 * us(300);
  CHECK(end >= slots);
  // Messages of 20 elements and sums of gradients come on top.
  CHECK(end < slots + slots / 20);
}

TEST_CASE("every strategy trains a table of layers and gives back what it takes") {
  for (const char* kind : {"allreduce", "zero1", "zero2", "zero3", "fsdp"}) {
    for (const Recompute recompute : {Recompute::none, Recompute::full}) {
      CAPTURE(kind);
      Job all = job(network(100'000), 2, 1, 2);
      all.plan.data_parallel.kind = kind;
      all.recipe.recompute.form = recompute;
      const auto step = simulate_step(all);
      REQUIRE(std::holds_alternative<Trace>(step->outcome));
      for (const MemoryPeak& peak : step->trace().peaks)
        CHECK(peak.at_end == peak.resident);
      CHECK(summarize(all, *step).step_time.has_value());
      CHECK(summarize(all, *step).parameters == 400'000);
    }
  }
}
