#include "sim/engine/engine.h"

#include "tests/support/program_builder.h"
#include "tests/support/rooms.h"

using namespace trainyard;
using namespace trainyard::testing;
using namespace std::chrono_literals;

namespace {
constexpr Duration ps(std::int64_t count) {
  return Duration(count);
}
}  // namespace

TEST_CASE("ops of a stream run one after another and streams run at once") {
  MachineBuilder m;
  auto& p = m.program({"a", "b"});
  p.compute("a0", 0, 10ns)
      .compute("b0", 1, 4ns)
      .compute("a1", 0, 5ns)
      .compute("b1", 1, 3ns, waits({0}));
  m.actor(p);
  const Trace trace = completed(m);
  REQUIRE(trace.spans.size() == 4);
  CHECK(trace.spans[0].end == 10ns);
  CHECK(trace.spans[1].begin == 10ns);
  CHECK(trace.spans[1].end == 15ns);
  CHECK(trace.spans[2].end == 4ns);
  CHECK(trace.spans[3].begin == 15ns);  // waits for what was enqueued on stream a before it
  CHECK(trace.end == 18ns);
  CHECK(trace.ops == 4);
}

TEST_CASE("all sixteen streams can wait for each other") {
  MachineBuilder m;
  auto& p = m.program(std::vector<std::string>(kMaxStreams, "s"));
  p.compute("first", kMaxStreams - 1, 10ns);
  for (int stream = kMaxStreams - 1; stream > 0; --stream)
    p.compute("next", stream - 1, 1ns, waits({stream}));
  m.actor(p);
  CHECK(completed(m).end == 10ns + (kMaxStreams - 1) * 1ns);
}

TEST_CASE("a collective starts when the last member reaches it and ends everywhere at once") {
  MachineBuilder m;
  auto& fast = m.program({"s"});
  fast.compute("f", 0, 1ns).collective("ar", 0, 0, 0).compute("g", 0, 1ns);
  auto& slow = m.program({"s"});
  slow.compute("f", 0, 7ns).collective("ar", 0, 0, 0);
  const ActorId a = m.actor(fast), b = m.actor(slow);
  m.communicator({a, b}, {{.latency = 2ns, .bytes = Bytes(1000), .rate = 3'000'000'000}});
  const Trace trace = completed(m);
  const Duration end = 9ns + ps(333334);  // ceil(1000 B / 3 GB/s)
  CHECK(trace.spans[1] == Span{a, 0, 1, 0ns, 1ns, 7ns, end});
  CHECK(trace.spans[4] == Span{b, 0, 1, 0ns, 7ns, 7ns, end});
  CHECK(trace.end == end + 1ns);
}
