// The order of a plan's pipeline: a schedule's, or the one that the user gives in full.
#pragma once

#include <memory>

#include "sim/recipe/recipe.h"
#include "sim/schedule/schedule.h"

namespace trainyard::recipe {

// The order of every stage. Asked for again by the same thread it is not made again, unless it is
// made from times. Requires: a shape that the plan's schedule supports.
std::shared_ptr<const schedule::StageOrders> stage_orders(
    const ParallelPlan& plan, const schedule::PipelineShape& shape,
    const schedule::ScheduleInputs& inputs = {});

}  // namespace trainyard::recipe
