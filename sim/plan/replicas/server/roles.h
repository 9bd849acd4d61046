// The players of a parameter server as roles beside the stages.
#pragma once

#include "models/families/network.h"
#include "sim/plan/stage_connections.h"
#include "sim/plan/step_plan.h"
#include "sim/recipe/recipe.h"

namespace trainyard::plan {

// Each shard sums what all ranks push and updates what it keeps when all have been heard.
void add_synchronous_servers(StepPlan& step, const models::NetworkWork& work,
                             StageConnections& connections, const recipe::TrainingRecipe& recipe,
                             const recipe::ParallelPlan& plan);

// Each shard updates with every gradient as it comes and sends the parameters back to its rank.
// Requires: one stage.
void add_servers_at_own_pace(StepPlan& step, const models::NetworkWork& work,
                             StageConnections& connections, const recipe::TrainingRecipe& recipe,
                             const recipe::ParallelPlan& plan);

}  // namespace trainyard::plan
