// A recommender's step: closed form of its overlap, volumes, imbalance, memory.
#include <doctest/doctest.h>

#include <algorithm>

#include "models/recommender/recommender_work.h"
#include "sim/simulate/step.h"
#include "tests/simulate/recommender_job.h"
#include "tests/simulate/toy.h"
#include "tests/support/cast.h"
#include "tests/support/rooms.h"

using namespace trainyard;

namespace {

// In nanoseconds, as toy::Compute has it: kernels of a list, and its collectives.
struct Sum {
  std::int64_t kernels = 0, collectives = 0;
};
Sum sum_of(const std::vector<WorkItem>& items) {
  Sum sum;
  for (const WorkItem& item : items) {
    if (const auto* kernel = std::get_if<NamedKernel>(&item))
      sum.kernels += memory_traffic(kernel->kernel).count();
    if (const auto* start = std::get_if<GroupCollective>(&item))
      sum.collectives += start->bytes.count();
  }
  return sum;
}

struct ToyStep {
  StepPlan plan;
  Lowered lowered;
  Outcome outcome;
};

// Kernels take a nanosecond a byte, collectives too.
std::unique_ptr<ToyStep> toy_step(const Job& job, const NetworkWork& work) {
  auto step = std::make_unique<ToyStep>();
  step->plan = plan_step(work, job.recipe, job.plan);
  step->lowered =
      lower_in_order(step->plan.cast, job.cluster, nullptr, toy::Compute(), toy::Messages(0), {});
  step->outcome = run(step->lowered.machine);
  return step;
}

NetworkWork work_of(const Job& job) {
  return network_work(job.network, execution(job.recipe, job.plan));
}

Bytes on_the_wire(const Step& step, CollectiveKind kind) {
  Bytes sum;
  const Actor& actor = step.lowered.machine.actors[step.lowered.classes[0].actor];
  const Program& program = *actor.program;
  const auto port = port_on(step.plan.cast, "embedding tables");
  const std::uint32_t table =
      step.lowered.machine.communicators[actor.communicators[port]].transfers;
  for (const Call& call : program.calls) {
    for (const Op& op : program.blocks[call.block].ops) {
      if (op.kind != OpKind::collective || op.port != port) continue;
      const TransferEstimate& estimate = step.lowered.transfers[table][op.subject];
      if (estimate.spec.kind == kind) sum = sum + estimate.terms.wire_bytes;
    }
  }
  return sum;
}

}  // namespace

// The exchange hides behind the bottom MLP or the other way round; everything else is in line.
TEST_CASE("a step is its kernels in line, the bottom MLP beside the exchange both ways") {
  for (const std::int64_t bottom : {8, 4096}) {
    CAPTURE(bottom);
    Job job = recommender_job(4, 16, TableSharding::table_wise);
    auto& network = job.network.change<Recommender>();
    network.index_exchange = IndexExchange::none;
    network.bottom_mlp = {bottom, network.dimension};
    job.plan.data_parallel.overlap_backward = false;
    const NetworkWork work = work_of(job);
    REQUIRE(work.kinds.size() == 6);  // tables, two of the bottom, interaction, two of the top
    std::int64_t expected = 0, parameters = 0;
    Sum bottom_forward, bottom_backward;
    for (std::size_t i = 0; i < work.kinds.size(); ++i) {
      const Sum forward = sum_of(work.kinds[i].forward), backward = sum_of(work.kinds[i].backward);
      parameters += work.kinds[i].parameters;
      if (i == 1 || i == 2) {
        bottom_forward.kernels += forward.kernels;
        bottom_backward.kernels += backward.kernels;
      } else {
        expected += forward.kernels + backward.kernels;
      }
    }
    const std::int64_t exchange = sum_of(work.kinds[0].forward).collectives;
    CHECK(exchange == sum_of(work.kinds[3].backward).collectives);
    CHECK(exchange == 4 * job.recipe.micro_batch.size * 4 * network.dimension * 2);
    CHECK((bottom_forward.kernels > exchange) == (bottom == 4096));
    expected += std::max(exchange, bottom_forward.kernels);
    expected += std::max(exchange, bottom_backward.kernels);
    // fp16 gradients are reduced, sgd reads them and 12 bytes of weights, and writes those.
    expected += parameters * 2;
    const auto step = toy_step(job, work);
    const std::int64_t optimizer = parameters * (2 + 4 + 4 + 2);
    CHECK(std::get<Trace>(step->outcome).end == std::chrono::nanoseconds(expected + optimizer));
  }
}

TEST_CASE("a step takes at least its kernels, at most those and all that travels") {
  for (const TableSharding how : {TableSharding::table_wise, TableSharding::column_wise,
                                  TableSharding::row_wise, TableSharding::replicated}) {
    const Job job = recommender_job(4, 4, how);
    const NetworkWork work = work_of(job);
    std::int64_t kernels = 0, travels = 0;
    for (const LayerWork& kind : work.kinds) {
      for (const auto* items : {&kind.forward, &kind.backward}) {
        kernels += sum_of(*items).kernels;
        travels += sum_of(*items).collectives;
      }
      kernels += kind.parameters * (2 + 4 + 4 + 2);
      travels += kind.parameters * 2;
    }
    const auto step = toy_step(job, work);
    const Duration end = std::get<Trace>(step->outcome).end;
    CHECK(end >= std::chrono::nanoseconds(kernels));
    CHECK(end <= std::chrono::nanoseconds(kernels + travels));
    if (how != TableSharding::replicated) CHECK(end < std::chrono::nanoseconds(kernels + travels));
  }
}

// As with expert parallelism: 2 (n-1)/n x what the samples of a rank have, in each direction
// once.
TEST_CASE("an all-to-all carries (n-1)/n of the embeddings of a rank's samples each way") {
  const Job job = recommender_job(4, 4, TableSharding::table_wise);
  const auto& network = job.network.as<Recommender>();
  const auto step = simulate_step(job, {.unfold = false, .run = false});
  const std::int64_t samples = job.recipe.micro_batch.size, tables = 4;
  const std::int64_t embeddings = samples * tables * network.dimension * 2;
  const std::int64_t indices = samples * tables * (2 * 8 + 4);
  CHECK(on_the_wire(*step, CollectiveKind::all_to_all) ==
        Bytes(3 * (2 * embeddings + indices) / 4));
}

TEST_CASE("row-wise tables reduce sums of all samples and gather their gradients") {
  const Job job = recommender_job(4, 4, TableSharding::row_wise);
  const auto& network = job.network.as<Recommender>();
  const auto step = simulate_step(job, {.unfold = false, .run = false});
  const std::int64_t sums = 4 * job.recipe.micro_batch.size * 4 * network.dimension * 2;
  CHECK(on_the_wire(*step, CollectiveKind::reduce_scatter) == Bytes(3 * sums / 4));
  CHECK(on_the_wire(*step, CollectiveKind::all_gather) == Bytes(3 * sums / 4));
}

TEST_CASE("a rank with two tables looks up twice as long as one with one") {
  Job job = recommender_job(4, 5, TableSharding::table_wise);
  const auto step = simulate_step(job);
  REQUIRE(step->lowered.classes.size() == 2);
  const auto times = [&](std::size_t of) {
    return step->lowered.machine.actors[step->lowered.classes[of].actor].times;
  };
  int routed = 0;
  for (std::size_t k = 0; k < step->plan.cast.kernels.size(); ++k) {
    const Duration two = times(0)->kernel[k], one = times(1)->kernel[k];
    if (step->plan.cast.routed[k]) {
      CHECK(std::abs((two - 2 * one).count()) <= 1);
      ++routed;
    } else {
      CHECK(two == one);
    }
  }
  CHECK(routed == 2);
  // The rank with one table waits for the other.
  job.network = recommender_job(4, 4, TableSharding::table_wise).network.as<Recommender>();
  const auto even = simulate_step(job);
  CHECK(even->lowered.classes.size() == 1);
  CHECK(std::get<Trace>(step->outcome).end > std::get<Trace>(even->outcome).end);
}

TEST_CASE("a rank holds its tables, their state and what is exchanged from begin to end") {
  const Job job = recommender_job(4, 4, TableSharding::table_wise);
  const auto& network = job.network.as<Recommender>();
  const NetworkWork work = work_of(job);
  const auto step = simulate_step(job);
  const Program& program = step->plan.cast.roles[0].program;
  std::int64_t dense = 0;
  for (const LayerWork& kind : work.kinds)
    dense += kind.parameters;
  std::array<std::int64_t, 6> resident{};
  for (const MemoryEffect& effect : program.resident)
    resident[effect.category] += effect.bytes;
  const std::int64_t rows = network.tables[0].rows;
  CHECK(resident[static_cast<std::size_t>(MemoryKind::parameters)] ==
        2 * dense + rows * network.dimension * 4);
  CHECK(resident[static_cast<std::size_t>(MemoryKind::gradients)] == 2 * dense);
  CHECK(resident[static_cast<std::size_t>(MemoryKind::optimizer_state)] == 4 * dense + rows * 4);
  CHECK(resident[static_cast<std::size_t>(MemoryKind::communication_buffers)] ==
        work.kinds[0].resident.buffers.count());
  CHECK(step->plan.cast.roles[0].parameters == dense + rows * network.dimension);
  // Live bytes return to what is resident.
  const Trace& trace = std::get<Trace>(step->outcome);
  std::int64_t held = 0, activations = 0;
  for (const std::int64_t bytes : resident)
    held += bytes;
  for (const LayerWork& kind : work.kinds)
    activations += kind.activations().count();
  const std::int64_t peak = trace.peaks[step->lowered.classes[0].actor].peak.count();
  CHECK(peak >= held + activations);
}

TEST_CASE("tables that do not fit are out of memory, divided by rows they fit") {
  Job job = recommender_job(4, 1, TableSharding::table_wise);
  auto& network = job.network.change<Recommender>();
  network.tables[0].rows = 1 << 20;
  job.cluster.server.gpu.memory = Bytes(std::int64_t{network.dimension} * (1 << 20) * 4);
  CHECK(std::holds_alternative<OutOfMemory>(simulate_step(job)->outcome));
  network.tables[0].sharding = TableSharding::row_wise;
  CHECK(std::holds_alternative<Trace>(simulate_step(job)->outcome));
}
