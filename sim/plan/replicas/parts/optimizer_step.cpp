#include <algorithm>
#include <cmath>

#include "sim/base/divide.h"
#include "sim/plan/replicas/parts/host_optimizer.h"
#include "sim/plan/replicas/parts/owners.h"
#include "sim/plan/replicas/parts/parts.h"
#include "sim/plan/replicas/replica_part.h"

namespace trainyard::plan {

using models::MemoryBound;

namespace {

class OptimizerStep : public ReplicaPart {
 public:
  explicit OptimizerStep(ReplicaContext& context) : context_(context), host_(context) {}

  void step(const StageParameters& stage, const std::vector<ChainRange>& /*copies*/) override {
    pass_over_gradients(stage);
    if (context_.recipe.optimizer == recipe::Optimizer::none) return give_back_gradients(stage);
    if (context_.recipe.gradient_clipping) clip(updated_gradients(context_, stage));
    if (host_.used())
      host_.update(stage);
    else
      update(stage);
    context_.builder.work(fp8_refresh(stage.fp8_copies, context_.recipe), "optimizer",
                          OpGroup::optimizer);
    give_back_gradients(stage);
  }

 private:
  // Every rank sums the squares of its own gradients; the sum over all is one number. Source:
  // Megatron and PyTorch's clip_grad_norm_ both scale in a second pass.
  void clip(Bytes gradients);
  // Sums one number over the ranks that have parts of the gradients; whether there are others.
  bool sum_over_ranks(StreamSet waits);
  std::int64_t own_parameters(const StageParameters& stage) const;
  std::vector<models::WorkItem> by_lamb(std::vector<models::WorkItem> work,
                                        const StageParameters& stage) const;
  // The work of an update with its one kernel as plain operators, if the recipe says so, or as
  // LAMB's kernels.
  std::vector<models::WorkItem> by_operators(std::vector<models::WorkItem> work,
                                             const StageParameters& stage) const;
  void launch(const std::vector<models::WorkItem>& work);
  void update(const StageParameters& stage);
  void pass_over_gradients(const StageParameters& stage);
  void give_back_gradients(const StageParameters& stage);

  ReplicaContext& context_;
  HostOptimizer host_;
};

bool OptimizerStep::sum_over_ranks(StreamSet waits) {
  const recipe::ParallelDegrees& degrees = context_.plan.degrees;
  // Where states or experts are divided, no rank holds all gradients of its place in the network.
  const bool over_all = context_.strategy().optimizer_shards > 1 || context_.plan.experts.ranks > 1;
  const int ranks = degrees.tensor * degrees.pipeline * (over_all ? degrees.replicas() : 1);
  if (ranks == 1) return false;
  context_.builder.collective(StreamKind::data,
                              context_.builder.connections().gradient_norm(over_all),
                              {CollectiveKind::all_reduce, size_of(models::Dtype::fp32)}, waits,
                              "all-reduce gradient norm");
  return true;
}

void OptimizerStep::clip(Bytes gradients) {
  const StreamSet compute = stream_bit(StreamKind::compute);
  if (host_.used()) {
    host_.sum_squares(gradients);
    const bool summed = sum_over_ranks(compute | stream_bit(StreamKind::host_optimizer));
    host_.scale(gradients, summed);
    return;
  }
  context_.copy("gradient norm", gradients, Bytes(0), OpGroup::optimizer);
  if (sum_over_ranks(compute)) context_.builder.compute_waits_for(stream_bit(StreamKind::data));
  context_.copy("clip gradients", gradients, gradients, OpGroup::optimizer);
}

// Each weight matrix is taken to have two vectors beside it: a bias and a part of a norm, or both
// parts of the norm behind a convolution.
constexpr std::int64_t kArraysOfMatrix = 3;

std::int64_t OptimizerStep::own_parameters(const StageParameters& stage) const {
  std::int64_t parameters = 0;
  for (const ReplicaGroup& group : context_.groups)
    parameters += shard_of(group.parameters(stage), group.strategy.optimizer_shards);
  return parameters;
}

std::vector<models::WorkItem> OptimizerStep::by_lamb(std::vector<models::WorkItem> work,
                                                     const StageParameters& stage) const {
  std::vector<models::WorkItem> result;
  for (models::WorkItem& item : work) {
    const auto* named = std::get_if<models::NamedKernel>(&item);
    const auto* kernel = named == nullptr ? nullptr : std::get_if<MemoryBound>(&named->kernel);
    if (kernel == nullptr || kernel->op != models::MemoryOp::optimizer) {
      result.push_back(std::move(item));
      continue;
    }
    for (models::WorkItem& part : lamb_kernels(*kernel, own_parameters(stage), context_.recipe))
      result.push_back(std::move(part));
  }
  return result;
}

std::vector<models::WorkItem> OptimizerStep::by_operators(std::vector<models::WorkItem> work,
                                                          const StageParameters& stage) const {
  const recipe::OptimizerOperators& operators = context_.recipe.optimizer_operators;
  if (operators.accesses == 0)
    return context_.recipe.optimizer == recipe::Optimizer::lamb ? by_lamb(std::move(work), stage)
                                                                : work;
  const std::int64_t parameters = own_parameters(stage);
  std::int64_t arrays = 0;
  for (const models::WeightMatrix& matrix : stage.matrices)
    arrays += matrix.count * kArraysOfMatrix;
  const auto numbers =
      static_cast<std::int64_t>(operators.accesses * static_cast<double>(parameters));
  const std::int64_t kernels =
      std::max<std::int64_t>(std::llround(operators.launches * static_cast<double>(arrays)), 1);
  const MemoryBound each{.op = models::MemoryOp::optimizer,
                         .read = divide_up(numbers, kernels) * size_of(models::Dtype::fp32),
                         .written = Bytes(0)};
  std::vector<models::WorkItem> result;
  for (models::WorkItem& item : work) {
    const auto* named = std::get_if<models::NamedKernel>(&item);
    const auto* kernel = named == nullptr ? nullptr : std::get_if<MemoryBound>(&named->kernel);
    if (kernel == nullptr || kernel->op != models::MemoryOp::optimizer)
      result.push_back(std::move(item));
    else
      result.insert(result.end(), static_cast<std::size_t>(kernels),
                    models::NamedKernel{"optimizer operator", each});
  }
  return result;
}

void OptimizerStep::launch(const std::vector<models::WorkItem>& work) {
  context_.builder.work(work, "optimizer", OpGroup::optimizer, PairPart::backward,
                        context_.recipe.optimizer_operators.waits);
}

void OptimizerStep::update(const StageParameters& stage) {
  const recipe::TrainingRecipe& recipe = context_.recipe;
  ProgramBuilder& builder = context_.builder;
  const DataParallelStrategy& strategy = context_.strategy();
  if (converts_for_optimizer(recipe, strategy)) {
    const Bytes workspace = optimizer_workspace(stage.dense, recipe, strategy);
    builder.hold(MemoryKind::workspace, workspace, "optimizer");
    launch(by_operators(converting_optimizer(stage.dense, recipe, strategy), stage));
    builder.release(MemoryKind::workspace, workspace, "optimizer");
    return;
  }
  MemoryBound kernel{.op = models::MemoryOp::optimizer, .read = Bytes(0), .written = Bytes(0)};
  for (const ReplicaGroup& group : context_.groups) {
    const MemoryBound own = optimizer_kernel(group.parameters(stage), recipe, group.strategy);
    kernel.read = kernel.read + own.read;
    kernel.written = kernel.written + own.written;
  }
  launch(by_operators({models::NamedKernel{"optimizer step", kernel}}, stage));
}

// All at once, though some come before the reductions: the kernels' time is the same.
void OptimizerStep::pass_over_gradients(const StageParameters& stage) {
  const int passes = context_.recipe.optimizer_operators.gradient_passes;
  if (passes == 0) return;
  Bytes held;
  for (const ReplicaGroup& group : context_.groups)
    held = held + state_bytes(group.parameters(stage), context_.recipe, group.strategy).gradients;
  context_.copy("passes over gradients", passes / 2 * held, (passes + 1) / 2 * held,
                OpGroup::optimizer);
}

void OptimizerStep::give_back_gradients(const StageParameters& stage) {
  if (context_.gradients_come_and_go())
    for (const ReplicaGroup& group : context_.groups)
      context_.builder.release(
          MemoryKind::gradients,
          state_bytes(group.parameters(stage), context_.recipe, group.strategy).gradients,
          kGradients);
  context_.builder.release(MemoryKind::gradients, context_.held_gradients, kGradients);
}

}  // namespace

PartMaker optimizer_step() {
  return [](ReplicaContext& context) { return std::make_unique<OptimizerStep>(context); };
}

}  // namespace trainyard::plan
