// Solos that are gone through at once against the same run op by op.
#include "sim/engine/solo/solos.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <map>
#include <tuple>
#include <vector>

#include "sim/base/random.h"
#include "tests/engine/random_machine.h"
#include "tests/engine/same_outcome.h"
#include "tests/support/rooms.h"

using namespace trainyard;
using namespace trainyard::testing;

namespace {

// Keeps what it is told, and of legs that it knows what it was told before.
class SoloListener final : public Observer {
 public:
  void kernel_ended(const KernelSpan& kernel) override { kernels.push_back(kernel); }
  void op_ended(const Span& op) override {
    late += !ops.empty() && op.end < ops.back().end;
    const std::size_t actor = index(op.actor);
    if (actor >= last.size()) last.resize(actor + 1);
    backwards += op.end < last[actor];
    last[actor] = op.end;
    ops.push_back(op);
  }
  bool may_be_told_late() const override { return true; }
  bool leg_begins(const Leg& leg) override {
    const auto known = legs.find(leg.id);
    if (known == legs.end()) {
      first = ops.size();
      return false;
    }
    for (Span op : known->second) {
      op.actor = leg.actor;
      op.call = leg.call;
      op.op += leg.first;
      for (Duration* at : {&op.begin, &op.active, &op.end})
        *at += leg.begin;
      op_ended(op);
    }
    ++again;
    return true;
  }
  void leg_ended(const Leg& leg) override {
    std::vector<Span>& known = legs[leg.id];
    known.assign(ops.begin() + static_cast<std::ptrdiff_t>(first), ops.end());
    for (Span& op : known) {
      CHECK(op.actor == leg.actor);
      CHECK(op.call == leg.call);
      op.op -= leg.first;
      for (Duration* at : {&op.begin, &op.active, &op.end})
        *at -= leg.begin;
    }
  }

  std::vector<Span> ops;
  std::vector<KernelSpan> kernels;
  std::vector<Duration> last;  // by actor
  std::size_t late = 0, backwards = 0, again = 0, first = 0;
  std::map<std::uint32_t, std::vector<Span>> legs;
};

// When the host was done is not the same in legs.
std::vector<Span> in_order(std::vector<Span> ops) {
  for (Span& op : ops)
    op.issued = Duration::zero();
  std::sort(ops.begin(), ops.end(), [](const Span& a, const Span& b) {
    return std::tie(a.actor, a.call, a.op) < std::tie(b.actor, b.call, b.op);
  });
  return ops;
}

// With a listener to some actors only, and with hardly a stretch that is kept.
void check_some_told(const Machine& machine, std::uint64_t seed) {
  RunOptions options;
  options.record = Record::nothing;
  options.only_kernels_host_may_hold = true;
  SplitMix64 random(seed);
  for (std::size_t actor = 0; actor < machine.actors.size(); ++actor)
    options.recorded.push_back(random.below(3) == 0);
  SoloListener quick, few, whole;
  options.observer = &quick;
  const Outcome quickly = run(machine, options);
  options.most_stretches = 3;
  options.observer = &few;
  check_equal(machine, run(machine, options), quickly);
  options.solos = false;
  options.observer = &whole;
  check_equal(machine, quickly, run(machine, options));
  CHECK(in_order(quick.ops) == in_order(whole.ops));
  CHECK(in_order(few.ops) == in_order(whole.ops));
}

// One that computes beside transfers of its own, which slow its kernels down, and is sent messages
// so long after each other.
void check_cut_at(Duration at) {
  constexpr int kLayers = 5, kCalls = 4;
  CAPTURE(at);
  MachineBuilder m;
  ProgramBuilder& layers = m.program({"compute", "own", "in"});
  layers.receive("message", 2, 0, 0);
  for (int layer = 0; layer < kLayers; ++layer) {
    layers.kernels("kernels", 0, {Duration(10), Duration(6)}).memory(3 + layer);
    layers.collective("own", 1, 0, static_cast<std::uint32_t>(layer % 2), waits({0}));
  }
  layers.compute("last", 0, Duration(4), waits({1})).memory(-5 * kLayers);
  ProgramBuilder& sender = m.program({"compute", "out"});
  sender.compute("wait", 0, at).send("message", 1, 0, 0, waits({0}));
  for (int call = 0; call < kCalls; ++call) {
    layers.call(0);
    sender.call(0);
  }
  const ActorId actor = m.actor(layers), other = m.actor(sender);
  m[actor].units = 8;
  m[actor].memory_capacity = Bytes(1);
  m.communicator({actor}, {{.latency = Duration(27), .units_taken = 2},
                           {.latency = Duration(19), .units_taken = 3}});
  m.channel(other, actor, {{.latency = Duration(5), .units_taken = 1}});
  check_equal(m.machine(), run_solos(m.machine(), true), run_solos(m.machine(), false));
}

}  // namespace

TEST_CASE("a solo that is cut at any instant goes on as if op by op") {
  for (int at = 0; at < 300; ++at)
    check_cut_at(Duration(at));
}

TEST_CASE("what concerns one actor alone is gone through at once, and nothing tells") {
  std::size_t late = 0, legs = 0, machines = 0;
  const auto check = [&](std::uint64_t seed, const RandomOptions& options) {
    const auto m = random_machine(seed, options);
    CAPTURE(seed);
    for (const std::int64_t capacity : {0, 100}) {
      for (const ActorId actor : m->machine().actors.ids())
        (*m)[actor].memory_capacity = Bytes(capacity);
      check_equal(m->machine(), run_solos(m->machine(), true), run_solos(m->machine(), false));
      SoloListener quick, whole;
      check_equal(m->machine(), run_solos(m->machine(), true, &quick),
                  run_solos(m->machine(), false, &whole));
      CHECK(in_order(quick.ops) == in_order(whole.ops));
      CHECK(quick.kernels.size() == whole.kernels.size());
      CHECK(quick.backwards == 0);
      check_some_told(m->machine(), seed);
      late += quick.late > 0 ? 1U : 0U;
      legs += quick.again > 0 ? 1U : 0U;
      ++machines;
    }
  };
  for (std::uint64_t seed = 0; seed < 1000; ++seed) {
    check(seed, {.flows = false, .launches = false, .solos = true, .mistakes = false});
    check(seed, {.launches = false, .solos = true, .mistakes = false});
    check(seed, {.flows = seed % 2 == 0,
                 .launches = seed % 3 == 0,
                 .repeats = seed % 5 == 0,
                 .solos = true,
                 .copies = true,
                 .mistakes = false});
    if (seed % 5 == 0) check(seed, {.repeats = true, .solos = true, .mistakes = false});
    check(seed, {.flows = false, .calls = true, .drains = true, .solos = true, .mistakes = false});
    check(seed, {.slow_downs = false, .inboxes = true, .solos = true, .mistakes = true});
  }
  CHECK(late > machines / 10);
  CHECK(legs > machines / 50);
  MESSAGE(late, " of ", machines, ", ", legs, " with legs");
}
