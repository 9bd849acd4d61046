#include "sim/plan/stage/scale_agreement.h"

#include "sim/plan/stage/stage_patterns.h"
#include "sim/plan/step_memory.h"
#include "sim/schedule/chunk_placement.h"

namespace trainyard::plan {

using recipe::AmaxReduction;

namespace {

AmaxReduction with_others(AmaxReduction how, const recipe::ParallelDegrees& degrees) {
  const int replicas = how == AmaxReduction::stage ? degrees.replicas() : degrees.context;
  return degrees.tensor * replicas > 1 ? how : AmaxReduction::none;
}

}  // namespace

ScaleAgreement::ScaleAgreement(ProgramBuilder& builder, const StepPlan& step,
                               const RunningWork& running, const recipe::TrainingRecipe& recipe,
                               const recipe::ParallelPlan& plan, int stage)
    : builder_(builder),
      step_(step),
      running_(running),
      how_(with_others(recipe.precision.fp8_amax_reduction, plan.degrees)),
      stage_(stage) {}

bool ScaleAgreement::casts(ChainRange layers, bool backward) const {
  for (int place = layers.first; place < layers.last; ++place) {
    const models::LayerWork& work = running_.layer(place);
    if (!fp8_products(backward ? work.backward : work.forward).empty()) return true;
  }
  return false;
}

// Of all products of the stage, whichever have run: three of each forward (input, weight, output),
// two backward (gradients of output and input), in fp32. Source: Transformer Engine,
// pytorch/module/base.py, set_meta_tensor; pytorch/fp8.py, reduce_and_update_fp8_tensors.
Bytes ScaleAgreement::numbers(bool backward) const {
  constexpr std::int64_t kForward = 3, kBackward = 2;
  std::int64_t products = 0;
  for (const schedule::Seat& seat : seats_of(step_.shape, stage_)) {
    const ChainRange layers =
        step_.layers[static_cast<std::size_t>(schedule::virtual_stage(step_.shape, seat))];
    for (int place = layers.first; place < layers.last; ++place)
      for (const models::Gemm* product : fp8_products(running_.layer(place).forward))
        products += product->grouped ? product->batch : 1;
  }
  return products * (backward ? kBackward : kForward) * size_of(models::Dtype::fp32);
}

// Source: Transformer Engine, pytorch/fp8.py, fp8_autocast_exit; in a backward pass
// reduce_and_update_bwd_fp8_tensors of the first module, which runs last.
void ScaleAgreement::after(ChainRange layers, PairPart pass) {
  const bool backward = pass == PairPart::backward;
  if (how_ == AmaxReduction::none || !casts(layers, backward)) return;
  builder_.collective(StreamKind::agreement, builder_.connections().scales(how_),
                      {.bytes = numbers(backward)}, kLayerTails, "all-reduce fp8 scales", pass);
  builder_.compute_waits_for(stream_bit(StreamKind::agreement));
  builder_.settle_waits("fp8 scales");
}

}  // namespace trainyard::plan
