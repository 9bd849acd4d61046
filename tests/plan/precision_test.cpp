// Bytes of a parameter in each state, by the types of a recipe.
#include <doctest/doctest.h>

#include "sim/plan/step_memory.h"
#include "sim/plan/step_plan.h"
#include "tests/support/networks.h"
#include "tests/support/rooms.h"

using namespace trainyard;

namespace {

struct Types {
  Dtype compute = Dtype::bf16, gradients = Dtype::bf16, moments = Dtype::fp32;
  MasterWeights master = MasterWeights::fp32;
  std::optional<Dtype> weights = {};
  Optimizer optimizer = Optimizer::adam;
};

TrainingRecipe mixed_recipe(const Types& wanted) {
  TrainingRecipe result;
  result.precision.compute = wanted.compute;
  result.precision.gradients = wanted.gradients;
  result.precision.optimizer_states = wanted.moments;
  result.precision.master_weights = wanted.master;
  result.precision.parameters = wanted.weights;
  result.optimizer = wanted.optimizer;
  return result;
}

struct Each {
  std::int64_t parameters, gradients, optimizer;
  friend bool operator==(const Each&, const Each&) = default;
};

// Of 1000 parameters, so that a rounded byte shows.
Each bytes(const Types& types, bool layer_units = false) {
  DataParallelStrategy strategy;
  strategy.layer_units = layer_units;
  const StateBytes states = state_bytes(1000, mixed_recipe(types), strategy);
  return {states.parameters.count(), states.gradients.count(), states.optimizer_state.count()};
}

constexpr Dtype kSingle = Dtype::fp32, kHalf = Dtype::bf16, kQuarter = Dtype::fp8;

}  // namespace

TEST_CASE("bytes per parameter by the type of each state") {
  CHECK(bytes({}) == Each{2000, 2000, 12000});
  CHECK(bytes({.gradients = kSingle}) == Each{2000, 4000, 12000});
  CHECK(bytes({.gradients = kSingle, .moments = kHalf}) == Each{2000, 4000, 8000});
  CHECK(bytes({.moments = Dtype::fp16}) == Each{2000, 2000, 8000});
  CHECK(bytes({.moments = kQuarter}) == Each{2000, 2000, 6000});
  CHECK(bytes({.moments = kHalf, .master = MasterWeights::none}) == Each{2000, 2000, 4000});
  CHECK(bytes({.master = MasterWeights::none}) == Each{2000, 2000, 8000});
  CHECK(bytes({.master = MasterWeights::remainder}) == Each{2000, 2000, 10000});
  CHECK(bytes({.compute = kSingle, .gradients = kSingle}) == Each{4000, 4000, 8000});
  CHECK(bytes({.optimizer = Optimizer::sgd}) == Each{2000, 2000, 4000});
  CHECK(bytes({.moments = kHalf, .optimizer = Optimizer::sgd_momentum}) == Each{2000, 2000, 6000});
}

TEST_CASE("autocast's weights, gradients and moments are fp32, and so is what is added") {
  CHECK(bytes({.gradients = kSingle, .weights = kSingle}) == Each{4000, 4000, 8000});
  TrainingRecipe recipe = mixed_recipe({.gradients = kSingle, .weights = kSingle});
  CHECK_FALSE(recipe.precision.keeps_master());
  recipe.accumulation = Accumulation::autograd;
  const auto moved = [&](int microbatches) {
    std::int64_t sum = 0;
    for (const WorkItem& item : accumulation_work(1000, recipe, microbatches))
      sum += memory_traffic(std::get<NamedKernel>(item).kernel).count();
    return sum;
  };
  CHECK(moved(1) == 0);
  CHECK(moved(2) == 500 * (4 + 4 + 4));
  recipe.accumulation = Accumulation::after_pass;
  CHECK(unsummed_gradients(1000, recipe) == Bytes(0));
}

// DDP's bucket of as many bytes is the strategy's: tests/plan/tied_matrix_test.cpp.
TEST_CASE("sums that are added to after each pass keep its gradients beside them") {
  TrainingRecipe recipe = mixed_recipe({.gradients = kSingle});
  recipe.accumulation = Accumulation::after_pass;
  CHECK(bytes({.gradients = kSingle}) == Each{2000, 4000, 12000});
  CHECK(unsummed_gradients(1000, recipe) == Bytes(2000));
}

// DeepSeek-AI, DeepSeek-V3, 2024, section 3.3.3: bf16 moments, fp32 master weights and gradients.
TEST_CASE("fp8 compute keeps bf16 weights unless they are in fp8 too") {
  CHECK(bytes({.compute = kQuarter, .gradients = kSingle, .moments = kHalf}) ==
        Each{2000, 4000, 8000});
  CHECK(bytes({.compute = kQuarter, .weights = kQuarter}) == Each{1000, 2000, 12000});
  CHECK(bytes({.compute = kQuarter, .master = MasterWeights::bf16, .weights = kQuarter}) ==
        Each{1000, 2000, 10000});
}

TEST_CASE("FSDP's sharded parameters are the master copy, and its moments have their own type") {
  CHECK(bytes({}, true) == Each{4000, 4000, 8000});
  CHECK(bytes({.moments = kHalf}, true) == Each{4000, 4000, 4000});
  CHECK(bytes({.master = MasterWeights::none}, true) == Each{2000, 2000, 8000});
}

TEST_CASE("what is kept less wide is read and written less by the optimizer") {
  const DataParallelStrategy whole;
  const MemoryBound wide = optimizer_kernel(1000, mixed_recipe({}), whole);
  const MemoryBound narrow = optimizer_kernel(1000, mixed_recipe({.moments = kHalf}), whole);
  CHECK(wide.read - narrow.read == Bytes(4000));
  CHECK(wide.written - narrow.written == Bytes(4000));
  // Both halves of a weight are read and written, as the whole of it is and its bf16 copy.
  const MemoryBound halves =
      optimizer_kernel(1000, mixed_recipe({.master = MasterWeights::remainder}), whole);
  CHECK(halves.read == wide.read);
  CHECK(wide.written - halves.written == Bytes(2000));
}

// One by rows and one by columns of each weight that fp8 units multiply by: of a GPT layer 12 h^2,
// of the logits' matrix and the router none.
TEST_CASE("cached fp8 weights are two bytes for each weight of a layer's matrices") {
  Transformer network = gpt(3, 64, 4, 1000);
  TrainingRecipe types = mixed_recipe({.compute = kQuarter});
  types.micro_batch.sequence_length = 32;
  ParallelPlan plan;
  const auto cached = [&] {
    const StepPlan step = plan_step(network_work(network, execution(types, plan)), types, plan);
    std::int64_t sum = 0;
    for (const MemoryEffect& effect : step.cast.roles[0].program.resident)
      if (step.cast.roles[0].program.labels[effect.owner] == "fp8 copies of the weights")
        sum += effect.bytes;
    return sum;
  };
  CHECK(cached() == 0);
  types.precision.cached_fp8_weights = true;
  CHECK(cached() == 2 * 3 * 12 * 64 * 64);
  network.moe = {.experts = 8, .top_k = 2, .ffn_hidden = 32};
  CHECK(cached() == 2 * 3 * (4 * 64 * 64 + 8 * 2 * 64 * 32));
}

// Pieces of a product share its weights.
TEST_CASE("cached fp8 weights are cast once a step, however many pieces read them") {
  TrainingRecipe types = mixed_recipe({.compute = kQuarter});
  types.precision.cached_fp8_weights = true;
  types.precision.fp8_recipe = Fp8Recipe::current;
  types.micro_batch.sequence_length = 32;
  ParallelPlan plan;
  plan.degrees.tensor = 4;
  plan.tensor_parallel.sequence = true;
  const auto copies = [&] {
    return fp8_copies(network_work(gpt(1, 64, 4, 1000), execution(types, plan)).kinds[1].forward,
                      types);
  };
  constexpr std::int64_t kWeights = 12 * 64 * 64 / 4;
  CHECK(copies() == Bytes(2 * kWeights));
  plan.tensor_parallel.overlap = TensorOverlap::chunked;
  CHECK(copies() == Bytes(2 * kWeights));

  const auto moved = [&](MemoryOp op) {
    std::int64_t sum = 0;
    for (const WorkItem& item : fp8_refresh(copies(), types)) {
      const auto& kernel = std::get<MemoryBound>(std::get<NamedKernel>(item).kernel);
      if (kernel.op == op) sum += memory_traffic(kernel).count();
    }
    return sum;
  };
  CHECK(moved(MemoryOp::amax) == 2 * kWeights);
  CHECK(moved(MemoryOp::cast) == 4 * kWeights);
  types.precision.fp8_transposes = false;
  CHECK(copies() == Bytes(kWeights));
  CHECK(moved(MemoryOp::cast) == 3 * kWeights);
  CHECK(fp8_refresh(Bytes(0), types).empty());
}

TEST_CASE("fp8 training multiplies logits, router and attention in 16 bits") {
  Transformer network;
  network.hidden = 64;
  network.heads = network.kv_heads = 4;
  network.head_size = 16;
  network.ffn_hidden = 256;
  network.vocabulary = 1000;
  network.moe = {.experts = 8, .top_k = 2, .ffn_hidden = 32};
  TrainingRecipe types = mixed_recipe({.compute = kQuarter});
  types.micro_batch.sequence_length = 32;
  for (const Fusion fusion : {Fusion::by_hand, Fusion::eager}) {
    Execution how = execution(types, {});
    how.kernels.fusion = fusion;
    if (fusion != Fusion::by_hand) network.moe = {};  // not described with PyTorch's kernels
    for (const LayerWork& kind : network_work(network, how).kinds) {
      for (const auto* items : {&kind.forward, &kind.backward}) {
        for (const WorkItem& item : *items) {
          const auto* named = std::get_if<NamedKernel>(&item);
          const Gemm* gemm = named == nullptr ? nullptr : std::get_if<Gemm>(&named->kernel);
          if (gemm == nullptr) continue;
          const bool narrow = named->name.find("logits") == std::string::npos &&
                              named->name.find("router") == std::string::npos &&
                              named->name.find("attention") == std::string::npos;
          CAPTURE(named->name);
          CHECK((gemm->dtype == kQuarter) == narrow);
        }
      }
    }
  }
}
