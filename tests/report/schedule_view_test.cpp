// A schedule by itself: what its text, picture and JSON say.
#include "cli/report/schedule_view.h"

#include <doctest/doctest.h>

#include <nlohmann/json.hpp>

#include "sim/schedule/custom_schedule.h"
#include "tests/support/about.h"
#include "tests/support/rooms.h"

using namespace trainyard;

namespace {

ScheduleView view(std::string_view name, int p, int m, Bytes limit = kNoMemoryLimit) {
  const ScheduleEntry& entry = *find_schedule(name);
  return view_schedule(entry, shape_of(entry, p, m), kDrawingTimes, limit);
}

}  // namespace

TEST_CASE("the bubble of a flush is (p - 1) / (m + p - 1), that of ZB-H2 and ZB-V nothing") {
  CHECK(bubble_fraction(view("1f1b", 4, 8)) == about(3.0 / 11));
  CHECK(bubble_fraction(view("zb_h1", 4, 8)) == about(3.0 / 27));
  CHECK(bubble_fraction(view("zb_h2", 4, 8)) == 0);
  CHECK(bubble_fraction(view("zb_v", 4, 8)) == 0);
  CHECK(bubble_fraction(view("dualpipe", 4, 8)) == about(2.0 / 26));
}

TEST_CASE("the words of a schedule are those of a custom one") {
  for (const ScheduleEntry& entry : schedules()) {
    const ScheduleView shown = view(entry.name, 4, 8);
    const nlohmann::json json = nlohmann::json::parse(to_json(shown));
    CustomSchedule custom;
    for (const auto& order : json["orders"])
      custom.slots.push_back(order["slots"]);
    CHECK(custom_orders(custom, shown.shape) == shown.orders);
  }
}

TEST_CASE("a schedule that is made for a memory keeps to it") {
  const ScheduleView shown = view("zb_auto", 4, 8, Bytes(2));
  for (const Bytes each : shown.in_flight)
    CHECK(each <= Bytes(2));
}

TEST_CASE("what is too wide for text is left to a picture") {
  const ScheduleView wide = view("sequential", 16, 200);
  CHECK(to_text(wide).find("--svg") != std::string::npos);
  CHECK(to_svg(wide).find("</svg>") != std::string::npos);
}
