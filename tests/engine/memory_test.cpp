#include <doctest/doctest.h>

#include "tests/support/program_builder.h"
#include "tests/support/rooms.h"

using namespace trainyard;
using namespace trainyard::testing;
using namespace std::chrono_literals;

TEST_CASE("the peak is the first instant at which most is held") {
  MachineBuilder m;
  auto& p = m.program({"s"});
  p.resident(100, 0);
  p.compute("a", 0, 10ns).memory(30, 1);
  p.compute("b", 0, 10ns).memory(20, 2).memory(-50, 1).memory(20, 1);
  p.compute("c", 0, 10ns).memory(50, 2).memory(-70, 2);
  p.compute("d", 0, 10ns).memory(-20 + 20).memory(50, 1).memory(-50, 1);
  const ActorId a = m.actor(p);
  const MemoryPeak peak = completed(m).peaks[a];
  CHECK(peak.resident == Bytes(100));
  CHECK(peak.peak == Bytes(170));
  CHECK(peak.at == 10ns);  // and again from 20 to 30 ns
  CHECK(peak.by_category[0] == 100);
  CHECK(peak.by_category[1] == 50);
  CHECK(peak.by_category[2] == 20);
  CHECK(peak.at_end == Bytes(100));
}

TEST_CASE("what ends at an instant is given back before what begins there takes") {
  MachineBuilder m;
  auto& p = m.program({"s", "t"});
  p.compute("a", 0, 10ns).memory(40).memory(-40);
  p.compute("b", 0, 10ns).memory(40).memory(-40);
  p.compute("x", 1, 10ns).memory(7).memory(-7);
  const ActorId a = m.actor(p);
  const Trace trace = completed(m);
  CHECK(trace.peaks[a].peak == Bytes(47));
  CHECK(trace.peaks[a].at == 0ns);
  REQUIRE(trace.memory.size() == 6);
  CHECK(trace.memory[2].bytes < 0);
  CHECK(trace.memory.back().at == 20ns);
}

TEST_CASE("a program that leaks ends above what it began with") {
  MachineBuilder m;
  auto& p = m.program({"s"});
  p.resident(5).compute("a", 0, 1ns).memory(3);
  const ActorId a = m.actor(p);
  CHECK(completed(m).peaks[a].at_end == Bytes(8));
}

TEST_CASE("over capacity the verdict names rank, instant, owners and bytes") {
  MachineBuilder m;
  auto& p = m.program({"s", "t"});
  p.program().labels = {"weights", "activations", "workspace"};
  p.resident(100, 0, 0);
  p.block();
  p.compute("f", 0, 10ns).memory(20, 1, 1);
  p.compute("w", 1, 15ns).memory(25, 2, 2).memory(-25, 2, 2);
  p.block();
  p.compute("b", 0, 10ns).memory(-20, 1, 1);
  p.call(1).call(1).call(2).call(2);
  std::vector<ActorId> actors;
  for (std::int64_t capacity : {150, 140, 0, 140}) {
    actors.push_back(m.actor(p));
    m[actors.back()].memory_capacity = Bytes(capacity);
  }
  const Outcome outcome = run(m.machine());
  REQUIRE(std::holds_alternative<OutOfMemory>(outcome));
  const auto& over = std::get<OutOfMemory>(outcome);
  CHECK(over.actor == actors[1]);
  CHECK(over.needed == Bytes(165));
  CHECK(over.capacity == Bytes(140));
  CHECK(over.trace.end == 40ns);  // simulated to the end all the same
  REQUIRE(over.owners.size() == 3);
  CHECK(over.owners[0].bytes == 100);
  CHECK(over.owners[1].bytes == 40);
  CHECK(over.owners[1].owner == 1);
  CHECK(over.owners[2].bytes == 25);
  for (const MemoryChange& owner : over.owners)
    CHECK(owner.at == 10ns);
}

// 10 and 40 of category 0, 30 of 1 while there are 40, 25 of it while there are 10.
TEST_CASE("a pool keeps what it once held, at other times than the others") {
  const auto peak_of = [](std::uint32_t pools, std::int64_t capacity) {
    MachineBuilder m;
    auto& p = m.program({"s"});
    p.program().pools = pools;
    p.resident(10, 0);
    p.compute("a", 0, 10ns).memory(30, 1).memory(-30, 1);
    p.compute("b", 0, 10ns).memory(30, 0).memory(5, 1).memory(-30, 0).memory(-5, 1);
    const ActorId a = m.actor(p);
    m[a].memory_capacity = Bytes(capacity);
    const Outcome outcome = run(m.machine());
    const auto* over = std::get_if<OutOfMemory>(&outcome);
    if (over != nullptr) CHECK(over->needed == over->trace.peaks[a].pooled);
    CHECK((over != nullptr) == (pools != 0 && capacity == 69));
    return over != nullptr ? over->trace.peaks[a] : std::get<Trace>(outcome).peaks[a];
  };
  for (const std::int64_t capacity : {0, 69, 70}) {
    CHECK(peak_of(0, capacity).pooled == Bytes(45));
    for (const std::uint32_t pools : {1U, 2U, 3U}) {
      CHECK(peak_of(pools, capacity).peak == Bytes(45));
      CHECK(peak_of(pools, capacity).pooled == Bytes(40 + 30));
    }
  }
}
