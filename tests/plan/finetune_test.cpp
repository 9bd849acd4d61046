// What training of adapters, optimizers and a forward pass alone hold and send, in closed forms.
#include <doctest/doctest.h>

#include <map>

#include "sim/collective/share.h"
#include "sim/plan/step_memory.h"
#include "sim/plan/step_plan.h"
#include "tests/support/cast.h"
#include "tests/support/networks.h"
#include "tests/support/rooms.h"

using namespace trainyard;
using models::Finetune;
using models::Target;

namespace {

constexpr int kLayers = 4;

Transformer small_network() {
  return llama(kLayers, 1024, 16, 16, 2816, 32000);
}

// r (in + out) of q and v in each layer.
constexpr std::int64_t kAdapters = std::int64_t{kLayers} * 2 * 8 * (1024 + 1024);

struct Case {
  Transformer network = small_network();
  TrainingRecipe recipe;
  ParallelPlan plan;
  explicit Case(const char* kind, int data, int microbatches = 1) {
    recipe.global_batch = std::int64_t{data} * microbatches;
    recipe.micro_batch.sequence_length = 128;
    recipe.kernels.attention = AttentionKernel::fa2;
    recipe.finetune.kind = Finetune::Kind::lora;
    recipe.finetune.targets.add(Target::query);
    recipe.finetune.targets.add(Target::value);
    plan.degrees.data = data;
    plan.data_parallel.kind = kind;
  }
  NetworkWork work() const { return network_work(network, execution(recipe, plan)); }
  StepPlan step() const { return plan_step(work(), recipe, plan); }
};

std::int64_t sent(const Case& c) {
  const StepPlan step = c.step();
  const Program& program = step.cast.roles[0].program;
  std::int64_t bytes = 0;
  for (const Call& call : program.calls) {
    for (const Op& op : program.blocks[call.block].ops) {
      if (op.kind != OpKind::collective || step.cast.connection(op).name != "replicas") continue;
      const TransferSpec& spec = step.cast.transfer(op);
      bytes += wire_share(spec.kind, c.plan.degrees.data).of(spec.bytes).count();
    }
  }
  return bytes;
}

std::int64_t resident(const Case& c, MemoryKind kind) {
  const StepPlan step = c.step();
  std::int64_t bytes = 0;
  for (const MemoryEffect& effect : step.cast.roles[0].program.resident)
    bytes += effect.category == static_cast<std::uint8_t>(kind) ? effect.bytes : 0;
  return bytes;
}

// The most that the calls of stage 0 hold of a kind beside what is resident, and what they end
// with.
std::pair<std::int64_t, std::int64_t> most_held(const StepPlan& plan, MemoryKind kind) {
  std::int64_t held = 0, most = 0;
  const Program& program = plan.cast.roles[0].program;
  for (const Call& call : program.calls)
    for (const Op& op : program.blocks[call.block].ops)
      for (std::uint32_t i = 0; i < op.effects; ++i) {
        const MemoryEffect& effect = program.effects[op.first_effect + i];
        if (effect.category != static_cast<std::uint8_t>(kind)) continue;
        held += effect.bytes;
        most = std::max(most, held);
      }
  return {most, held};
}

// The most that stage 0 holds at once.
std::int64_t peak(const StepPlan& plan) {
  const Program& program = plan.cast.roles[0].program;
  std::int64_t held = 0;
  for (const MemoryEffect& effect : program.resident)
    held += effect.bytes;
  std::int64_t most = held;
  for (const Call& call : program.calls)
    for (const Op& op : program.blocks[call.block].ops)
      for (std::uint32_t i = 0; i < op.effects; ++i) {
        held += program.effects[op.first_effect + i].bytes;
        most = std::max(most, held);
      }
  return most;
}

std::int64_t base() {
  return parameter_count(small_network(), 128);
}

}  // namespace

TEST_CASE("replicas exchange the gradients and weights of adapters alone") {
  for (const int n : {2, 4}) {
    for (const char* kind : {"allreduce", "zero1", "zero2", "distributed_optimizer"}) {
      CAPTURE(kind);
      CHECK(sent(Case(kind, n)) * n == 2 * (n - 1) * 2 * kAdapters);
    }
  }
}

// Frozen weights travel to every pass that reads them, their gradients do not exist.
TEST_CASE("ZeRO-3 gathers frozen weights twice and reduces adapters") {
  for (const int n : {2, 4})
    CHECK(sent(Case("zero3", n)) * n == (n - 1) * (2 * 2 * (base() + kAdapters) + 2 * kAdapters));
}

TEST_CASE("4-bit weights are gathered as they are kept") {
  Case c("zero3", 2);
  const std::int64_t stored = sent(c);
  c.recipe.finetune.base = models::BaseWeights::nf4;
  const std::int64_t attention = 4 * 1024 * 1024, mlp = 3 * 1024 * 2816;
  std::int64_t narrow = 0;
  for (const std::int64_t matrix : {3 * 1024 * 1024, 1024 * 1024, 2 * 1024 * 2816, 1024 * 2816})
    narrow += models::nf4_bytes(matrix, true).count();
  CHECK(sent(c) * 2 == stored * 2 - 2 * kLayers * (2 * (attention + mlp) - narrow));
}

TEST_CASE("a rank holds frozen weights, and weights, gradients and states of its adapters") {
  for (const auto& [kind, shards] : {std::pair{"allreduce", 1}, {"zero1", 2}, {"zero3", 2}}) {
    CAPTURE(kind);
    const Case c(kind, 2);
    const bool divided = std::string(kind) == "zero3";
    const int of_weights = divided ? 2 : 1;
    CHECK(resident(c, MemoryKind::parameters) == 2 * (base() + kAdapters) / of_weights);
    CHECK(resident(c, MemoryKind::gradients) == 2 * kAdapters / of_weights);
    CHECK(resident(c, MemoryKind::optimizer_state) == 12 * kAdapters / shards);
  }
  // Adapters in fp32 have no copy.
  Case wide("allreduce", 2);
  wide.recipe.finetune.dtype = Dtype::fp32;
  CHECK(resident(wide, MemoryKind::parameters) == 2 * base() + 4 * kAdapters);
  CHECK(resident(wide, MemoryKind::optimizer_state) == 8 * kAdapters);
}

// Llama 3 8B on 2 x 2048 tokens, as peft prepares it: 16.6 GiB, of which 3.9 are those 4 bytes.
TEST_CASE("beside 4-bit matrices in fp32 a step holds 4 bytes of all else and of each state") {
  const std::int64_t layers = 32, h = 4096, kv = 1024, ffn = 14336, vocabulary = 128256;
  const std::int64_t m = 2 * 2048, r = 16;
  Case c("allreduce", 1);
  c.network = llama(layers, h, 32, 8, ffn, vocabulary);
  c.recipe.global_batch = 2;
  c.recipe.micro_batch = {.size = 2, .sequence_length = 2048};
  c.recipe.kernels.fusion = models::Fusion::eager;
  c.recipe.recompute.form = models::Recompute::full;
  c.recipe.finetune.rank = r;
  c.recipe.finetune.dtype = Dtype::fp32;
  c.recipe.finetune.base = models::BaseWeights::nf4;
  c.recipe.finetune.unquantised = models::Unquantised::fp32;
  std::int64_t narrow = 0;
  for (const std::int64_t matrix : {(h + 2 * kv) * h, h * h, 2 * h * ffn, h * ffn})
    narrow += layers * models::nf4_bytes(matrix, true).count();
  const std::int64_t wide = 4 * (2 * vocabulary * h + (2 * layers + 1) * h);
  const std::int64_t adapters = layers * r * (2 * h + h + kv);
  CHECK(resident(c, MemoryKind::parameters) == narrow + wide + 4 * adapters);
  // What each layer and the head read; the head in 16 bits.
  const std::int64_t kept = (layers + 1) * 4 * m * h + 2 * vocabulary * h;
  const StepPlan step = c.step();
  CHECK(most_held(step, MemoryKind::activations).first == kept);
  // Log-probabilities, their gradients and those of the logits, 4 bytes each; adapters have no
  // gradients yet.
  const std::int64_t loss = 3 * 4 * m * vocabulary;
  CHECK(peak(step) == narrow + wide + (4 + 8) * adapters + kept + loss);
  c.recipe.finetune.unquantised = models::Unquantised::stored;
  CHECK(peak(c.step()) == peak(step) - wide / 2 - (layers + 1) * 2 * m * h - 2 * vocabulary * h);
}

TEST_CASE("every strategy gives back what it takes where weights are frozen") {
  for (const StrategyEntry& entry : data_parallel_strategies()) {
    if (entry.name == "parameter_server") continue;
    CAPTURE(entry.name);
    Case c(std::string(entry.name).c_str(), 4, 2);
    if (entry.name == "hsdp") c.plan.data_parallel.shard_size = 2;
    c.plan.data_parallel.loss_in_model = true;
    for (const bool forward_only : {false, true}) {
      c.recipe.forward_only = forward_only && entry.name != "local_sgd";
      const StepPlan step = c.step();
      for (const MemoryKind kind :
           {MemoryKind::parameters, MemoryKind::gradients, MemoryKind::activations,
            MemoryKind::communication_buffers, MemoryKind::workspace})
        CHECK(most_held(step, kind).second == 0);
    }
  }
}

// Transformer Engine's fp8 weights are those of its linear layers.
TEST_CASE("of frozen weights in fp8 those of layers' products take one byte, all else two") {
  const std::int64_t products = kLayers * (4 * 1024 * 1024 + 3 * 1024 * 2816);
  Case c("allreduce", 2);
  c.recipe.precision.compute = Dtype::fp8;
  c.recipe.finetune.dtype = Dtype::bf16;
  CHECK(resident(c, MemoryKind::parameters) == 2 * (base() + kAdapters));
  c.recipe.precision.parameters = Dtype::fp8;
  CHECK(resident(c, MemoryKind::parameters) == 2 * (base() + kAdapters) - products);
  // One copy, by rows: the backward pass of each layer reads and writes its products' once, but
  // the lowest does not need the gradient of what qkv reads.
  c.recipe.precision.kept_fp8_inputs = true;
  const auto turned = [](const NetworkWork& work) {
    std::int64_t bytes = 0;
    for (const int kind : work.chain)
      for (const WorkItem& item : work.kinds[static_cast<std::size_t>(kind)].backward)
        if (const auto* kernel = std::get_if<NamedKernel>(&item))
          if (kernel->name.ends_with(" weight transpose"))
            bytes += std::get<MemoryBound>(kernel->kernel).read.count();
    return bytes;
  };
  CHECK(turned(c.work()) == products - 3 * 1024 * 1024);
  c.recipe.precision.fp8_transposes = false;
  CHECK(turned(c.work()) == 0);
  // ZeRO-3 gathers them as they are kept.
  const auto gathered = [&](bool narrow) {
    Case divided = c;
    divided.plan.data_parallel.kind = "zero3";
    if (!narrow) divided.recipe.precision.parameters.reset();
    return sent(divided);
  };
  CHECK(2 * gathered(true) == 2 * gathered(false) - 2 * products);
}

TEST_CASE("a role says how many of its parameters are frozen") {
  const Case c("allreduce", 2);
  const StepPlan step = c.step();
  CHECK(step.cast.roles[0].frozen == base());
  CHECK(step.cast.roles[0].parameters == base() + kAdapters);
}

// 4 bytes a moment; with bf16 weights a master copy of 4, without an optimizer neither.
TEST_CASE("optimizers hold 4 bytes a moment and 4 of the master copy") {
  using recipe::Optimizer;
  for (const auto& [optimizer, bytes] : {std::pair{Optimizer::sgd, 4},
                                         {Optimizer::sgd_momentum, 8},
                                         {Optimizer::lion, 8},
                                         {Optimizer::adam, 12},
                                         {Optimizer::lamb, 12},
                                         {Optimizer::none, 0}}) {
    Case c("allreduce", 2);
    c.recipe.finetune = {};
    c.recipe.optimizer = optimizer;
    CHECK(resident(c, MemoryKind::optimizer_state) == bytes * base());
    CHECK(resident(c, MemoryKind::gradients) == 2 * base());
  }
}

TEST_CASE("LAMB reads sixteen bytes a parameter more than Adam and writes four") {
  TrainingRecipe recipe;
  recipe.optimizer = recipe::Optimizer::lamb;
  recipe.gradient_clipping = true;
  const DataParallelStrategy whole;
  const MemoryBound adam = optimizer_kernel(1000, recipe, whole);
  std::int64_t read = 0, written = 0;
  for (const WorkItem& item : lamb_kernels(adam, 1000, recipe)) {
    const auto& kernel = std::get<MemoryBound>(std::get<NamedKernel>(item).kernel);
    read += kernel.read.count();
    written += kernel.written.count();
  }
  // Weights and updates for their norms and again for their sum; updates are written once more.
  CHECK(read == adam.read.count() + 16 * 1000);
  CHECK(written == adam.written.count() + 4 * 1000);
}

// What a layer keeps is freed when the next one has run; logits are the last one's.
TEST_CASE("a forward pass alone holds two layers at most and sends nothing") {
  for (const int microbatches : {1, 3}) {
    Case c("allreduce", 2, microbatches);
    c.recipe.finetune = {};
    c.recipe.forward_only = true;
    const NetworkWork work = c.work();
    std::int64_t most = 0;
    for (std::size_t place = 1; place < work.chain.size(); ++place) {
      const auto of = [&](std::size_t at) {
        return work.kinds[static_cast<std::size_t>(work.chain[at])].activations().count();
      };
      most = std::max(most, of(place - 1) + of(place));
    }
    const StepPlan step = c.step();
    CHECK(most_held(step, MemoryKind::activations) == std::pair{most, std::int64_t{0}});
    CHECK(sent(c) == 0);
    CHECK(resident(c, MemoryKind::gradients) == 0);
    CHECK(resident(c, MemoryKind::optimizer_state) == 0);
    Case both = c;
    both.recipe.forward_only = false;
    CHECK(3.0 * step.model_flops == both.step().model_flops);
  }
}
