#include "cli/report/perfetto.h"

#include <doctest/doctest.h>

#include "cli/report/compress.h"
#include "cli/report/protobuf.h"
#include "fixture.h"
#include "tests/support/rooms.h"

using namespace trainyard;

TEST_CASE("numbers are encoded as in the Protocol Buffers documentation") {
  ProtoWriter out;
  out.number(1, 150);
  CHECK(out.data() == std::string("\x08\x96\x01"));
  out.clear();
  out.bytes(2, "testing");
  CHECK(out.data() == std::string("\x12\x07testing"));
  out.clear();
  out.number(1, -2);
  CHECK(out.data() == std::string("\x08\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01"));
  out.clear();
  out.fixed64(47, 1);
  CHECK(out.data() == std::string("\xf9\x02\x01\0\0\0\0\0\0\0", 10));
}

TEST_CASE("slices of a lane are disjoint, in picoseconds and in whole nanoseconds") {
  for (const ReportVariant& variant : fixture::four_variants()) {
    for (const Lane& lane : variant.timeline.lanes) {
      for (std::size_t i = 0; i + 1 < lane.slices.size(); ++i) {
        CHECK(lane.slices[i].end <= lane.slices[i + 1].begin);
        CHECK(lane.slices[i].end.count() / 1000 <= lane.slices[i + 1].begin.count() / 1000);
      }
    }
  }
}

TEST_CASE("the same timeline gives the same trace, zipped or not") {
  const Timeline timeline = fixture::four_variants()[1].timeline;
  const std::string trace = perfetto_trace(timeline, "1F1B");
  CHECK(trace == perfetto_trace(timeline, "1F1B"));
  CHECK(gzip(trace) == gzip(trace));
  CHECK(gzip(trace).size() < trace.size() / 3);
}

TEST_CASE("several variants share a trace and no process, track, sequence or flow") {
  const std::vector<ReportVariant> variants = fixture::four_variants();
  const std::vector<NamedTimeline> named = {{"a", &variants[0].timeline},
                                            {"b", &variants[1].timeline}};
  const std::string both = perfetto_trace(named, "two");
  // The first is what it would be alone but for its name; the second adds as many packets as alone,
  // less the root of all processes.
  CHECK(both.find("a: rank 0") != std::string::npos);
  CHECK(both.find("b: rank 0") != std::string::npos);
  CHECK(both.size() > perfetto_trace(variants[0].timeline, "two").size() +
                          perfetto_trace(variants[1].timeline, "two").size() - 100);
  CHECK(both == perfetto_trace(named, "two"));
}

TEST_CASE("an empty timeline is still a trace") {
  CHECK(!perfetto_trace(Timeline{}, "nothing").empty());
}
