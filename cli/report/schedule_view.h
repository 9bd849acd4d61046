// A pipeline schedule by itself, without a job: as text, as a picture, as JSON.
#pragma once

#include <string>
#include <vector>

#include "sim/schedule/order_timing.h"
#include "sim/schedule/schedule.h"

namespace trainyard::report {

// One schedule of one shape, with every part of every stage taking the same ticks (picoseconds).
struct ScheduleView {
  const schedule::ScheduleEntry* entry = nullptr;
  schedule::PipelineShape shape;
  schedule::PassTimes times;
  schedule::StageOrders orders;
  schedule::OrderRun run;
  std::vector<Bytes> in_flight;  // at most, by stage; an activation of a part is a byte
  std::vector<int> at;           // ticks, from 1 on, whose passes are named
};

// Requires: the entry supports the shape. `most_in_flight` limits schedules that are made for times
// and memory.
ScheduleView view_schedule(const schedule::ScheduleEntry& entry,
                           const schedule::PipelineShape& shape, const schedule::PassTimes& times,
                           Bytes most_in_flight = schedule::kNoMemoryLimit);

// The share of the longest stage's time, from its first pass to its last, that stages wait. That of
// schedules with a flush is the share of the step.
double bubble_fraction(const ScheduleView& view);

// By stage: what it does in a tick, "F3", "F3+B1" for two passes that share their time; "" for
// nothing.
std::vector<std::string> passes_at(const ScheduleView& view, int tick);

std::string list_text(std::span<const schedule::ScheduleEntry> entries);
std::string to_text(const ScheduleView& view);
std::string to_svg(const ScheduleView& view);
std::string to_json(const ScheduleView& view);

}  // namespace trainyard::report
