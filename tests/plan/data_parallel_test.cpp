// What strategies of data parallelism send and hold, against the sums in the papers, in integers.
#include "sim/plan/data_parallel.h"

#include <doctest/doctest.h>

#include "sim/collective/share.h"
#include "sim/plan/step_memory.h"
#include "sim/plan/step_plan.h"

using namespace trainyard;

namespace {

constexpr int kLayers = 6;

// Every size is divisible by the groups below.
Transformer small_network() {
  Transformer network;
  network.layers = kLayers;
  network.hidden = 1024;
  network.heads = network.kv_heads = 16;
  network.head_size = 64;
  network.ffn_hidden = 4096;
  network.vocabulary = 32000;
  network.positional = Positional::rope;
  network.tied_embeddings = false;
  return network;
}

struct Case {
  TrainingRecipe recipe;
  ParallelPlan plan;
  explicit Case(const char* kind, int data, int microbatches = 1) {
    recipe.global_batch = std::int64_t{data} * microbatches;
    recipe.sequence_length = 128;
    plan.degrees.data = data;
    plan.data_parallel.kind = kind;
  }
  NetworkWork work() const { return network_work(small_network(), execution(recipe, plan)); }
  StepPlan step() const { return plan_step(work(), recipe, plan); }
};

// Bytes that one rank of stage 0 sends around the rings of `port`.
std::int64_t sent(const StepPlan& plan, CollectivePort port, int ranks) {
  const Program& program = plan.stages[0].program;
  std::int64_t bytes = 0;
  for (const Call& call : program.calls) {
    for (const Op& op : program.blocks[call.block].ops) {
      if (op.kind != OpKind::collective || op.port != static_cast<std::uint32_t>(port)) continue;
      const CollectiveSpec& spec = plan.collectives[op.port][op.subject];
      bytes += wire_share(spec.kind, ranks).of(spec.bytes).count();
    }
  }
  return bytes;
}

std::int64_t sent(const Case& c) {
  return sent(c.step(), CollectivePort::data, c.plan.degrees.data);
}

std::int64_t resident(const StepPlan& plan, MemoryKind kind) {
  std::int64_t bytes = 0;
  for (const MemoryEffect& effect : plan.stages[0].program.resident)
    bytes += effect.category == static_cast<std::uint8_t>(kind) ? effect.bytes : 0;
  return bytes;
}

struct Held {
  std::int64_t parameters, gradients, optimizer;
  friend bool operator==(const Held&, const Held&) = default;
};

Held held(const Case& c) {
  const StepPlan step = c.step();
  return {resident(step, MemoryKind::parameters), resident(step, MemoryKind::gradients),
          resident(step, MemoryKind::optimizer_state)};
}

// Psi in bytes of a 16-bit parameter.
std::int64_t psi() {
  return 2 * parameter_count(small_network(), 128);
}

}  // namespace

TEST_CASE("DDP, ZeRO-1 and ZeRO-2 send 2(n-1)/n of the parameters, ZeRO-3 3(n-1)/n") {
  for (const int n : {2, 4, 8, 16}) {
    CAPTURE(n);
    for (const char* kind : {"allreduce", "zero1", "zero2", "distributed_optimizer"}) {
      CAPTURE(kind);
      CHECK(sent(Case(kind, n)) * n == 2 * (n - 1) * psi());
    }
    CHECK(sent(Case("zero3", n)) * n == 3 * (n - 1) * psi());
  }
}

TEST_CASE("ZeRO-1 with all-reduced gradients sends half as much again") {
  Case c("zero1", 8);
  c.plan.data_parallel.all_reduce_gradients = true;
  CHECK(sent(c) * 8 == 3 * 7 * psi());
}

TEST_CASE("gradients of m micro-batches are reduced m times only where that is asked for") {
  constexpr int n = 4, m = 5;
  for (const char* kind : {"zero2", "zero3"}) {
    CAPTURE(kind);
    // ZeRO-3 gathers twice per micro-batch besides.
    const int gathers = std::string_view(kind) == "zero3" ? 2 * m : 1;
    Case c(kind, n, m);
    CHECK(sent(c) * n == (gathers + m) * (n - 1) * psi());
    c.plan.data_parallel.reduce_every_microbatch = false;
    CHECK(sent(c) * n == (gathers + 1) * (n - 1) * psi());
  }
  Case c("allreduce", n, m);
  CHECK(sent(c) * n == 2 * (n - 1) * psi());
  c.plan.data_parallel.reduce_every_microbatch = true;
  CHECK(sent(c) * n == 2 * m * (n - 1) * psi());
}

TEST_CASE("FSDP gathers kept layers once and the others twice") {
  constexpr int n = 8;
  const std::int64_t layer = 2 * Case("fsdp", n).work().kinds[1].parameters;
  Case c("fsdp", n);
  CHECK(sent(c) * n == (n - 1) * (2 * psi() + (kLayers - 1) * layer));
  c.plan.data_parallel.reshard_after_forward = false;
  CHECK(sent(c) * n == (n - 1) * 2 * psi());
  // Gradients in fp32 are twice the bytes.
  c.plan.data_parallel.reduce_dtype = Dtype::fp32;
  CHECK(sent(c) * n == (n - 1) * 3 * psi());
}

TEST_CASE("HSDP sends what FSDP of its group does, and a shard's all-reduce across") {
  constexpr int group = 4, replicas = 2;
  Case c("hsdp", group * replicas);
  c.plan.data_parallel.shard_size = group;
  const StepPlan step = c.step();
  CHECK(step.shard_ranks == group);
  CHECK(sent(step, CollectivePort::data, group) == sent(Case("fsdp", group)));
  CHECK(sent(step, CollectivePort::replica, replicas) * replicas * group ==
        2 * (replicas - 1) * psi());
}

TEST_CASE("HSDP's groups are neighbours on the data axis, and equal places of them") {
  Case c("hsdp", 8);
  c.plan.degrees.tensor = 2;
  c.plan.data_parallel.shard_size = 2;
  const StepPlan step = c.step();
  const RankGrids ranks = rank_grids(c.plan);
  using Groups = std::vector<std::vector<Rank>>;
  const Groups shards = groups_of(step, ranks, CollectivePort::data);
  REQUIRE(shards.size() == 8);
  CHECK(shards[0] == std::vector<Rank>{Rank(0), Rank(2)});
  CHECK(shards[1] == std::vector<Rank>{Rank(4), Rank(6)});
  CHECK(shards[4] == std::vector<Rank>{Rank(1), Rank(3)});
  const Groups replicas = groups_of(step, ranks, CollectivePort::replica);
  REQUIRE(replicas.size() == 4);
  CHECK(replicas[0] == std::vector<Rank>{Rank(0), Rank(4), Rank(8), Rank(12)});
  CHECK(groups_of(step, ranks, CollectivePort::norm).empty());
}

// Rajbhandari et al. 2020, figure 1, with 16-bit gradients; Megatron's dist_optimizer.md, with
// fp32.
TEST_CASE("states per parameter are 16, 4 + 12/n, 2 + 14/n and 16/n bytes") {
  const std::int64_t p = psi() / 2;
  for (const int n : {2, 8, 16}) {
    CAPTURE(n);
    CHECK(held(Case("allreduce", n)) == Held{2 * p, 2 * p, 12 * p});
    CHECK(held(Case("zero1", n)) == Held{2 * p, 2 * p, 12 * p / n});
    CHECK(held(Case("zero2", n)) == Held{2 * p, 2 * p / n, 12 * p / n});
    CHECK(held(Case("zero3", n)) == Held{2 * p / n, 2 * p / n, 12 * p / n});
    Case megatron("distributed_optimizer", n);
    megatron.recipe.gradients = Dtype::fp32;
    CHECK(held(megatron) == Held{2 * p, 4 * p, 12 * p / n});
    // FSDP's gradients exist from their reduction to the step: 4 more.
    CHECK(held(Case("fsdp", n)) == Held{4 * p / n, 0, 8 * p / n});
  }
  Case whole("zero2", 8, 2);
  whole.plan.data_parallel.reduce_every_microbatch = false;
  CHECK(held(whole) == Held{2 * p, 2 * p, 12 * p / 8});
}

TEST_CASE("HSDP divides by its group and not by all replicas") {
  Case c("hsdp", 16);
  c.plan.data_parallel.shard_size = 4;
  CHECK(held(c) == held(Case("fsdp", 4)));
}

TEST_CASE("local SGD sends fp32 parameters once in H steps and holds 8 bytes more for each") {
  constexpr int n = 4, h = 8;
  Case c("local_sgd", n, 3);
  c.plan.data_parallel.steps_between = h;
  CHECK(sent(c) * n * h == 2 * 2 * (n - 1) * psi());
  const std::int64_t p = psi() / 2;
  CHECK(held(c) == Held{2 * p, 2 * p, (12 + 8) * p});
}

TEST_CASE("with one replica every strategy is plain training") {
  for (const StrategyEntry& entry : data_parallel_strategies()) {
    CAPTURE(entry.name);
    const std::string kind(entry.name);
    CHECK(held(Case(kind.c_str(), 1)) == held(Case("allreduce", 1)));
    CHECK(sent(Case(kind.c_str(), 1)) == 0);
  }
}

TEST_CASE("the optimizer reads and writes the states of its shard only") {
  const TrainingRecipe recipe;
  const std::int64_t p = 1 << 20;
  const MemoryBound whole = optimizer_kernel(p, recipe, {});
  CHECK(whole.read.count() == 14 * p);
  CHECK(whole.written.count() == 14 * p);
  for (const char* kind : {"zero1", "zero2", "zero3", "distributed_optimizer"}) {
    CAPTURE(kind);
    const MemoryBound own = optimizer_kernel(p, recipe, strategy_of(Case(kind, 8).plan, recipe));
    CHECK(own.read.count() == 14 * p / 8);
    CHECK(own.written.count() == 14 * p / 8);
  }
  // fp32 parameters, gradients and moments in; parameters and moments out.
  const MemoryBound fsdp = optimizer_kernel(p, recipe, strategy_of(Case("fsdp", 8).plan, recipe));
  CHECK(fsdp.read.count() == 16 * p / 8);
  CHECK(fsdp.written.count() == 12 * p / 8);
}

TEST_CASE("a shard is padded so that all ranks hold as much") {
  CHECK(shard_of(10, 4) == 3);
  CHECK(shard_of(12, 4) == 3);
  CHECK(shard_of(10, 1) == 10);
}

TEST_CASE("routed experts are divided among their own replicas") {
  Transformer network = small_network();
  network.biases = false;
  network.moe.experts = 8;
  network.moe.top_k = 2;
  network.moe.ffn_hidden = 1024;
  Case c("zero1", 4);
  c.plan.degrees.tensor = 2;
  c.plan.expert = 4;
  c.plan.sequence_parallel = true;
  REQUIRE(c.plan.expert_replicas() == 2);
  const NetworkWork work = network_work(network, execution(c.recipe, c.plan));
  std::int64_t experts = 0;
  for (const int kind : work.chain)
    experts += work.kinds[static_cast<std::size_t>(kind)].expert_parameters;
  REQUIRE(experts > 0);
  const StepPlan step = plan_step(work, c.recipe, c.plan);
  const std::int64_t dense = step.stages[0].parameters - experts;
  CHECK(resident(step, MemoryKind::optimizer_state) == 12 * dense / 4 + 12 * experts / 2);
  CHECK(sent(step, CollectivePort::data, 4) == 2 * 2 * dense * 3 / 4);
  CHECK(sent(step, CollectivePort::expert_data, 2) == 2 * 2 * experts / 2);
}
