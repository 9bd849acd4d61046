// In which pieces updated parameters are gathered after the step.
#include <doctest/doctest.h>

#include <cstdint>
#include <vector>

#include "sim/plan/step_plan.h"
#include "tests/support/cast.h"
#include "tests/support/networks.h"
#include "tests/support/rooms.h"

using namespace trainyard;

namespace {

struct Gathers {
  recipe::TrainingRecipe recipe;
  recipe::ParallelPlan plan;

  explicit Gathers(const char* kind) {
    recipe.global_batch = 4;
    recipe.micro_batch.sequence_length = 128;
    plan.degrees.data = 4;
    plan.data_parallel.kind = kind;
    plan.data_parallel.overlap_param_gather = false;
    plan.data_parallel.bucket_size = Bytes(1 << 20);
  }
  // Bytes of each, in order.
  std::vector<std::int64_t> pieces() const {
    const StepPlan step = plan_step(network_work(network(), execution(recipe, plan)), recipe, plan);
    const engine::Program& program = step.cast.roles[0].program;
    std::vector<std::int64_t> pieces;
    for (const engine::Call& call : program.calls)
      for (const engine::Op& op : program.blocks[call.block].ops)
        if (op.kind == engine::OpKind::collective &&
            step.cast.transfer(op).kind == CollectiveKind::all_gather)
          pieces.push_back(step.cast.transfer(op).bytes.count());
    return pieces;
  }
  static models::Transformer network() { return gpt(4, 512, 8, 8192); }
  // Of all parameters, in 16 bits.
  static std::int64_t psi() { return 2 * parameter_count(network(), 128); }
};

using Pieces = std::vector<std::int64_t>;

}  // namespace

TEST_CASE("updated parameters are gathered in pieces of their own size") {
  const std::int64_t psi = Gathers::psi();
  for (const char* kind : {"zero1", "zero2", "distributed_optimizer"}) {
    CAPTURE(kind);
    Gathers gathers(kind);
    gathers.plan.data_parallel.allgather_bucket_size = Bytes(psi);
    CHECK(gathers.pieces() == Pieces{psi});
    gathers.plan.data_parallel.allgather_bucket_size = Bytes(psi - 8);
    CHECK(gathers.pieces() == Pieces{psi - 8, 8});
  }
}

TEST_CASE("without a size of their own they are those of gradients") {
  Pieces pieces(static_cast<std::size_t>(Gathers::psi() >> 20), 1 << 20);
  if (const std::int64_t rest = Gathers::psi() % (1 << 20); rest > 0) pieces.push_back(rest);
  CHECK(Gathers("zero1").pieces() == pieces);
}
