// torch.nn.DataParallel through plan, lowering and engine: its time, bytes, memory and lock against
// closed forms, in integers.
#include <doctest/doctest.h>

#include <algorithm>

#include "sim/plan/replicas/leader/loss_place.h"
#include "tests/simulate/toy.h"
#include "tests/support/cast.h"
#include "tests/support/rooms.h"

using namespace trainyard;

namespace {

constexpr int kLayers = 3;
constexpr std::int64_t kParameters = 400;  // of a layer
constexpr std::int64_t kP = 2 * kLayers * kParameters, kG = kP;
constexpr std::int64_t kUpdate = 28 * kLayers * kParameters;  // Adam with 16-bit gradients
constexpr std::int64_t kLoss = 50, kLossBackward = 30, kOutput = 20;
constexpr toy::Times kTimes{.forward = 100, .backward = 200, .hop = 7};

NamedKernel loss(std::int64_t read, std::int64_t written) {
  return {"loss", MemoryBound{MemoryOp::cross_entropy, Bytes(read), Bytes(written)}};
}

NetworkWork network() {
  NetworkWork work = toy::network(kLayers, kTimes);
  work.kinds[0].parameters = kParameters;
  work.kinds[0].matrices = {{kParameters, 1}};
  work.kinds.push_back(work.kinds[0]);
  work.chain.back() = 1;
  LayerWork& last = work.kinds[1];
  last.forward.emplace_back(loss(kLoss, 0));
  last.backward.emplace(last.backward.begin(), loss(kLossBackward - kOutput, kOutput));
  return work;
}

struct Setup {
  TrainingRecipe recipe;
  ParallelPlan plan;
  LowerOptions options;
  Duration launch{};

  explicit Setup(int ranks, int microbatches = 1) {
    recipe.global_batch = std::int64_t{ranks} * microbatches;
    recipe.accumulation = recipe::Accumulation::autograd;
    plan.degrees.data = ranks;
    plan.data_parallel.kind = "nn_data_parallel";
  }
  StepPlan step() const { return plan_step(network(), recipe, plan); }
};

std::unique_ptr<toy::Result> simulated(const Setup& setup) {
  auto result = std::make_unique<toy::Result>();
  result->plan = setup.step();
  result->lowered =
      lower_in_order(result->plan.cast, toy::cluster(setup.plan.degrees.data, 1), nullptr,
                     toy::Compute(), toy::Messages(kTimes.hop), setup.options, setup.launch);
  result->outcome = run(result->lowered.machine);
  return result;
}

std::int64_t nanoseconds(const Setup& setup) {
  return simulated(setup)->end().count() / 1000;
}

// Bytes of all that `role` says on a connection, in one direction.
std::int64_t said(const StepPlan& step, std::size_t role, std::string_view connection,
                  OpKind kind) {
  const Program& program = step.cast.roles[role].program;
  std::int64_t bytes = 0;
  for (const Call& call : program.calls)
    for (const Op& op : program.blocks[call.block].ops)
      if (op.kind == kind && step.cast.connection(op).name == connection)
        bytes += step.cast.transfer(op).bytes.count();
  return bytes;
}

std::uint32_t forward_launches(const StepPlan& step, std::size_t role) {
  const Role& own = step.cast.roles[role];
  std::uint32_t launches = 0;
  for (std::size_t call = 0; call < own.calls.size(); ++call) {
    if (own.calls[call].kind != CallKind::forward) continue;
    for (const Op& op : own.program.blocks[own.program.calls[call].block].ops)
      if (op.kind == OpKind::compute && op.group == static_cast<std::uint8_t>(OpGroup::compute) &&
          own.program.segments[op.subject].kernels > 0)
        launches += op.launches;
  }
  return launches;
}

// The most of a category that a program holds, op after op.
std::int64_t most(const Program& program, MemoryKind kind) {
  const auto is_kind = [&](const MemoryEffect& effect) {
    return effect.category == static_cast<std::uint8_t>(kind);
  };
  std::int64_t held = 0;
  for (const MemoryEffect& effect : program.resident)
    if (is_kind(effect)) held += effect.bytes;
  std::int64_t result = held;
  for (const Call& call : program.calls) {
    for (const Op& op : program.blocks[call.block].ops) {
      for (std::uint32_t i = 0; i < op.effects; ++i) {
        const MemoryEffect& effect = program.effects[op.first_effect + i];
        if (is_kind(effect)) held += effect.bytes;
        result = std::max(result, held);
      }
    }
  }
  return result;
}

std::int64_t left_behind(const Program& program) {
  std::int64_t left = 0;
  for (const Call& call : program.calls)
    for (const Op& op : program.blocks[call.block].ops)
      for (std::uint32_t i = 0; i < op.effects; ++i)
        left += program.effects[op.first_effect + i].bytes;
  return left;
}

}  // namespace

TEST_CASE("a step is copies out, passes, the loss of all, sums at the end, and one update") {
  for (const int n : {2, 3, 8}) {
    for (const int m : {1, 2, 5}) {
      CAPTURE(n);
      CAPTURE(m);
      const std::int64_t scatter = (n - 1) * kTimes.hop;
      const std::int64_t replicate = std::max(2 * kP, scatter) + kP;
      const std::int64_t passes = kLayers * (kTimes.forward + kTimes.backward);
      const std::int64_t loss_of_all = kTimes.hop + n * (kLoss + kLossBackward) + scatter;
      const std::int64_t reduce = 2 * kG + kG;
      CHECK(nanoseconds(Setup(n, m)) ==
            m * (replicate + passes + loss_of_all + reduce) + (m - 1) * 3 * kG + kUpdate);
    }
  }
}

TEST_CASE("a loss within the network is computed by each") {
  constexpr int n = 4;
  Setup setup(n);
  const std::int64_t apart = nanoseconds(setup);
  setup.plan.data_parallel.loss_in_model = true;
  CHECK(apart - nanoseconds(setup) == (n - 1) * (kLoss + kLossBackward));
}

TEST_CASE("each pass moves the parameters, their gradients, and outputs of all others") {
  constexpr int n = 4, m = 3;
  Setup setup(n, m);
  const StepPlan step = setup.step();
  REQUIRE(step.cast.roles.size() == 2);
  for (const std::size_t role : {0U, 1U})
    CHECK(said(step, role, "replicas", OpKind::collective) == m * (kP + kG));
  CHECK(said(step, 0, "outputs to GPU 0", OpKind::receive) == m * (n - 1) * kOutput);
  CHECK(said(step, 1, "outputs to GPU 0", OpKind::send) == m * kOutput);
  CHECK(said(step, 0, "gradients of outputs from GPU 0", OpKind::send) == m * (n - 1) * kOutput);
  CHECK(said(step, 1, "gradients of outputs from GPU 0", OpKind::receive) == m * kOutput);
  setup.plan.data_parallel.loss_in_model = true;
  CHECK(said(setup.step(), 1, "outputs to GPU 0", OpKind::send) == m * 4);
}

TEST_CASE("GPU 0 alone holds what stays, and what the loss keeps of all") {
  constexpr int n = 4;
  for (const int m : {1, 3}) {
    CAPTURE(m);
    const StepPlan step = Setup(n, m).step();
    const Program &first = step.cast.roles[0].program, &other = step.cast.roles[1].program;
    // Those of the pass and their sums, beside the sums of earlier passes.
    CHECK(most(first, MemoryKind::gradients) == (m == 1 ? 2 : 3) * kG);
    CHECK(most(first, MemoryKind::parameters) == kP);
    CHECK(most(first, MemoryKind::optimizer_state) == 12 * kLayers * kParameters);
    CHECK(most(first, MemoryKind::logits) == n * kOutput);
    CHECK(most(other, MemoryKind::gradients) == kG);
    CHECK(most(other, MemoryKind::parameters) == kP);
    CHECK(most(other, MemoryKind::optimizer_state) == 0);
    CHECK(most(other, MemoryKind::logits) == 0);
    CHECK(other.resident.empty());
    CHECK(left_behind(first) == 0);
    CHECK(left_behind(other) == 0);
  }
}

TEST_CASE("a backward pass in halves hands out and sums once") {
  constexpr int n = 3, m = 2;
  Setup setup(n, m);
  const std::int64_t whole = nanoseconds(setup);
  setup.plan.pipeline.schedule = "zb_h1";
  CHECK(nanoseconds(setup) == whole);
  const StepPlan step = setup.step();
  for (const std::size_t role : {0U, 1U}) {
    CHECK(said(step, role, "replicas", OpKind::collective) == m * (kP + kG));
    CHECK(left_behind(step.cast.roles[role].program) == 0);
  }
}

// Of arrays that do not share a buffer nothing is copied.
TEST_CASE("an array as large as a buffer is sent as it lies") {
  constexpr std::int64_t kLarge = 6'000'000;  // 12 MB each
  const auto kernels = [](std::int64_t elements) {
    NetworkWork work = network();
    for (LayerWork& kind : work.kinds) {
      kind.parameters = elements;
      kind.matrices = {{elements, 1}};
    }
    const Setup setup(2);
    const StepPlan step = plan_step(work, setup.recipe, setup.plan);
    const Program& first = step.cast.roles[0].program;
    const std::vector<std::string> labels = first.labels.all();
    return std::count_if(labels.begin(), labels.end(), [](const std::string& label) {
      return label.find("into buffer") != std::string::npos;
    });
  };
  CHECK(kernels(kLarge) == 0);
  CHECK(kernels(kParameters) == 2);  // parameters, and gradients
}

TEST_CASE("threads that want the interpreter's lock launch one after another") {
  const auto launches = [](int ranks, double share) {
    Setup setup(ranks);
    setup.plan.data_parallel.lock_share = share;
    return forward_launches(setup.step(), 1);
  };
  CHECK(launches(4, 0) == kLayers);
  CHECK(launches(4, 0.25) == kLayers);
  CHECK(launches(2, 0.5) == kLayers);
  CHECK(launches(4, 0.5) == 2 * kLayers);
  CHECK(launches(8, 0.5) == 4 * kLayers);
  CHECK(launches(8, 1) == 8 * kLayers);
}

// One launch is so slow that the host is all there is: the copies of modules, then n forward passes
// in turn, whose ends nothing but one hop separates from the loss.
TEST_CASE("a forward pass that waits for the host grows with the GPUs of the process") {
  static constexpr std::int64_t kLaunch = 1'000'000;
  const auto step = [](int ranks) {
    Setup setup(ranks);
    setup.plan.data_parallel.lock_share = 1;
    setup.launch = std::chrono::nanoseconds(kLaunch);
    return nanoseconds(setup);
  };
  // A copy of each of the modules, and each layer's one kernel, for each rank; one input for each
  // but the first.
  const std::int64_t more = kLayers + kLayers + 1;
  // And the second gradient of outputs that is sent on.
  CHECK((step(6) - step(4)) / 2 / kLaunch == more + 2);
}

TEST_CASE("with one GPU there is nobody to copy to") {
  const Setup setup(1);
  const StepPlan step = setup.step();
  CHECK(step.cast.roles.size() == 1);
  CHECK(step.cast.connections.empty());
}

TEST_CASE("a loss is taken out of the last layer, if nothing else is in its way") {
  CHECK(!loss_stays(network()));
  NetworkWork before = network();
  before.kinds[0].forward.emplace_back(loss(1, 1));
  CHECK(loss_stays(before).value_or("").find("before the last layer's") != std::string::npos);
  NetworkWork none = network();
  none.kinds[1] = none.kinds[0];
  CHECK(loss_stays(none).value_or("").find("no kernel of a loss") != std::string::npos);
  NetworkWork two = network();
  two.kinds[1].forward.emplace_back(toy::kernel(3));
  CHECK(loss_stays(two).value_or("").find("more than one loss") != std::string::npos);
}
