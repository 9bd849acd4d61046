// What stages send to each other, in bytes.
#include <doctest/doctest.h>

#include "sim/plan/step_plan.h"
#include "tests/support/networks.h"
#include "tests/support/rooms.h"

using namespace trainyard;

namespace {

constexpr std::int64_t kTokens = 128, kHidden = 1024, kElement = 2;
constexpr Bytes kBoundary(kTokens* kHidden* kElement);

StepPlan two_stages(int tensor, bool sequence, bool scatter_gather) {
  Transformer network = gpt(4, static_cast<int>(kHidden), 16, 32000);
  network.positional = Positional::rope;
  network.tied_embeddings = false;
  TrainingRecipe recipe;
  recipe.global_batch = 4;
  recipe.micro_batch.sequence_length = kTokens;
  ParallelPlan plan;
  plan.degrees.tensor = tensor;
  plan.degrees.pipeline = 2;
  plan.tensor_parallel.sequence = sequence;
  plan.pipeline.scatter_gather = scatter_gather;
  return plan_step(network_work(network, execution(recipe, plan)), recipe, plan);
}

// Of the one size that travels on a connection.
Bytes message(const StepPlan& plan, std::string_view lane) {
  const Connection* connection = plan.cast.find(lane);
  REQUIRE(connection != nullptr);
  REQUIRE(connection->transfers.size() == 1);
  return connection->transfers[0].bytes;
}

// How many ops of the stage's programs are labelled so.
std::int64_t labelled(const StepPlan& plan, std::size_t stage, std::string_view label) {
  const Program& program = plan.cast.roles[stage].program;
  std::int64_t count = 0;
  for (const Call& call : program.calls)
    for (const Op& op : program.blocks[call.block].ops)
      count += program.labels[op.label] == label ? 1 : 0;
  return count;
}

}  // namespace

// Source: Megatron-LM, megatron/core/pipeline_parallel/schedules.py (get_tensor_shapes).
TEST_CASE(
    "each tensor-parallel rank sends the whole boundary, its part with sequence parallelism") {
  for (const int t : {1, 2, 4, 8}) {
    CAPTURE(t);
    for (const char* lane : {"activations down", "gradients up"}) {
      CHECK(message(two_stages(t, false, false), lane) == kBoundary);
      if (t > 1) CHECK(t * message(two_stages(t, true, false), lane) == kBoundary);
    }
  }
}

TEST_CASE("split messages are 1/t, and each is gathered by the tensor-parallel ranks on arrival") {
  for (const int t : {2, 4, 8}) {
    CAPTURE(t);
    const StepPlan plan = two_stages(t, false, true);
    CHECK(t * message(plan, "activations down") == kBoundary);
    CHECK(t * message(plan, "gradients up") == kBoundary);
    CHECK(labelled(plan, 1, "gather received activations") == 4);
    CHECK(labelled(plan, 0, "gather received gradients") == 4);
    const Connection* group = plan.cast.find("tensor parallel");
    REQUIRE(group != nullptr);
    const TransferSpec gather{CollectiveKind::all_gather, kBoundary};
    CHECK(std::count(group->transfers.begin(), group->transfers.end(), gather) == 1);
  }
}

TEST_CASE("nothing is gathered on arrival where ranks need no more than their part") {
  for (const StepPlan& plan : {two_stages(1, false, true), two_stages(4, true, true)}) {
    CHECK(labelled(plan, 1, "gather received activations") == 0);
    CHECK(labelled(plan, 0, "gather received gradients") == 0);
  }
}
