// A tied output matrix beside its embedding is one matrix: held, reduced, gathered and updated
// once.
#include <doctest/doctest.h>

#include <map>

#include "models/transformer/networks.h"
#include "sim/plan/step_plan.h"
#include "tests/support/rooms.h"

using namespace trainyard;

namespace {

struct Sums {
  std::int64_t reduced = 0, gathered = 0;
};

struct Case {
  Transformer network;
  TrainingRecipe recipe;
  ParallelPlan plan;

  Case(const char* kind, bool tied) {
    network.layers = 4;
    network.hidden = 64;
    network.heads = network.kv_heads = 4;
    network.head_size = 16;
    network.ffn_hidden = 256;
    network.vocabulary = 1000;
    network.tied_embeddings = tied;
    recipe.global_batch = 4;
    recipe.micro_batch.sequence_length = 32;
    plan.degrees.data = 4;
    plan.data_parallel.kind = kind;
  }
  StepPlan step() const {
    return plan_step(network_work(network, execution(recipe, plan)), recipe, plan);
  }
  // Elements of collectives over the replicas, all stages.
  Sums sums() const {
    const StepPlan step = this->step();
    Sums all;
    for (const Role& stage : step.cast.roles) {
      for (const Call& call : stage.program.calls) {
        for (const Op& op : stage.program.blocks[call.block].ops) {
          if (op.kind != OpKind::collective || step.cast.connection(op).name != "replicas")
            continue;
          const TransferSpec& spec = step.cast.transfer(op);
          (spec.kind == CollectiveKind::all_gather ? all.gathered : all.reduced) +=
              spec.bytes.count() / 2;
        }
      }
    }
    return all;
  }
  std::int64_t parameters() const {
    return parameter_count(network, recipe.micro_batch.sequence_length);
  }
};

}  // namespace

TEST_CASE("on one stage every strategy reduces each parameter once, tied or not") {
  for (const bool tied : {false, true}) {
    for (const char* kind :
         {"allreduce", "zero1", "zero2", "zero3", "fsdp", "distributed_optimizer"}) {
      CAPTURE(tied);
      CAPTURE(kind);
      const Case c(kind, tied);
      CHECK(c.sums().reduced == c.parameters());
    }
  }
}

TEST_CASE(
    "updated shards are gathered once; ZeRO-3 gathers the matrix for each place that reads it") {
  for (const char* kind : {"zero1", "zero2", "distributed_optimizer"}) {
    CAPTURE(kind);
    const Case c(kind, true);
    CHECK(c.sums().gathered == c.parameters());
  }
  const Case c("zero3", true);
  CHECK(c.sums().gathered == 2 * (c.parameters() + c.network.vocabulary * c.network.hidden));
}

TEST_CASE("apart from the embedding a tied matrix is a copy of its own") {
  Case c("allreduce", true);
  c.plan.degrees = {.data = 2, .pipeline = 2};
  c.recipe.global_batch = 8;
  CHECK(c.sums().reduced == c.parameters() + c.network.vocabulary * c.network.hidden);
  // Where the pipeline is folded in a V, both are on the first stage.
  c.plan.pipeline.schedule = "zb_v";
  c.plan.pipeline.chunks = 2;
  CHECK(c.sums().reduced == c.parameters());
}

TEST_CASE("whatever a pass takes is given back, by category and owner, in the step") {
  for (const char* kind :
       {"allreduce", "zero1", "zero2", "zero3", "fsdp", "distributed_optimizer"}) {
    CAPTURE(kind);
    const StepPlan step = Case(kind, true).step();
    const Program& program = step.cast.roles[0].program;
    std::map<std::pair<std::uint8_t, std::uint32_t>, std::int64_t> held;
    for (const Call& call : program.calls)
      for (const Op& op : program.blocks[call.block].ops)
        for (std::uint32_t e = op.first_effect; e < op.first_effect + op.effects; ++e)
          held[{program.effects[e].category, program.effects[e].owner}] += program.effects[e].bytes;
    for (const auto& [key, bytes] : held)
      CHECK(bytes == 0);
  }
}

// PyTorch DDP with gradient_as_bucket_view=False: gradients and buckets, and copies both ways.
TEST_CASE("buckets that are no view hold the gradients a second time") {
  Case c("allreduce", false);
  const auto buffers = [&] {
    std::int64_t bytes = 0;
    const StepPlan step = c.step();
    for (const MemoryEffect& effect : step.cast.roles[0].program.resident)
      if (effect.category == static_cast<std::uint8_t>(MemoryKind::communication_buffers))
        bytes += effect.bytes;
    return bytes;
  };
  const auto copied = [&] {
    std::int64_t bytes = 0;
    const StepPlan step = c.step();
    const Program& program = step.cast.roles[0].program;
    for (const Call& call : program.calls) {
      for (const Op& op : program.blocks[call.block].ops) {
        if (program.labels[op.label].find("copy ") == std::string::npos) continue;
        const Segment& segment = program.segments[op.subject];
        for (std::uint32_t k = 0; k < segment.kernels; ++k)
          bytes +=
              memory_traffic(step.cast.kernels[program.kernels[segment.first_kernel + k]]).count();
      }
    }
    return bytes;
  };
  CHECK(buffers() == 0);
  CHECK(copied() == 0);
  c.plan.data_parallel.gradient_as_bucket_view = false;
  CHECK(buffers() == 2 * c.parameters());
  CHECK(copied() == 2 * 2 * 2 * c.parameters());
  // Of 16-bit gradients, though they are summed in fp32.
  c.recipe.precision.gradients = Dtype::fp32;
  c.recipe.accumulation = Accumulation::after_pass;
  CHECK(buffers() == 2 * c.parameters());
  CHECK(copied() == 2 * 2 * 2 * c.parameters());
}
