// A parameter server whose shards are on the ranks' GPUs: bytes, memory and time by closed forms.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <string>
#include <vector>

#include "sim/simulate/step.h"
#include "tests/simulate/mixed_jobs.h"

using namespace trainyard;

namespace {

constexpr std::int64_t kParameters = 8'000'000;

// Two layers that hand on a number and have half of the parameters each, on so many GPUs.
std::string job(int gpus, const std::string& more) {
  std::string layers;
  for (const char* name : {"one", "two"})
    layers += fmt::format(R"({}{{ "name": "{}", "ops": [{{ "op": "time", "forward": "1ms",
        "backward": "2ms", "micro_batch": 1, "parameters": {}, "shape": [1] }}] }})",
                          layers.empty() ? "" : ",", name, kParameters / 2);
  return fmt::format(
      R"("model": {{ "kind": "layers", "input": {{ "shape": [1] }}, "layers": [{}] }},
      "cluster": {{ "nodes": 1, "node": "dgx-a100-80gb", "gpus_used": {} }},
      "training": {{ "global_batch": {}, "micro_batch": 1, "launch_time": "0us",
        "precision": {{ "compute": "fp32" }}, "optimizer": {{ "type": "adam" }} }},
      "parallelism": {{ "data_parallel": {{ "kind": "parameter_server", "device": "gpu" {} }} }})",
      layers, gpus, gpus, more);
}

std::unique_ptr<Step> step_of(int gpus, const std::string& more) {
  return simulate_step(simulate::job_of(test::scenario_of(job(gpus, more))));
}

// Of one rank in a step, by connection.
std::map<std::string, Bytes> sent(const Step& step) {
  std::map<std::string, Bytes> bytes;
  const Cast& cast = step.plan.cast;
  const engine::Program& program = cast.roles.front().program;
  for (const engine::Call& call : program.calls)
    for (const engine::Op& op : program.blocks[call.block].ops)
      if (op.kind == engine::OpKind::send) {
        Bytes& sum = bytes[std::string(cast.connection(op).name)];
        sum = sum + cast.transfer(op).bytes;
      }
  return bytes;
}

}  // namespace

TEST_CASE("each rank sends the other parts of its gradients, and its part of the parameters") {
  for (const char* more : {"", R"(, "push_by_layer": true)"})
    for (const int n : {2, 4, 8}) {
      CAPTURE(n);
      const auto step = step_of(n, more);
      const Bytes part((n - 1) * 4 * kParameters / n);
      const std::map<std::string, Bytes> bytes = sent(*step);
      CHECK(bytes.at("gradients to shards") == part);
      CHECK(bytes.at("parameters from shards") == part);
      CHECK(bytes.size() == 2);
    }
}

TEST_CASE("a GPU holds its part of the states, and the others' gradients for it") {
  const StepReport report = simulate::simulate(test::scenario_of(job(4, ""))).report;
  const auto held = [&](MemoryKind kind) {
    return report.memory.by_category[static_cast<std::size_t>(kind)].count();
  };
  CHECK(held(MemoryKind::parameters) == 4 * kParameters);
  CHECK(held(MemoryKind::gradients) == 4 * kParameters);
  CHECK(held(MemoryKind::optimizer_state) == 8 * kParameters / 4);
  CHECK(held(MemoryKind::communication_buffers) == 3 * kParameters);
  CHECK(held(MemoryKind::nccl_buffers) == 0);  // copies are the driver's
}

TEST_CASE("each further part is added to the sum: two read, one written") {
  for (const int n : {2, 4, 8}) {
    const auto step = step_of(n, "");
    const Cast& cast = step->plan.cast;
    const engine::Program& program = cast.roles.front().program;
    int sums = 0;
    for (const engine::Call& call : program.calls)
      for (const engine::Op& op : program.blocks[call.block].ops) {
        if (program.labels[op.label].find("add gradients") == std::string::npos) continue;
        const engine::Segment& segment = program.segments[op.subject];
        REQUIRE(segment.kernels == 1);
        const Kernel& kernel = cast.kernels[program.kernels[segment.first_kernel]];
        const Bytes part(4 * kParameters / n);
        CHECK(std::get<MemoryBound>(kernel).read == 2 * part);
        CHECK(std::get<MemoryBound>(kernel).written == part);
        ++sums;
      }
    CHECK(sums == n - 1);
  }
}

TEST_CASE("a step is its passes, two rounds of messages, the sums and the update") {
  for (const int n : {2, 8}) {
    const auto step = step_of(n, "");
    Duration message{}, kernels{};
    for (const std::vector<TransferEstimate>& table : step->lowered.transfers)
      for (const TransferEstimate& estimate : table)
        message = std::max(
            message, to_duration(estimate.terms.latency +
                                 Seconds(static_cast<double>(estimate.terms.wire_bytes.count()) /
                                         estimate.terms.bandwidth.count())));
    for (const auto& breakdown : step->breakdowns.front())
      kernels = std::max(kernels, breakdown);
    const Duration optimizer =
        step->breakdowns.front()[static_cast<std::size_t>(TimeCategory::optimizer)];
    CHECK(kernels == Duration(6'000'000'000));
    // Sums run under the messages that follow but for the last one.
    const Duration messages = 2 * (n - 1) * message;
    const Duration end = step->trace().end;
    CHECK(end >= kernels + messages);
    CHECK(end <= kernels + messages + optimizer + Duration(10 * n));
  }
}

TEST_CASE("pushed by layer, all but the last layer's gradients travel under the backward pass") {
  const Duration late = step_of(8, "")->trace().end;
  const Duration early = step_of(8, R"(, "push_by_layer": true)")->trace().end;
  CHECK(early < late);
  // Half of the messages to the shards are hidden, a quarter of all.
  const Duration exposed = late - Duration(6'000'000'000);
  CHECK(late - early > exposed / 10);
  CHECK(late - early < exposed / 4);
}
