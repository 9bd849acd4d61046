// Blocks of collectives that come back late, and what they change.
#include "sim/simulate/memory/late_blocks.h"

#include <doctest/doctest.h>

#include <functional>

#include "sim/simulate/report/summarize.h"
#include "tests/simulate/toy.h"
#include "tests/support/networks.h"
#include "tests/support/rooms.h"

using namespace trainyard;

namespace {

constexpr Duration kLaunch(1'000'000);

// A pass of 9 launches of kernels and a collective of 1000 bytes, 40 times. The collectives end so
// long after their own launch.
struct Passes {
  Cast cast;
  lower::Lowered lowered;
  Duration behind;

  explicit Passes(CollectiveKind kind, Duration gpu_is_behind = 1000 * kLaunch,
                  bool drained = false)
      : behind(gpu_is_behind) {
    Connection tensor;
    tensor.stream = StreamKind::tensor;
    tensor.transfers = {{.kind = kind, .bytes = Bytes(1000)}};
    const ConnectionId connection = cast.connect("tensor", [&] { return tensor; });
    engine::Op kernels, collective;
    kernels.launches = 9;
    kernels.drained = drained;
    collective.kind = engine::OpKind::collective;
    collective.stream = static_cast<std::uint8_t>(StreamKind::tensor);
    collective.port = port_of(connection);
    collective.launches = 1;
    Role role;
    role.program.blocks.edit().push_back({{kernels, collective}});
    role.program.calls.assign(40, {});
    role.calls.assign(40, {.kind = CallKind::forward});
    cast.roles.push_back(std::move(role));
    engine::Actor actor;
    actor.launch = kLaunch;
    lowered.machine.actors.push_back(actor);
    lowered.classes.push_back({});
  }
  // By call, when its collective ends.
  Bytes late_after(std::int64_t ahead, const std::function<Duration(std::int64_t)>& end) const {
    LateBlocks blocks(cast, lowered, false);
    for (std::uint32_t call = 0; call < 40; ++call)
      blocks.op_ended({.call = call, .op = 1, .end = end(call)});
    return blocks.of(0, ahead);
  }
  Bytes late(std::int64_t ahead, bool keeps_gathered_inputs = false) const {
    LateBlocks blocks(cast, lowered, keeps_gathered_inputs);
    for (std::uint32_t call = 0; call < 40; ++call) {
      const Duration launched = (call + 1) * 10 * kLaunch;
      blocks.op_ended({.call = call, .op = 0, .begin = launched + behind - 11 * kLaunch});
      blocks.op_ended({.call = call, .op = 1, .end = launched + behind});
    }
    return blocks.of(0, ahead);
  }
};

Job job() {
  Transformer network = gpt(8, 512, 8, 8192);
  Job result;
  result.network = network;
  result.cluster = toy::cluster(8, 1);
  result.recipe.global_batch = 8;
  result.recipe.micro_batch.sequence_length = 256;
  result.recipe.memory.fragmentation = 0.02;
  result.recipe.memory.least_fragmentation = 0.02;
  result.plan.degrees.tensor = 8;
  result.plan.tensor_parallel.sequence = true;
  return result;
}

}  // namespace

TEST_CASE("a host n launches ahead has the blocks of its last n launches' collectives late") {
  for (const CollectiveKind kind :
       {CollectiveKind::all_gather, CollectiveKind::reduce_scatter, CollectiveKind::all_reduce}) {
    const Passes passes(kind);
    for (const int ahead : {0, 1, 9, 10, 11, 95, 100, 101, 399})
      CHECK(passes.late(ahead) == (ahead + 9) / 10 * Bytes(1000));  // of the 40
    CHECK(passes.late(100'000) == 40 * Bytes(1000));
  }
}

TEST_CASE("a block is back when the GPU has passed its collective, however far the host may be") {
  for (const int behind : {0, 1, 9, 10, 11, 95, 100, 101, 399}) {
    const Passes passes(CollectiveKind::all_reduce, behind * kLaunch);
    for (const int ahead : {1, 10, 35, 1000})
      CHECK(passes.late(ahead) == (std::min(behind, ahead) + 9) / 10 * Bytes(1000));
  }
}

TEST_CASE("a host that is ahead at the end of a step waits there") {
  Passes passes(CollectiveKind::all_reduce);
  // The GPU takes twice as long as the host, which is ahead by half of what it has launched.
  const auto end = [](std::int64_t call) { return 20 * (call + 1) * kLaunch; };
  CHECK(passes.late_after(1000, end) == 20 * Bytes(1000));
  passes.cast.roles.front().round_calls = {20, 40};
  CHECK(passes.late_after(1000, end) == 10 * Bytes(1000));
  passes.cast.roles.front().round_calls = {10, 20, 30, 40};
  CHECK(passes.late_after(1000, end) == 5 * Bytes(1000));
}

TEST_CASE("a host that is as far ahead as it may be waits for the GPU") {
  Passes passes(CollectiveKind::all_reduce);
  // The last passes, which hold more than all before, are quicker on the GPU than on the host, so
  // that they catch up with one that has waited, and not with one that has gone on.
  engine::Program& program = passes.cast.roles.front().program;
  program.effects.edit() = {{.bytes = 1'000'000}, {.bytes = -1'000'000}};
  engine::Block high = program.blocks[0];
  high.ops[0].effects = 2;
  program.blocks.edit().push_back(high);
  for (std::size_t call = 30; call < 40; ++call)
    program.calls[call].block = 1;
  const auto end = [](std::int64_t call) {
    return (call < 20 ? 30 * (call + 1) : 600 + 5 * (call - 19)) * kLaunch;
  };
  CHECK(passes.late_after(20, end) == Bytes(0));
  // Launch 399 is made before the collectives from the fourteenth on end.
  CHECK(passes.late_after(1000, end) == 26 * Bytes(1000));
}

TEST_CASE("nothing is late that is kept, sent one to another, or waited for") {
  CHECK(Passes(CollectiveKind::all_gather).late(100, true) == Bytes(0));
  CHECK(Passes(CollectiveKind::reduce_scatter).late(100, true) == Bytes(10'000));
  CHECK(Passes(CollectiveKind::all_to_all).late(100) == Bytes(0));
  // The host waits at the begin of each pass, and goes on from there.
  CHECK(Passes(CollectiveKind::all_reduce, 1000 * kLaunch, true).late(100) == Bytes(1000));
}

TEST_CASE("late blocks add to what is reserved, and a part of them to what has to fit") {
  Job each = job();
  const StepReport none = summarize(each, *simulate_step(each));
  each.recipe.memory.launches_ahead = 60;
  const StepReport late = summarize(each, *simulate_step(each));
  CHECK(late.step_time == none.step_time);
  CHECK(late.memory.allocated == none.memory.allocated);
  const Bytes more = late.memory.reserved - none.memory.reserved;
  CHECK(more > Bytes(0));
  CHECK(late.memory.peak == none.memory.peak + more);
  // As much as there is room for, down to a device that is full without them, or too small.
  for (const int room : {1000, 1, 0, -1}) {
    each.cluster.server.gpu.memory = Bytes(none.memory.peak.count() + room);
    const StepReport full = summarize(each, *simulate_step(each));
    CHECK(full.memory.fits == (room >= 0));
    CHECK(full.step_time == (room >= 0 ? none.step_time : std::nullopt));
    CHECK(full.memory.reserved == none.memory.reserved + Bytes(std::max(room, 0)));
    CHECK(full.memory.is_tight == (room >= 0));
  }
  // A quarter of it in any case.
  each.recipe.memory.late_share = 0.25;
  for (const int room : {1, 0, -1}) {
    each.cluster.server.gpu.memory = none.memory.peak + Bytes(more.count() / 4 + room);
    const StepReport part = summarize(each, *simulate_step(each));
    CHECK(part.memory.fits == (room >= 0));
    // What a search's limit on memory leaves out.
    CHECK(part.memory.late == Bytes(std::max(room, 0)));
    CHECK(part.memory.reserved ==
          none.memory.reserved + Bytes(more.count() / 4 + std::max(room, 0)));
  }
}
