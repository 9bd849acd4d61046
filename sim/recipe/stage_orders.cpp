#include "sim/recipe/stage_orders.h"

#include "sim/schedule/custom_schedule.h"

namespace trainyard::recipe {

schedule::StageOrders stage_orders(const ParallelPlan& plan, const schedule::PipelineShape& shape,
                                   const schedule::ScheduleInputs& inputs) {
  const schedule::ScheduleEntry* entry = schedule::find_schedule(plan.pipeline.schedule);
  return entry != nullptr ? build_stages(*entry, shape, inputs)
                          : custom_orders(plan.pipeline.custom, shape);
}

}  // namespace trainyard::recipe
