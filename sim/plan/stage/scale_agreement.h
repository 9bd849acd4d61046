// Ranks that agree on the scales of fp8 operands (recipe::AmaxReduction). Private to the room.
#pragma once

#include "sim/plan/program_builder.h"
#include "sim/plan/split/running_work.h"
#include "sim/plan/step_plan.h"

namespace trainyard::plan {

class ScaleAgreement {
 public:
  // References must outlive it.
  ScaleAgreement(ProgramBuilder& builder, const StepPlan& step, const RunningWork& running,
                 const recipe::TrainingRecipe& recipe, const recipe::ParallelPlan& plan, int stage);

  // Behind a pass through `layers`: the largest numbers of the stage's operands are reduced, and
  // the compute stream waits.
  void after(ChainRange layers, PairPart pass);

 private:
  bool casts(ChainRange layers, bool backward) const;
  Bytes numbers(bool backward) const;

  ProgramBuilder& builder_;
  const StepPlan& step_;
  const RunningWork& running_;
  recipe::AmaxReduction how_;  // none, too, where a rank has nobody to agree with
  int stage_;
};

}  // namespace trainyard::plan
