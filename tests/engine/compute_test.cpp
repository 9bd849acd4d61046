// Kernels: held up by the host, slowed down by communication, exact in both.
#include <doctest/doctest.h>

#include "tests/engine/random_machine.h"
#include "tests/support/program_builder.h"
#include "tests/support/rooms.h"

using namespace trainyard;
using namespace trainyard::testing;
using namespace std::chrono_literals;

namespace {

RunOptions detailed() {
  RunOptions options;
  options.record = Record::kernels;
  return options;
}

}  // namespace

// The left-out ones fill their ops, so nothing is lost.
TEST_CASE("kernels are left out of the record exactly where the host cannot hold one up") {
  RunOptions sparse = detailed();
  sparse.only_kernels_host_may_hold = true;
  std::size_t left_out = 0, kept = 0;
  for (std::uint64_t seed = 70'000; seed < 70'300; ++seed) {
    CAPTURE(seed);
    const auto machine = random_machine(seed, {.mistakes = false});
    const Outcome all = run(machine->machine(), detailed());
    const Outcome few = run(machine->machine(), sparse);
    const auto& whole = std::get<Trace>(all);
    const auto& part = std::get<Trace>(few);
    CHECK(whole.spans == part.spans);
    std::size_t next = 0;
    for (std::size_t k = 0; k < whole.kernels.size();) {
      const KernelSpan& first = whole.kernels[k];
      std::size_t end = k;
      Duration ran{};
      for (; end < whole.kernels.size() && whole.kernels[end].actor == first.actor &&
             whole.kernels[end].call == first.call && whole.kernels[end].op == first.op;
           ++end)
        ran += whole.kernels[end].end - whole.kernels[end].begin;
      const bool recorded = next < part.kernels.size() && part.kernels[next].actor == first.actor &&
                            part.kernels[next].call == first.call &&
                            part.kernels[next].op == first.op;
      if (recorded) {
        kept += end - k;
        next += end - k;
      } else {
        left_out += end - k;
        CHECK(ran == whole.kernels[end - 1].end - first.begin);
      }
      k = end;
    }
    CHECK(next == part.kernels.size());
  }
  CHECK(left_out > 500);
  CHECK(kept > 100);
}

TEST_CASE("the host issues launches one after another over all streams") {
  MachineBuilder m;
  auto& p = m.program({"a", "b"});
  p.kernels("x", 0, {1ns, 1ns, 50ns}).launches(3);
  p.kernels("y", 1, {4ns}).launches(1);
  p.kernels("z", 1, {4ns}).launches(0);
  const ActorId a = m.actor(p);
  m[a].launch = 10ns;
  const Trace trace = completed(m, detailed());
  REQUIRE(trace.spans.size() == 3);
  CHECK(trace.spans[0] == Span{a, 0, 0, 10ns, 10ns, 10ns, 80ns});
  CHECK(trace.spans[1] == Span{a, 0, 1, 40ns, 40ns, 40ns, 44ns});
  CHECK(trace.spans[2] == Span{a, 0, 2, 40ns, 44ns, 44ns, 48ns});
  REQUIRE(trace.kernels.size() == 5);
  CHECK(trace.kernels[0].begin == 10ns);  // launch-bound, with gaps
  CHECK(trace.kernels[0].end == 11ns);
  CHECK(trace.kernels[1].begin == 20ns);
  CHECK(trace.kernels[2].begin == 30ns);
  CHECK(trace.kernels[2].end == 80ns);
}

TEST_CASE("launches beyond one for each kernel are spread evenly over the kernels") {
  MachineBuilder m;
  auto& p = m.program({"a"});
  p.kernels("x", 0, {1ns, 1ns}).launches(5);
  p.compute("y", 0, 1ns).launches(1);
  const ActorId a = m.actor(p);
  m[a].launch = 10ns;
  const Trace trace = completed(m, detailed());
  REQUIRE(trace.kernels.size() == 3);
  CHECK(trace.kernels[0].begin == 30ns);  // of 2.5 launches
  CHECK(trace.kernels[1].begin == 50ns);
  CHECK(trace.kernels[2].begin == 60ns);
  CHECK(completed(m).end == 61ns);
}

TEST_CASE("launches are counted over blocks and calls") {
  MachineBuilder m;
  auto& p = m.program({"a"});
  p.compute("x", 0, 1ns).launches(2);
  p.block().compute("y", 0, 1ns).launches(1);
  p.call(0).call(1).call(0);
  const ActorId a = m.actor(p);
  m[a].launch = 10ns;
  const Trace trace = completed(m);
  CHECK(trace.spans[0].issued == 10ns);
  CHECK(trace.spans[1].issued == 30ns);
  CHECK(trace.spans[2].issued == 40ns);
  CHECK(trace.end == 51ns);  // behind both of its launches
}

TEST_CASE("a call takes the host's time before its launches") {
  MachineBuilder m;
  auto& p = m.program({"a"});
  p.compute("x", 0, 1ns).launches(1);
  p.kernels("y", 0, {1ns, 1ns}).launches(2).host_call(100ns);
  p.block().compute("z", 0, 1ns).launches(1);
  p.call(0).call(0).call(1);
  const ActorId a = m.actor(p);
  m[a].launch = 10ns;
  const Trace trace = completed(m, detailed());
  CHECK(trace.spans[0].issued == 10ns);
  CHECK(trace.spans[1].issued == 120ns);
  CHECK(trace.kernels[2].begin == 130ns);
  CHECK(trace.spans[3].issued == 250ns);
  CHECK(trace.spans[4].issued == 270ns);
  CHECK(trace.end == 271ns);
}

TEST_CASE("an op without kernels takes no time") {
  MachineBuilder m;
  auto& p = m.program({"a"});
  p.compute("x", 0, 3ns)
      .kernels("nothing", 0, {})
      .kernels("zero", 0, {0ns, 0ns})
      .compute("y", 0, 2ns);
  m.actor(p);
  const Trace trace = completed(m, detailed());
  CHECK(trace.spans[1].begin == 3ns);
  CHECK(trace.spans[1].end == 3ns);
  CHECK(trace.kernels.size() == 4);
  CHECK(trace.end == 5ns);
}

TEST_CASE("kernels run at the rate of the units that transfers leave") {
  // 10 units; from 4 ns to 10 ns a collective holds 4 of them. 20 ns of work: 4 at full speed, 6 x
  // 0.6 = 3.6 meanwhile, the other 12.4 at full speed.
  MachineBuilder m;
  auto& p = m.program({"compute", "communication"});
  p.compute("first", 1, 4ns);
  p.collective("ar", 1, 0, 0);
  p.compute("kernel", 0, 20ns);
  const ActorId a = m.actor(p);
  m[a].units = 10;
  m.communicator({a}, {{.latency = 6ns, .bytes = {}, .rate = 0, .units_taken = 4}});
  CHECK(completed(m).end == 4ns + 6ns + Duration(12'400));
}

TEST_CASE("a kernel that is slowed down ends on the next whole picosecond") {
  MachineBuilder m;
  auto& p = m.program({"compute", "communication"});
  p.collective("ar", 1, 0, 0);
  p.kernels("k", 0, {Duration(10), Duration(1)});
  const ActorId a = m.actor(p);
  m[a].units = 3;
  m.communicator({a}, {{.latency = 1ns, .bytes = {}, .rate = 0, .units_taken = 1}});
  const Trace trace = completed(m, detailed());
  CHECK(trace.kernels[0].end == Duration(15));    // ceil(30 / 2)
  CHECK(trace.kernels[1].begin == Duration(15));  // the next one does not inherit a fraction
  CHECK(trace.kernels[1].end == Duration(17));    // ceil(3 / 2)
}

TEST_CASE("transfers leave at least one unit") {
  MachineBuilder m;
  auto& p = m.program({"compute", "communication"});
  p.collective("ar", 1, 0, 0).compute("k", 0, Duration(5));
  const ActorId a = m.actor(p);
  m[a].units = 4;
  m.communicator({a}, {{.latency = 1ns, .bytes = {}, .rate = 0, .units_taken = 9}});
  CHECK(completed(m).spans[0].end == Duration(20));
}

TEST_CASE("kernels of less weight lose less to transfers, of more weight more") {
  // 10 units of which 4 are taken throughout: full weight runs at 0.6, a quarter at 0.9, none at 1,
  // two at 0.2; three would be below nothing, but one unit's worth is left.
  const auto takes = [](std::uint16_t weight) {
    MachineBuilder m;
    auto& p = m.program({"compute", "communication"});
    p.collective("ar", 1, 0, 0).compute("k", 0, 9ns);
    p.times().weight = {weight};
    const ActorId a = m.actor(p);
    m[a].units = 10;
    m.communicator({a}, {{.latency = 1ms, .bytes = {}, .rate = 0, .units_taken = 4}});
    return completed(m).spans[0].end;
  };
  CHECK(takes(256) == 15ns);
  CHECK(takes(64) == 10ns);
  CHECK(takes(0) == 9ns);
  CHECK(takes(512) == 45ns);
  CHECK(takes(768) == 90ns);
}

TEST_CASE("kernels of different weight follow each other within one op") {
  // 4 units, 2 taken until 6 ns. Full weight: 2 ns of work take 4 ns; no weight: 2 ns take 2 ns.
  MachineBuilder m;
  auto& p = m.program({"compute", "communication"});
  p.collective("ar", 1, 0, 0);
  p.kernels("k", 0, {2ns, 2ns, 2ns});
  p.times().weight = {256, 0, 256};
  const ActorId a = m.actor(p);
  m[a].units = 4;
  m.communicator({a}, {{.latency = 7ns, .bytes = {}, .rate = 0, .units_taken = 2}});
  const Trace trace = completed(m, detailed());
  CHECK(trace.kernels[0].end == 4ns);
  CHECK(trace.kernels[1].end == 6ns);
  CHECK(trace.kernels[2].end == 8ns + Duration(500));  // 1 ns at half speed, then 1.5 ns
}

TEST_CASE("the host that waits for an op launches its kernels only then") {
  MachineBuilder m;
  auto& p = m.program({"compute"});
  p.compute("k", 0, 10ns).launches(1);
  p.kernels("o", 0, {1ns, 1ns}).launches(2).drained();
  const ActorId a = m.actor(p);
  m[a].launch = 3ns;
  const Trace trace = completed(m, detailed());
  CHECK(trace.spans[0].end == 13ns);
  CHECK(trace.spans[1].begin == 13ns);
  CHECK(trace.kernels[1].begin == 16ns);
  CHECK(trace.kernels[2].begin == 19ns);
  CHECK(trace.spans[1].end == 20ns);
}

TEST_CASE("a message holds units at both ends while it is in flight") {
  MachineBuilder m;
  auto& source = m.program({"compute", "p2p"});
  source.send("s", 1, 0, 0).compute("k", 0, 10ns);
  auto& destination = m.program({"compute", "p2p"});
  destination.compute("k", 0, 10ns).receive("r", 1, 0, 0);
  const ActorId a = m.actor(source), b = m.actor(destination);
  m[a].units = m[b].units = 2;
  m.channel(a, b, {{.latency = 4ns, .bytes = {}, .rate = 0, .units_taken = 1}});
  const Trace trace = completed(m);
  CHECK(trace.spans[0].end == 12ns);  // 4 ns at half speed
  CHECK(trace.spans[2].end == 12ns);
}

namespace {

// When a transfer of 40 ns ends that keeps `share` of its rate beside a kernel of `kernel`.
Duration end_beside(Duration kernel, double share, std::int64_t bytes = 0) {
  MachineBuilder m;
  auto& p = m.program({"compute", "communication"});
  p.collective("ar", 1, 0, 0);
  p.compute("kernel", 0, kernel);
  const ActorId a = m.actor(p);
  if (bytes > 0) {
    const LinkId link = m.link(bytes * 25'000'000);  // 40 ns alone
    m.communicator({a}, {{.bytes = Bytes(bytes), .rate = bytes * 1'000'000'000}}, {{{link}}});
  } else {
    m.communicator({a}, {{.latency = 40ns}});
  }
  m.machine().share_beside_kernels = static_cast<std::int64_t>(share * 1e6 + 0.5);
  Duration end{};
  for (const Span& span : completed(m, detailed()).spans)
    if (span.op == 0) end = span.end;
  return end;
}

}  // namespace

// With x at the lower rate s and the rest at the full one: x s + (T - x) = 40 ns.
TEST_CASE("a transfer keeps a share of its rate while kernels run beside it") {
  for (const std::int64_t bytes : {0, 1000}) {
    CAPTURE(bytes);
    CHECK(end_beside(20ns, 1, bytes) == 40ns);
    CHECK(end_beside(20ns, 0.8, bytes) == 44ns);  // 20 x 0.8 + 24
    CHECK(end_beside(42ns, 0.75, bytes) == 42ns + Duration(8500));
    const Duration never_alone = end_beside(1us, 0.8, bytes);  // 40 / 0.8, less than a picosecond
    CHECK(never_alone <= 50ns);
    CHECK(never_alone > 50ns - Duration(10));
  }
}
