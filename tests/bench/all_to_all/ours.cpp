// The all-to-all of traffic.h on trainyard's engine; prints the simulated nanoseconds.
// usage: all_to_all star|fat HOSTS
#include <fmt/format.h>

#include <algorithm>

#include "sim/engine/engine.h"
#include "tests/bench/all_to_all/traffic.h"

using namespace trainyard;
using namespace trainyard::engine;
using namespace trainyard::all_to_all;

namespace {

PathLink link(int number) {
  return {static_cast<LinkId>(number), 1};
}

// Links up, links down, links from leaves to spines, links from spines to leaves.
Path path(const Arguments& given, int from, int to) {
  const int leaves = given.hosts / kHostsOfLeaf, down = given.hosts, core = 2 * given.hosts;
  const int leaf = from / kHostsOfLeaf, other = to / kHostsOfLeaf, spine = to % kSpines;
  if (!given.fat || leaf == other) return {link(from), link(down + to)};
  return {link(from), link(core + leaf * kSpines + spine),
          link(core + (leaves + other) * kSpines + spine), link(down + to)};
}

// Each flow is a collective of an actor of its own.
Machine machine(const Arguments& given, const Program& program, const KernelTimes& times) {
  Machine result;
  const int core = given.fat ? 2 * (given.hosts / kHostsOfLeaf) * kSpines : 0;
  for (int l = 0; l < 2 * given.hosts + core; ++l)
    result.link_capacity.push_back(kBandwidth);
  Sizes sizes;
  for (int from = 0; from < given.hosts; ++from) {
    for (int to = 0; to < given.hosts; ++to) {
      if (from == to) continue;
      const auto id = static_cast<std::uint32_t>(result.transfers.size());
      const Path links = path(given, from, to);
      result.transfers.push_back(
          {{.latency = std::chrono::microseconds(static_cast<int>(links.size())),
            .bytes = Bytes(sizes.next()),
            .rate = kBandwidth}});
      result.communicators.push_back({{ActorId{id}}, id, {links}});
      Actor actor;
      actor.program = &program;
      actor.times = &times;
      actor.communicators = {CommunicatorId{id}};
      result.actors.push_back(actor);
    }
  }
  return result;
}

}  // namespace

int main(int count, char** words) {
  const Arguments given = arguments(count, words);
  Program program;
  program.streams = {"network"};
  program.blocks.edit().resize(1);
  program.blocks.edit()[0].ops.push_back({.kind = OpKind::collective});
  program.calls.push_back({});
  const KernelTimes times;
  const Machine all = machine(given, program, times);
  RunOptions options;
  options.record = Record::nothing;
  options.max_events_per_instant = 1U << 30;
  const Outcome outcome = run(all, options);
  const auto* trace = std::get_if<Trace>(&outcome);
  if (trace == nullptr) return 1;
  fmt::print("{}\n", (trace->end.count() + 500) / 1000);
}
