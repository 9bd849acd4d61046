// What must hold for every machine, on random ones.
#include <doctest/doctest.h>

#include <algorithm>
#include <map>

#include "sim/base/hash.h"
#include "sim/base/random.h"
#include "tests/engine/random_machine.h"
#include "tests/support/rooms.h"

using namespace trainyard;
using namespace trainyard::testing;

namespace {

constexpr RandomOptions kValid = {.mistakes = false};

std::uint64_t hash(const Trace& trace) {
  Hash hash;
  for (const Span& span : trace.spans) {
    hash.add(index(span.actor)).add(span.call).add(span.op);
    for (Duration time : {span.issued, span.begin, span.active, span.end})
      hash.add(static_cast<std::uint64_t>(time.count()));
  }
  return hash.value();
}

Machine scaled(const Machine& machine, std::int64_t k,
               std::map<const KernelTimes*, KernelTimes>& times) {
  Machine result = machine;
  for (ActorId id : result.actors.ids()) {
    Actor& actor = result.actors[id];
    KernelTimes& scaled_times = times[actor.times];
    scaled_times = *actor.times;
    for (Duration& time : scaled_times.kernel)
      time *= k;
    actor.times = &scaled_times;
    actor.launch *= k;
  }
  for (auto& table : result.transfers)
    for (Transfer& transfer : table) {
      transfer.latency *= k;
      transfer.bytes = k * transfer.bytes;
    }
  return result;
}

}  // namespace

TEST_CASE("the same machine gives the same trace") {
  for (std::uint64_t seed = 0; seed < 100; ++seed) {
    const auto m = random_machine(seed, kValid);
    CHECK(hash(completed(*m)) == hash(completed(*m)));
  }
}

TEST_CASE("spans of a stream do not overlap and are ordered within") {
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    const auto m = random_machine(seed, kValid);
    const Trace trace = completed(*m);
    CAPTURE(seed);
    const auto stream = [&](const Span& span) {
      const Program& program = *m->machine().actors[span.actor].program;
      return program.op(span.call, span.op).stream;
    };
    std::size_t overlaps = 0, disordered = 0;
    for (std::size_t i = 0; i < trace.spans.size(); ++i) {
      const Span& span = trace.spans[i];
      disordered +=
          !(span.issued <= span.begin && span.begin <= span.active && span.active <= span.end);
      CHECK(span.end <= trace.finished[span.actor]);
      if (i == 0 || trace.spans[i - 1].actor != span.actor ||
          stream(trace.spans[i - 1]) != stream(span))
        continue;
      overlaps += trace.spans[i - 1].end > span.begin;
    }
    CHECK(overlaps == 0);
    CHECK(disordered == 0);
    CHECK(trace.ops == trace.spans.size());
    CHECK(trace.end == *std::max_element(trace.finished.begin(), trace.finished.end()));
  }
}

TEST_CASE("time scales with durations and bytes where nothing is rounded") {
  std::map<const KernelTimes*, KernelTimes> times;
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    const auto m = random_machine(seed, {.flows = false, .slow_downs = false, .mistakes = false});
    for (std::uint32_t t = 0; t < m->machine().transfers.size(); ++t)
      for (Transfer& transfer : m->machine().transfers[t])
        if (transfer.rate > 0) transfer.rate = 500'000'000'000;  // 2 ps per byte
    const Trace one = completed(*m);
    const Machine large = scaled(m->machine(), 7, times);
    const Outcome outcome = run(large);
    REQUIRE(std::holds_alternative<Trace>(outcome));
    const Trace& seven = std::get<Trace>(outcome);
    REQUIRE(one.spans.size() == seven.spans.size());
    std::size_t wrong = 0;
    for (std::size_t i = 0; i < one.spans.size(); ++i)
      wrong += one.spans[i].begin * 7 != seven.spans[i].begin ||
               one.spans[i].end * 7 != seven.spans[i].end;
    CAPTURE(seed);
    CHECK(wrong == 0);
  }
}

TEST_CASE("a segment in two pieces takes as long as in one") {
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    SplitMix64 random(seed);
    Trace traces[2];
    std::vector<Duration> kernels;
    for (int k = 0; k < 6; ++k)
      kernels.push_back(Duration(static_cast<std::int64_t>(random.below(30))));
    const auto cut = static_cast<std::ptrdiff_t>(random.below(7));
    const auto launch = Duration(static_cast<std::int64_t>(random.below(12)));
    for (int pieces = 1; pieces <= 2; ++pieces) {
      MachineBuilder m;
      auto& p = m.program({"compute", "communication"});
      p.collective("x", 1, 0, 0);
      if (pieces == 1) {
        p.kernels("all", 0, kernels).launches(6);
      } else {
        p.kernels("head", 0, {kernels.begin(), kernels.begin() + cut});
        p.launches(static_cast<std::uint32_t>(cut));
        p.kernels("tail", 0, {kernels.begin() + cut, kernels.end()});
        p.launches(static_cast<std::uint32_t>(6 - cut));
      }
      const ActorId a = m.actor(p);
      m[a].units = 5;
      m[a].launch = launch;
      m.communicator({a}, {{.latency = Duration(40), .bytes = {}, .rate = 0, .units_taken = 2}});
      traces[pieces - 1] = completed(m);
    }
    CHECK(traces[0].end == traces[1].end);
  }
}

TEST_CASE("with fixed order and no shared rate no longer kernel makes a step shorter") {
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    const auto m = random_machine(seed, {.flows = false, .slow_downs = false, .mistakes = false});
    const Trace before = completed(*m);
    SplitMix64 random(seed);
    std::map<const KernelTimes*, KernelTimes> times;
    Machine longer = scaled(m->machine(), 1, times);
    for (auto& [original, copy] : times)
      copy.kernel[random.below(copy.kernel.size())] +=
          Duration(1 + static_cast<std::int64_t>(random.below(20)));
    const Outcome outcome = run(longer);
    REQUIRE(std::holds_alternative<Trace>(outcome));
    const Trace& after = std::get<Trace>(outcome);
    std::size_t earlier = 0;
    for (std::size_t i = 0; i < before.spans.size(); ++i)
      earlier += after.spans[i].end < before.spans[i].end;
    CAPTURE(seed);
    CHECK(earlier == 0);
    CHECK(after.end >= before.end);
  }
}

TEST_CASE("what is recorded changes nothing of what happens") {
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    const auto m = random_machine(seed, kValid);
    const Trace all = completed(*m);
    RunOptions options;
    options.record = Record::nothing;
    const Trace none = completed(*m, options);
    CHECK(none.spans.empty());
    CHECK(none.memory.empty());
    CHECK(none.end == all.end);
    CHECK(none.events == all.events);
    CHECK(none.ops == all.ops);

    options.record = Record::ops;
    options.recorded.assign(m->machine().actors.size(), false);
    options.recorded.back() = true;
    const Trace last = completed(*m, options);
    const ActorId actor = static_cast<ActorId>(m->machine().actors.size() - 1);
    std::vector<Span> expected;
    for (const Span& span : all.spans)
      if (span.actor == actor) expected.push_back(span);
    CHECK(last.spans == expected);
    for (const MemoryChange& change : last.memory)
      CHECK(change.actor == actor);
    CHECK(none.finished[actor] == all.finished[actor]);

    options.kept = std::exchange(options.recorded, {});
    const Trace kept = completed(*m, options);
    CHECK(kept.spans == expected);
    CHECK(kept.memory.size() == last.memory.size());
  }
}

TEST_CASE("ranks that behave alike do so at the same times") {
  // Eight copies of one rank in one communicator against two.
  for (std::uint64_t seed = 0; seed < 100; ++seed) {
    Duration ends[2];
    for (int large = 0; large < 2; ++large) {
      SplitMix64 random(seed);
      MachineBuilder m;
      auto& p = m.program({"compute", "communication"});
      for (int i = 0; i < 6; ++i) {
        p.compute("c", 0, Duration(static_cast<std::int64_t>(random.below(50))), waits({1}));
        p.collective("x", 1, 0, 0, random.below(2) == 0 ? waits({0}) : waits({}));
      }
      std::vector<ActorId> members;
      for (int i = 0; i < (large == 1 ? 8 : 2); ++i) {
        members.push_back(m.actor(p));
        m[members.back()].units = 3;
      }
      m.communicator(
          members,
          {{.latency = Duration(5), .bytes = Bytes(9), .rate = 700'000'000'000, .units_taken = 1}});
      const Trace trace = completed(m);
      for (Duration finished : trace.finished)
        CHECK(finished == trace.end);
      ends[large] = trace.end;
    }
    CHECK(ends[0] == ends[1]);
  }
}
