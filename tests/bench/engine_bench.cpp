// How fast the engine and its parts are. Run in a Release build on an idle machine.
#include <benchmark/benchmark.h>

#include "sim/base/random.h"
#include "sim/engine/engine.h"
#include "sim/engine/event_queue.h"
#include "sim/engine/sharing.h"
#include "tests/support/rooms.h"

namespace trainyard {
namespace {

// Hold model: pop the earliest, push it again up to 2 us later, with so many pending.
void queue_hold(benchmark::State& state) {
  EventQueue queue;
  SplitMix64 random(42);
  const auto delay = [&] {
    return Duration(1 + static_cast<std::int64_t>(random.below(2'000'000)));
  };
  for (std::int64_t i = 0; i < state.range(0); ++i)
    queue.push({delay(), static_cast<std::uint32_t>(i), 0, Phase::finish, 0});
  for (auto _ : state) {
    Event event = queue.pop();
    event.at += delay();
    queue.push(event);
  }
  state.SetItemsProcessed(state.iterations());
}
BENCHMARK(queue_hold)->Arg(64)->Arg(16 << 10)->Arg(1 << 20);

// `actors` ranks in groups of `group`: compute and collective in turn on two streams, all of
// different lengths, `steps` times.
struct Training {
  Training(std::uint32_t actors, std::uint32_t group, std::uint32_t steps) {
    program.streams = {"compute", "communication"};
    program.blocks.edit().resize(1);
    constexpr std::uint32_t kLayers = 8;
    for (std::uint32_t layer = 0; layer < kLayers; ++layer) {
      program.segments.edit().push_back({layer, 1});
      program.kernels.edit().push_back(layer);
      Op compute{.subject = layer};
      compute.waits = 2;
      Op collective{.kind = OpKind::collective, .stream = 1, .waits = 1};
      program.blocks.edit()[0].ops.push_back(compute);
      program.blocks.edit()[0].ops.push_back(collective);
    }
    program.calls.assign(steps, {});
    machine.transfers.push_back(
        {{.latency = Duration(1'000'000), .bytes = Bytes(1 << 20), .rate = 100'000'000'000}});
    SplitMix64 random(7);
    times.resize(actors);
    for (std::uint32_t a = 0; a < actors; ++a) {
      for (std::uint32_t k = 0; k < kLayers; ++k)
        times[a].kernel.push_back(
            Duration(50'000'000 + static_cast<std::int64_t>(random.below(5'000'000))));
      Actor actor;
      actor.program = &program;
      actor.times = &times[a];
      actor.communicators = {CommunicatorId{a / group}};
      machine.actors.push_back(actor);
      if (a % group == 0) machine.communicators.push_back({});
      machine.communicators[CommunicatorId{a / group}].members.push_back(ActorId{a});
    }
  }
  Program program;
  std::vector<KernelTimes> times;
  Machine machine;
};

void engine_ops(benchmark::State& state, Record record, int units_taken) {
  Training training(static_cast<std::uint32_t>(state.range(0)),
                    static_cast<std::uint32_t>(state.range(1)),
                    static_cast<std::uint32_t>(1'000'000 / 16 / state.range(0)));
  training.machine.transfers[0][0].units_taken = units_taken;
  for (ActorId actor : training.machine.actors.ids())
    training.machine.actors[actor].units = 100;
  std::uint64_t ops = 0;
  for (auto _ : state)
    ops += std::get<Trace>(run(training.machine, {.record = record})).ops;
  state.SetItemsProcessed(static_cast<std::int64_t>(ops));
}
BENCHMARK_CAPTURE(engine_ops, nothing_recorded, Record::nothing, 0)
    ->Args({1, 1})
    ->Args({64, 8})
    ->Args({1024, 8})
    ->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(engine_ops, ops_recorded, Record::ops, 0)
    ->Args({64, 8})
    ->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(engine_ops, slowed_down, Record::nothing, 20)
    ->Args({64, 8})
    ->Unit(benchmark::kMillisecond);

// Each flow leaves over its own link, crosses two links of the core and enters over a random one.
void max_min(benchmark::State& state) {
  const auto flows = static_cast<std::uint32_t>(state.range(0));
  SplitMix64 random(7);
  IdVector<LinkId, std::int64_t> capacity;
  for (std::uint32_t l = 0; l < flows * 2 + flows / 2; ++l)
    capacity.push_back(50'000'000'000 * static_cast<std::int64_t>(1 + random.below(8)));
  const auto some = [&](std::uint64_t first, std::uint64_t count) {
    return PathLink{static_cast<LinkId>(first + random.below(count))};
  };
  std::vector<Path> paths;
  for (std::uint32_t f = 0; f < flows; ++f)
    paths.push_back({{LinkId{f}},
                     some(flows * 2, flows / 4),
                     some(flows * 9 / 4, flows / 4),
                     some(flows, flows)});
  std::vector<Flow> list;
  for (const Path& path : paths)
    list.push_back({path, 400'000'000'000});
  std::vector<std::int64_t> rates;
  const MaxMinSharing sharing;
  for (auto _ : state) {
    sharing.rates(capacity, list, rates);
    benchmark::DoNotOptimize(rates.data());
  }
  state.SetItemsProcessed(state.iterations() * flows);
}
BENCHMARK(max_min)->Arg(1 << 10)->Arg(16 << 10)->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace trainyard
