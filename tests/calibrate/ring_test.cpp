// The schedule and the flags of the probes' ring kernels, simulated with ranks that advance in any
// order: each rank's channel is an agent that waits, copies and posts in separate actions.
#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "calibrate/probe/ring/ring_schedule.h"
#include "sim/base/random.h"
#include "tests/calibrate/collective_reference.h"
#include "tests/support/about.h"
#include "tests/support/rooms.h"

namespace trainyard::probe {
namespace {

constexpr std::array kKinds = {Collective::all_reduce,     Collective::all_gather,
                               Collective::reduce_scatter, Collective::all_to_all,
                               Collective::broadcast,      Collective::send_recv};

// What a slot holds, watched from outside: the flags say when to touch it, this says whether that
// was right.
enum class SlotState { empty, being_filled, full };

struct Slot {
  SlotState state = SlotState::empty;
  std::vector<std::int64_t> values;
};

struct Connection {
  std::uint64_t filled = 0, drained = 0;  // the flags that the other side sees
  std::uint64_t sent = 0, received = 0;   // each side's own count
  std::vector<Slot> slots;
};

using Buffers = test::Buffers<std::int64_t>;

enum class Action {
  wait_to_receive,
  wait_to_send,
  copy_first,
  copy_second,
  post_filled,
  post_drained,
  next
};

struct Agent {
  int rank = 0, channel = 0, step = 0;
  std::int64_t piece = 0;
  Action action = Action::wait_to_receive;
  bool done = false;
};

class Network {
 public:
  explicit Network(int slots) : slots_(slots) {}

  // Runs one operation; false if all agents that are not done wait.
  bool run(const RingShape& shape, const Buffers& input, Buffers& output, SplitMix64& random) {
    std::vector<Agent> agents;
    for (int rank = 0; rank < shape.ranks; ++rank)
      for (int channel = 0; channel < shape.channels; ++channel)
        agents.push_back({rank, channel});
    std::vector<std::size_t> running(agents.size());
    for (std::size_t i = 0; i < running.size(); ++i)
      running[i] = i;
    int refused = 0;  // in a row
    while (!running.empty()) {
      const std::size_t chosen = random.below(running.size());
      Agent& agent = agents[running[chosen]];
      // An agent may run far ahead of the others: the worst case for slots.
      const std::uint64_t burst = random.below(4) == 0 ? 200 : 1;
      bool advanced = false;
      for (std::uint64_t i = 0; i < burst && !agent.done && advance(shape, input, output, agent);
           ++i)
        advanced = true;
      if (agent.done) running.erase(running.begin() + static_cast<std::ptrdiff_t>(chosen));
      refused = advanced ? 0 : refused + 1;
      if (refused > 50 && stuck(shape, agents)) return false;
    }
    return true;
  }

  // All messages were read, and what one side sent the other has counted.
  bool quiet() const {
    return std::all_of(connections_.begin(), connections_.end(), [](const auto& entry) {
      const Connection& c = entry.second;
      return c.sent == c.received && c.filled == c.sent && c.drained == c.sent;
    });
  }

 private:
  Connection& connection(int from, int to, int channel) {
    Connection& found = connections_[{from, to, channel}];
    found.slots.resize(static_cast<std::size_t>(slots_));
    return found;
  }
  Slot& slot(Connection& c, std::uint64_t message) {
    return c.slots[message % static_cast<std::uint64_t>(slots_)];
  }

  bool ready(const RingShape& shape, const Agent& agent) {
    const RingStep step = step_of(shape.kind, shape.ranks, agent.rank, agent.step);
    if (agent.action == Action::wait_to_receive && step.from >= 0) {
      const Connection& c = connection(step.from, agent.rank, agent.channel);
      return may_drain(c.received, c.filled);
    }
    if (agent.action == Action::wait_to_send && step.to >= 0) {
      const Connection& c = connection(agent.rank, step.to, agent.channel);
      return may_fill(c.sent, c.drained, slots_);
    }
    return true;
  }
  bool stuck(const RingShape& shape, const std::vector<Agent>& agents) {
    return std::none_of(agents.begin(), agents.end(),
                        [&](const Agent& agent) { return !agent.done && ready(shape, agent); });
  }

  // Half of a piece, so that a slot is seen in the middle of being written.
  void copy(const RingShape& shape, const Buffers& input, Buffers& output, const Agent& agent,
            bool second) {
    const RingStep step = step_of(shape.kind, shape.ranks, agent.rank, agent.step);
    const ElementRange range = piece_range(shape, step.shard, agent.channel, agent.piece);
    const auto rank = static_cast<std::size_t>(agent.rank);
    const std::int64_t middle = range.count / 2;
    for (std::int64_t i = second ? middle : 0; i < (second ? range.count : middle); ++i) {
      const auto at = static_cast<std::size_t>(range.first + i);
      std::int64_t value = step.own ? input[rank].at(at) : 0;
      if (step.from >= 0) {
        Connection& c = connection(step.from, agent.rank, agent.channel);
        REQUIRE(slot(c, c.received).state == SlotState::full);
        value += slot(c, c.received).values.at(static_cast<std::size_t>(i));
      }
      if (step.store) output[rank].at(at) = value;
      if (step.to >= 0) {
        Connection& c = connection(agent.rank, step.to, agent.channel);
        slot(c, c.sent).values.push_back(value);
      }
    }
  }
  void begin_filling(const RingStep& step, const Agent& agent) {
    if (step.to < 0) return;
    Connection& c = connection(agent.rank, step.to, agent.channel);
    REQUIRE(slot(c, c.sent).state == SlotState::empty);
    slot(c, c.sent) = {SlotState::being_filled, {}};
  }

  // One action of an agent; false if it has to wait.
  bool advance(const RingShape& shape, const Buffers& input, Buffers& output, Agent& agent) {
    if (!ready(shape, agent)) return false;
    const RingStep step = step_of(shape.kind, shape.ranks, agent.rank, agent.step);
    switch (agent.action) {
      case Action::wait_to_receive:
      case Action::wait_to_send: break;
      case Action::copy_first:
        begin_filling(step, agent);
        copy(shape, input, output, agent, false);
        break;
      case Action::copy_second: copy(shape, input, output, agent, true); break;
      case Action::post_filled:
        if (step.to >= 0) {
          Connection& c = connection(agent.rank, step.to, agent.channel);
          slot(c, c.sent).state = SlotState::full;
          c.filled = ++c.sent;
        }
        break;
      case Action::post_drained:
        if (step.from >= 0) {
          Connection& c = connection(step.from, agent.rank, agent.channel);
          slot(c, c.received).state = SlotState::empty;
          c.drained = ++c.received;
        }
        break;
      case Action::next: return next_step(shape, agent);
    }
    agent.action = static_cast<Action>(static_cast<int>(agent.action) + 1);
    return true;
  }
  bool next_step(const RingShape& shape, Agent& agent) {
    agent.action = Action::wait_to_receive;
    if (++agent.step < steps(shape.kind, shape.ranks)) return true;
    agent.step = 0;
    agent.done = ++agent.piece == pieces(shape, agent.channel);
    return true;
  }

  int slots_;
  std::map<std::tuple<int, int, int>, Connection> connections_;
};

Buffers random_input(const RingShape& shape, SplitMix64& random) {
  Buffers input(static_cast<std::size_t>(shape.ranks));
  for (auto& buffer : input)
    for (std::int64_t i = 0; i < shape.elements; ++i)
      buffer.push_back(static_cast<std::int64_t>(random.below(1'000'000)));
  return input;
}

// Runs one operation on `network` and compares every rank's output with the definition.
void check_operation(Network& network, const RingShape& shape, SplitMix64& random) {
  const Buffers input = random_input(shape, random);
  Buffers output(input.size(), std::vector<std::int64_t>(input[0].size(), test::kUntouched));
  CAPTURE(name(shape.kind));
  CAPTURE(shape.ranks);
  CAPTURE(shape.channels);
  CAPTURE(shape.elements);
  REQUIRE(network.run(shape, input, output, random));
  for (int rank = 0; rank < shape.ranks; ++rank)
    REQUIRE(output[static_cast<std::size_t>(rank)] == test::expected_output(shape, input, rank));
  REQUIRE(network.quiet());
}

TEST_CASE("Every collective does what its name says, in any order of ranks, sizes of any kind") {
  SplitMix64 random(20);
  for (const Collective kind : kKinds)
    for (int ranks = 2; ranks <= 9; ++ranks)
      for (const std::int64_t elements : {0, 1, 5, 8, 37, 96, 211})
        for (const int channels : {1, 3}) {
          Network network(2);
          check_operation(network, {kind, ranks, channels, elements, 8, 4}, random);
        }
}

TEST_CASE(
    "Operations of different kinds and sizes follow each other without a reset of the flags") {
  SplitMix64 random(21);
  for (const int slots : {2, 3, 4}) {
    Network network(slots);
    for (int i = 0; i < 60; ++i) {
      const Collective kind = kKinds[random.below(kKinds.size())];
      const auto elements = static_cast<std::int64_t>(random.below(300));
      check_operation(network, {kind, 5, 2, elements, 4, random.below(2) == 0 ? 1 : 4}, random);
    }
  }
}

TEST_CASE("A single slot is not enough for a ring, and the simulation sees it") {
  SplitMix64 random(22);
  for (const Collective kind : {Collective::all_reduce, Collective::all_gather}) {
    Network network(1);
    const RingShape shape{kind, 4, 1, 64, 4, 4};
    const Buffers input = random_input(shape, random);
    Buffers output = input;
    CHECK_FALSE(network.run(shape, input, output, random));
  }
}

TEST_CASE("The parts of a buffer cover it once and begin where 16 bytes begin") {
  for (const Collective kind : {Collective::all_reduce, Collective::broadcast})
    for (int ranks = 2; ranks <= 9; ++ranks)
      for (int channels = 1; channels <= 5; ++channels)
        for (std::int64_t elements = 0; elements < 150; elements += 7) {
          const RingShape shape{kind, ranks, channels, elements, 8, 4};
          std::int64_t at = 0;
          for (int shard = 0; shard < shards(shape); ++shard)
            for (int channel = 0; channel < channels; ++channel)
              for (std::int64_t piece = 0; piece < pieces(shape, channel); ++piece) {
                const ElementRange range = piece_range(shape, shard, channel, piece);
                if (range.count == 0) continue;
                REQUIRE(range.first == at);
                REQUIRE(range.first % 4 == 0);
                REQUIRE(range.count <= 8);
                at += range.count;
              }
          REQUIRE(at == elements);
        }
}

TEST_CASE("A rank sends as many bytes as nccl-tests counts on the bus") {
  for (const Collective kind : kKinds)
    for (int ranks = 2; ranks <= 9; ++ranks) {
      const std::int64_t elements = 4 * ranks * 6;
      const RingShape shape{kind, ranks, 1, elements, 8, 4};
      std::int64_t sent = 0;
      for (int step = 0; step < steps(kind, ranks); ++step) {
        const RingStep taken = step_of(kind, ranks, 0, step);
        if (taken.to >= 0) sent += shard_range(shape, taken.shard).count;
      }
      CHECK(static_cast<double>(sent) ==
            about(bus_factor(kind, ranks) * static_cast<double>(elements)));
    }
}

}  // namespace
}  // namespace trainyard::probe
