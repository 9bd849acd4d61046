#include <nlohmann/json.hpp>

#include "cli/report/schedule_view.h"
#include "sim/schedule/chunk_placement.h"
#include "sim/schedule/custom_schedule.h"

namespace trainyard::report {
namespace {

using Json = nlohmann::ordered_json;

}  // namespace

std::string to_json(const ScheduleView& view) {
  Json stages = Json::array();
  for (std::size_t s = 0; s < view.orders.size(); ++s) {
    Json begins = Json::array();
    for (const Duration begin : view.run.begins[s])
      begins.push_back(begin.count());
    stages.push_back({{"slots", slots_text(view.orders[s], view.shape)},
                      {"begins", std::move(begins)},
                      {"in_flight", view.in_flight[s].count()}});
  }
  Json at = Json::array();
  for (const int tick : view.at)
    at.push_back({{"tick", tick}, {"passes", passes_at(view, tick)}});
  const Json json = {{"schedule", view.entry->name},
                     {"summary", view.entry->summary},
                     {"source", view.entry->source},
                     {"placement", name(view.shape.placement)},
                     {"stages", view.shape.stages},
                     {"microbatches", view.shape.microbatches},
                     {"chunks", view.shape.chunks},
                     {"forward", view.times.forward.count()},
                     {"backward_input", view.times.backward_input.count()},
                     {"backward_weight", view.times.backward_weight.count()},
                     {"communication", view.times.communication.count()},
                     {"ticks", view.run.makespan().count()},
                     {"longest_stage", view.run.longest_span().count()},
                     {"bubble_fraction", bubble_fraction(view)},
                     {"at", std::move(at)},
                     {"orders", std::move(stages)}};
  return json.dump(1);
}

}  // namespace trainyard::report
