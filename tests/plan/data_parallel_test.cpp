// What strategies of data parallelism send and hold, against the sums in the papers, in integers.
#include "sim/plan/replicas/data_parallel.h"

#include <doctest/doctest.h>

#include <map>

#include "sim/collective/share.h"
#include "sim/plan/step_memory.h"
#include "sim/plan/step_plan.h"
#include "tests/support/cast.h"
#include "tests/support/networks.h"
#include "tests/support/rooms.h"

using namespace trainyard;

namespace {

constexpr int kLayers = 6;

// Every size is divisible by the groups below.
Transformer small_network() {
  Transformer network = gpt(kLayers, 1024, 16, 32000);
  network.positional = Positional::rope;
  network.tied_embeddings = false;
  return network;
}

struct Case {
  TrainingRecipe recipe;
  ParallelPlan plan;
  explicit Case(const char* kind, int data, int microbatches = 1) {
    recipe.global_batch = std::int64_t{data} * microbatches;
    recipe.micro_batch.sequence_length = 128;
    plan.degrees.data = data;
    plan.data_parallel.kind = kind;
  }
  NetworkWork work() const { return network_work(small_network(), execution(recipe, plan)); }
  StepPlan step() const { return plan_step(work(), recipe, plan); }
};

// Bytes that one rank of stage 0 sends around the rings of `port`.
std::int64_t sent(const StepPlan& plan, std::string_view connection, int ranks) {
  const Program& program = plan.cast.roles[0].program;
  std::int64_t bytes = 0;
  for (const Call& call : program.calls) {
    for (const Op& op : program.blocks[call.block].ops) {
      if (op.kind != OpKind::collective || plan.cast.connection(op).name != connection) continue;
      const TransferSpec& spec = plan.cast.transfer(op);
      bytes += wire_share(spec.kind, ranks).of(spec.bytes).count();
    }
  }
  return bytes;
}

std::int64_t sent(const Case& c) {
  return sent(c.step(), "replicas", c.plan.degrees.data);
}

std::int64_t resident(const StepPlan& plan, MemoryKind kind) {
  std::int64_t bytes = 0;
  for (const MemoryEffect& effect : plan.cast.roles[0].program.resident)
    bytes += effect.category == static_cast<std::uint8_t>(kind) ? effect.bytes : 0;
  return bytes;
}

// Each category ends with what it began with, in every stage.
bool all_is_given_back(const StepPlan& plan) {
  for (const Role& stage : plan.cast.roles) {
    std::map<std::uint8_t, std::int64_t> held;
    for (const Call& call : stage.program.calls)
      for (const Op& op : stage.program.blocks[call.block].ops)
        for (std::uint32_t i = 0; i < op.effects; ++i) {
          const MemoryEffect& effect = stage.program.effects[op.first_effect + i];
          held[effect.category] += effect.bytes;
        }
    for (const auto& [category, bytes] : held)
      if (bytes != 0) return false;
  }
  return true;
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
  CHECK(groups_on(step.cast, "replicas").front().size() == static_cast<std::size_t>(group));
  CHECK(sent(step, "replicas", group) == sent(Case("fsdp", group)));
  CHECK(sent(step, "shards of replicas", replicas) * replicas * group ==
        2 * (replicas - 1) * psi());
}

TEST_CASE("HSDP's groups are neighbours on the data axis, and equal places of them") {
  Case c("hsdp", 8);
  c.plan.degrees.tensor = 2;
  c.plan.data_parallel.shard_size = 2;
  const StepPlan step = c.step();
  using Groups = std::vector<std::vector<Rank>>;
  const Groups shards = groups_on(step.cast, "replicas");
  REQUIRE(shards.size() == 8);
  CHECK(shards[0] == std::vector<Rank>{Rank(0), Rank(2)});
  CHECK(shards[1] == std::vector<Rank>{Rank(4), Rank(6)});
  CHECK(shards[4] == std::vector<Rank>{Rank(1), Rank(3)});
  const Groups replicas = groups_on(step.cast, "shards of replicas");
  REQUIRE(replicas.size() == 4);
  CHECK(replicas[0] == std::vector<Rank>{Rank(0), Rank(4), Rank(8), Rank(12)});
  CHECK(groups_on(step.cast, "gradient norm").empty());
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
    megatron.recipe.precision.gradients = Dtype::fp32;
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

// Oracle: n S in and n S out, against 2 (n-1)/n S through every link of a ring.
TEST_CASE("through a parameter server go n^2 / 2(n-1) times the bytes of a ring's link") {
  for (const int n : {2, 4, 8}) {
    const Case c("parameter_server", n, 3);
    const StepPlan plan = c.step();
    REQUIRE(plan.cast.roles.size() == 2);
    const Program& server = plan.cast.roles[1].program;
    std::int64_t in = 0, out = 0;
    for (const Call& call : server.calls)
      for (const Op& op : server.blocks[call.block].ops) {
        if (op.kind == OpKind::receive) in += plan.cast.transfer(op).bytes.count();
        if (op.kind == OpKind::send) out += plan.cast.transfer(op).bytes.count();
      }
    CHECK(in == n * psi());
    CHECK(out == n * psi());
    CHECK(sent(plan, "gradients to the server", n) == 0);  // no collective
    CHECK(in * 2 * (n - 1) == n * n * sent(Case("allreduce", n, 3)));
    const std::int64_t p = psi() / 2;
    CHECK(held(c) == Held{2 * p, 2 * p, 0});
    CHECK(plan.cast.roles[1].host.memory() == Bytes(16 * p));
  }
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

namespace {

// Eight experts on four ranks, in every layer.
Transformer mixture() {
  Transformer network = small_network();
  network.biases = false;
  network.moe.experts = 8;
  network.moe.top_k = 2;
  network.moe.ffn_hidden = 1024;
  return network;
}

struct Divided {
  StepPlan step;
  std::int64_t dense = 0, experts = 0;
};

Divided divided(const Case& c) {
  const NetworkWork work = network_work(mixture(), execution(c.recipe, c.plan));
  Divided result{plan_step(work, c.recipe, c.plan)};
  for (const int kind : work.chain)
    result.experts += work.kinds[static_cast<std::size_t>(kind)].expert_parameters;
  REQUIRE(result.experts > 0);
  result.dense = result.step.cast.roles[0].parameters - result.experts;
  return result;
}

Case of_mixture(const char* kind, int data, int expert, int microbatches = 1) {
  Case c(kind, data, microbatches);
  c.plan.experts.ranks = expert;
  return c;
}

// Bytes that one rank of any stage sends on `port`.
std::int64_t sent_by_all(const StepPlan& plan, std::string_view connection, int ranks) {
  std::int64_t bytes = 0;
  for (const Role& stage : plan.cast.roles) {
    for (const Call& call : stage.program.calls) {
      for (const Op& op : stage.program.blocks[call.block].ops) {
        if (op.kind != OpKind::collective || plan.cast.connection(op).name != connection) continue;
        const TransferSpec& spec = plan.cast.transfer(op);
        bytes += wire_share(spec.kind, ranks).of(spec.bytes).count();
      }
    }
  }
  return bytes;
}

Case in_stages(const char* kind, int stages, int microbatches, const char* schedule) {
  Case c(kind, 4, microbatches);
  c.plan.degrees.pipeline = stages;
  c.plan.pipeline.schedule = schedule;
  return c;
}

}  // namespace

TEST_CASE("routed experts are divided among their own replicas") {
  Case c = of_mixture("zero1", 4, 4);
  c.plan.degrees.tensor = 2;
  c.plan.tensor_parallel.sequence = true;
  REQUIRE(c.plan.expert_replicas() == 2);
  const auto [step, dense, experts] = divided(c);
  CHECK(resident(step, MemoryKind::optimizer_state) == 12 * dense / 4 + 12 * experts / 2);
  CHECK(sent(step, "replicas", 4) == 2 * 2 * dense * 3 / 4);
  CHECK(sent(step, "expert replicas", 2) == 2 * 2 * experts / 2);
}

TEST_CASE("sharded experts travel in their group as the rest does in its own") {
  constexpr int n = 8, m = 3;
  for (const int expert : {2, 4, 8}) {
    const int replicas = n / expert;
    CAPTURE(expert);
    const auto volumes = [&](const Case& c, int dense_times, int expert_times) {
      const auto [step, dense, experts] = divided(c);
      CHECK(sent(step, "replicas", n) * n == dense_times * (n - 1) * 2 * dense);
      CHECK(sent(step, "expert replicas", replicas) * replicas ==
            expert_times * (replicas - 1) * 2 * experts);
    };
    volumes(of_mixture("zero2", n, expert, m), m + 1, m + 1);
    volumes(of_mixture("zero3", n, expert, m), 3 * m, 3 * m);
    Case kept = of_mixture("fsdp", n, expert, m);
    kept.plan.data_parallel.reshard_after_forward = false;
    volumes(kept, 2 * m, 2 * m);
    // The embedding, the logits and the last layer are kept anyway.
    const auto [step, dense, experts] = divided(of_mixture("fsdp", n, expert, m));
    CHECK(sent(step, "expert replicas", replicas) * replicas * kLayers ==
          m * (3 * kLayers - 1) * (replicas - 1) * 2 * experts);
    CHECK(sent(step, "replicas", n) < 3 * m * (n - 1) * 2 * dense / n);
  }
}

TEST_CASE("states of experts are divided by their replicas, and whole where there is one") {
  constexpr int n = 8;
  for (const int expert : {2, 4, 8}) {
    const int replicas = n / expert;
    CAPTURE(expert);
    {
      const auto [step, dense, experts] = divided(of_mixture("zero2", n, expert));
      CHECK(resident(step, MemoryKind::parameters) == 2 * (dense + experts));
      CHECK(resident(step, MemoryKind::gradients) == 2 * dense / n + 2 * experts / replicas);
    }
    {
      const auto [step, dense, experts] = divided(of_mixture("zero3", n, expert));
      CHECK(resident(step, MemoryKind::parameters) == 2 * dense / n + 2 * experts / replicas);
    }
    const auto [step, dense, experts] = divided(of_mixture("fsdp", n, expert));
    CHECK(resident(step, MemoryKind::parameters) == 4 * dense / n + 4 * experts / replicas);
    CHECK(resident(step, MemoryKind::optimizer_state) == 8 * dense / n + 8 * experts / replicas);
  }
}

TEST_CASE("gradients of experts that one rank has alone leave for the host like all others") {
  constexpr int n = 4, m = 3;
  for (const char* kind : {"zero2", "zero3"}) {
    for (const int expert : {1, 2, 4}) {
      CAPTURE(kind);
      CAPTURE(expert);
      Case c = of_mixture(kind, n, expert, m);
      c.recipe.offload.optimizer = OffloadTo::cpu;
      const auto [step, dense, experts] = divided(c);
      CHECK(all_is_given_back(step));
      CHECK(resident(step, MemoryKind::gradients) == 0);
      std::int64_t left = 0;
      for (const Call& call : step.cast.roles[0].program.calls)
        for (const Op& op : step.cast.roles[0].program.blocks[call.block].ops)
          if (op.kind == OpKind::collective && step.cast.connection(op).name == "copy to the host")
            left += step.cast.transfer(op).bytes.count();
      CHECK(left == m * 2 * (dense / n + experts * expert / n));
    }
  }
}

TEST_CASE("HSDP divides experts in its groups and sums their shards across") {
  constexpr int group = 4, n = 8;
  for (const int expert : {1, 2, 4}) {
    CAPTURE(expert);
    Case c = of_mixture("hsdp", n, expert);
    c.plan.data_parallel.shard_size = group;
    c.plan.data_parallel.reshard_after_forward = false;
    const auto [step, dense, experts] = divided(c);
    const int shards = group / expert;
    const auto divided_among = groups_on(step.cast, "expert replicas");
    REQUIRE(divided_among.empty() == (shards == 1));
    if (shards > 1) CHECK(divided_among.front().size() == static_cast<std::size_t>(shards));
    CHECK(sent(step, "replicas", group) * group == 2 * (group - 1) * 2 * dense);
    CHECK(sent(step, "expert replicas", shards) * shards == 2 * (shards - 1) * 2 * experts);
    // Two replicas: an all-reduce sends what it reduces.
    CHECK(sent(step, "shards of replicas", 2) * group == 2 * dense);
    CHECK(sent(step, "shards of expert replicas", 2) * shards == 2 * experts);
  }
}

TEST_CASE("HSDP's groups of experts are neighbours among their replicas, and equal places") {
  Case c = of_mixture("hsdp", 8, 2);
  c.plan.data_parallel.shard_size = 4;
  const StepPlan step = divided(c).step;
  using Groups = std::vector<std::vector<Rank>>;
  CHECK(groups_on(step.cast, "expert replicas") ==
        Groups{{Rank(0), Rank(2)}, {Rank(4), Rank(6)}, {Rank(1), Rank(3)}, {Rank(5), Rank(7)}});
  CHECK(groups_on(step.cast, "shards of expert replicas") ==
        Groups{{Rank(0), Rank(4)}, {Rank(2), Rank(6)}, {Rank(1), Rank(5)}, {Rank(3), Rank(7)}});
}

TEST_CASE("in a pipeline every micro-batch gathers what is not kept, and is reduced") {
  constexpr int n = 4, m = 8;
  for (const char* schedule : {"gpipe", "1f1b", "interleaved_1f1b", "zb_h1", "zb_v"}) {
    CAPTURE(schedule);
    const auto check = [&](Case c, int times) {
      if (std::string_view(schedule) == "interleaved_1f1b" || std::string_view(schedule) == "zb_v")
        c.plan.pipeline.chunks = 2;
      c.plan.pipeline.layer_split = LayerSplit::balanced;
      CHECK(sent_by_all(c.step(), "replicas", n) * n == times * (n - 1) * psi());
    };
    check(in_stages("zero2", 2, m, schedule), m + 1);
    check(in_stages("zero3", 2, m, schedule), 3 * m);
    Case kept = in_stages("fsdp", 2, m, schedule);
    kept.plan.data_parallel.reshard_after_forward = false;
    check(kept, 1 + m);
    kept.plan.data_parallel.reduce_every_microbatch = false;
    check(kept, 2);
  }
}

// An embedding without dropout keeps nothing and has no kernel in the half for weights.
TEST_CASE("a layer without kernels in its half for weights is reduced after it") {
  constexpr int n = 4, m = 8;
  Transformer network = small_network();
  network.dropout = false;
  for (const char* schedule : {"1f1b", "zb_h1", "zb_v"}) {
    CAPTURE(schedule);
    for (const auto& [kind, times] : {std::pair{"zero2", m + 1}, std::pair{"zero3", 3 * m}}) {
      CAPTURE(kind);
      Case c = in_stages(kind, 2, m, schedule);
      c.plan.pipeline.chunks = std::string_view(schedule) == "zb_v" ? 2 : 1;
      c.plan.pipeline.layer_split = LayerSplit::balanced;
      const StepPlan step =
          plan_step(network_work(network, execution(c.recipe, c.plan)), c.recipe, c.plan);
      CHECK(sent_by_all(step, "replicas", n) * n == times * (n - 1) * psi());
    }
  }
}

// DeepSeek-V3 trains so: ZeRO-1 with DualPipe.
TEST_CASE("two copies of the network are two replicas more among which states are divided") {
  constexpr int n = 4, stages = 2;
  for (const char* schedule : {"chimera", "dualpipe"}) {
    CAPTURE(schedule);
    for (const char* kind : {"zero1", "distributed_optimizer"}) {
      CAPTURE(kind);
      Case c = in_stages(kind, stages, 8, schedule);
      c.plan.data_parallel.overlap_param_gather = false;
      const StepPlan step = c.step();
      // Both stages hold a part of each copy: together all of the network.
      CHECK(resident(step, MemoryKind::parameters) == psi());
      CHECK(resident(step, MemoryKind::optimizer_state) == 6 * psi() / (2 * n));
      CHECK(sent(step, "replicas", 2 * n) * 2 * n == 2 * (2 * n - 1) * psi());
      REQUIRE(groups_on(step.cast, "replicas").size() == 1);
    }
  }
}
