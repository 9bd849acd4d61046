// A small language to write machines in tests:
//
//   MachineBuilder m;
//   auto& p = m.program({"compute", "comm"});
//   p.compute("f0", 0, 10ns).collective("ar", 1, /*port=*/0, /*transfer=*/0, waits({0}));
//   const ActorId a = m.actor(p), b = m.actor(p);
//   m.communicator({a, b}, {{.latency = 5ns}});
//   const Trace trace = completed(m);
//
// Ops go to the present block; `block()` begins another one, `call()` says what runs. Without
// call() every block runs once, in order. Ports are numbered in the order in which an actor's edges
// are added.
#pragma once

#include <deque>
#include <initializer_list>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "sim/engine/engine.h"
#include "tests/support/print.h"
#include "tests/support/rooms.h"

namespace trainyard::testing {

// The wait mask of these streams.
inline std::uint32_t waits(std::initializer_list<int> streams) {
  unsigned mask = 0;
  for (int stream : streams)
    mask |= 1U << stream;
  return mask;
}

class ProgramBuilder {
 public:
  explicit ProgramBuilder(std::vector<std::string> streams) {
    program_.streams = std::move(streams);
    program_.blocks.edit().emplace_back();
  }
  ProgramBuilder(const ProgramBuilder&) = delete;
  ProgramBuilder& operator=(const ProgramBuilder&) = delete;

  // One kernel of its own.
  ProgramBuilder& compute(const std::string& label, int stream, Duration time,
                          std::uint32_t mask = 0) {
    return kernels(label, stream, {time}, mask);
  }
  ProgramBuilder& kernels(const std::string& label, int stream, std::vector<Duration> times,
                          std::uint32_t mask = 0) {
    program_.segments.edit().push_back({static_cast<std::uint32_t>(program_.kernels.size()),
                                 static_cast<std::uint32_t>(times.size())});
    for (Duration time : times) {
      program_.kernels.edit().push_back(static_cast<std::uint32_t>(times_.kernel.size()));
      times_.kernel.push_back(time);
    }
    return add(OpKind::compute, label, stream, program_.segments.size() - 1, 0, mask);
  }
  // Runs the segment of an earlier compute op again.
  ProgramBuilder& again(const std::string& label, int stream, std::uint32_t segment,
                        std::uint32_t mask = 0) {
    return add(OpKind::compute, label, stream, segment, 0, mask);
  }
  ProgramBuilder& collective(const std::string& label, int stream, std::uint32_t port,
                             std::uint32_t transfer, std::uint32_t mask = 0) {
    return add(OpKind::collective, label, stream, transfer, port, mask);
  }
  ProgramBuilder& send(const std::string& label, int stream, std::uint32_t port,
                       std::uint32_t transfer, std::uint32_t mask = 0) {
    return add(OpKind::send, label, stream, transfer, port, mask);
  }
  ProgramBuilder& receive(const std::string& label, int stream, std::uint32_t port,
                          std::uint32_t transfer, std::uint32_t mask = 0) {
    return add(OpKind::receive, label, stream, transfer, port, mask);
  }

  ProgramBuilder& hear(const std::string& label, int stream, std::uint32_t port,
                       std::uint32_t mask = 0) {
    return add(OpKind::hear, label, stream, 0, port, mask);
  }

  // These change the op that was added last.
  ProgramBuilder& launches(std::uint32_t count) {
    last().launches = count;
    return *this;
  }
  ProgramBuilder& host_call(Duration time) {
    last().call = time;
    return *this;
  }
  ProgramBuilder& drained() {
    last().drained = true;
    return *this;
  }
  ProgramBuilder& memory(std::int64_t bytes, std::uint8_t category = 0, std::uint32_t owner = 0) {
    Op& op = last();
    if (op.effects == 0) op.first_effect = static_cast<std::uint32_t>(program_.effects.size());
    program_.effects.edit().push_back({bytes, owner, category});
    ++op.effects;
    return *this;
  }

  ProgramBuilder& resident(std::int64_t bytes, std::uint8_t category = 0, std::uint32_t owner = 0) {
    program_.resident.push_back({bytes, owner, category});
    return *this;
  }
  ProgramBuilder& block() {
    program_.blocks.edit().emplace_back();
    return *this;
  }
  ProgramBuilder& call(std::uint32_t block, std::uint32_t tag = 0) {
    program_.calls.push_back({block, tag});
    return *this;
  }

  // Runs every block once if nothing was called.
  const Program& finish() {
    if (program_.calls.empty())
      for (std::uint32_t b = 0; b < program_.blocks.size(); ++b)
        program_.calls.push_back({b, b});
    return program_;
  }
  Program& program() { return program_; }
  KernelTimes& times() { return times_; }

 private:
  Op& last() { return program_.blocks.edit().back().ops.back(); }
  ProgramBuilder& add(OpKind kind, const std::string& label, int stream, std::size_t subject,
                      std::uint32_t port, std::uint32_t mask) {
    Op op;
    op.kind = kind;
    op.stream = static_cast<std::uint8_t>(stream);
    op.waits = mask;
    op.subject = static_cast<std::uint32_t>(subject);
    op.port = port;
    op.label = static_cast<std::uint32_t>(program_.labels.size());
    program_.labels.push_back(label);
    program_.blocks.edit().back().ops.push_back(op);
    return *this;
  }

  Program program_;
  KernelTimes times_;
};

class MachineBuilder {
 public:
  MachineBuilder() = default;
  MachineBuilder(const MachineBuilder&) = delete;
  MachineBuilder& operator=(const MachineBuilder&) = delete;

  ProgramBuilder& program(std::vector<std::string> streams) {
    return programs_.emplace_back(std::move(streams));
  }
  // Requires: the program is complete.
  ActorId actor(ProgramBuilder& program) { return actor(program, program.times()); }
  ActorId actor(ProgramBuilder& program, const KernelTimes& times) {
    Actor actor;
    actor.program = &program.finish();
    actor.times = &times;
    return machine_.actors.push_back(std::move(actor));
  }
  KernelTimes& times(std::vector<Duration> kernel) {
    return times_.emplace_back(KernelTimes{std::move(kernel)});
  }
  CommunicatorId communicator(std::vector<ActorId> members, std::vector<Transfer> transfers,
                              std::vector<Path> paths = {}) {
    const auto id = static_cast<CommunicatorId>(machine_.communicators.size());
    for (ActorId member : members)
      machine_.actors[member].communicators.push_back(id);
    machine_.communicators.push_back(
        {std::move(members), table(std::move(transfers)), std::move(paths)});
    return id;
  }
  ChannelId channel(ActorId source, ActorId destination, std::vector<Transfer> transfers,
                    Path path = {}) {
    const auto id = static_cast<ChannelId>(machine_.channels.size());
    machine_.actors[source].channels.push_back(id);
    if (source != destination) machine_.actors[destination].channels.push_back(id);
    machine_.channels.push_back(
        {source, destination, table(std::move(transfers)), std::move(path)});
    return id;
  }
  // The ports of inboxes, as those of other edges, are numbered as they are added.
  InboxId inbox(std::vector<ChannelId> channels, std::uint32_t first) {
    const ActorId owner = machine_.channels[channels.front()].destination;
    const InboxId id = machine_.inboxes.push_back({std::move(channels), first});
    machine_.actors[owner].inboxes.push_back(id);
    return id;
  }
  LinkId link(std::int64_t capacity) { return machine_.link_capacity.push_back(capacity); }

  engine::Machine& machine() { return machine_; }
  Actor& operator[](ActorId id) { return machine_.actors[id]; }

 private:
  std::uint32_t table(std::vector<Transfer> transfers) {
    machine_.transfers.push_back(std::move(transfers));
    return static_cast<std::uint32_t>(machine_.transfers.size() - 1);
  }

  engine::Machine machine_;
  std::deque<ProgramBuilder> programs_;  // addresses stay
  std::deque<KernelTimes> times_;
};

// The trace of a run that must complete.
inline Trace completed(MachineBuilder& builder, const RunOptions& options = {}) {
  Outcome outcome = run(builder.machine(), options);
  REQUIRE(std::holds_alternative<Trace>(outcome));
  return std::get<Trace>(std::move(outcome));
}

}  // namespace trainyard::testing
