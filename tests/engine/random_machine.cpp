#include "tests/engine/random_machine.h"

#include <algorithm>
#include <array>
#include <utility>

#include "sim/base/random.h"
#include "tests/support/rooms.h"

namespace trainyard::testing {
namespace {

constexpr std::uint32_t kTransfers = 3;  // in every table
constexpr std::uint32_t kKernels = 5;

struct Edge {
  bool channel = false;
  std::vector<std::uint32_t> actors;  // members; or source, destination
  std::vector<std::uint32_t> ports;   // of those actors
};

class Generator {
 public:
  Generator(std::uint64_t seed, const RandomOptions& options)
      : random_(seed), options_(options), built_(std::make_unique<MachineBuilder>()) {}

  std::unique_ptr<MachineBuilder> build() {
    actors_ = 1 + pick(4);
    streams_ = 1 + pick(4);
    plan_edges();
    if (options_.inboxes) plan_inbox();
    for (std::uint32_t a = 0; a < actors_; ++a) {
      programs_.push_back(&built_->program(std::vector<std::string>(streams_, "s")));
      fill_tables(*programs_.back());
    }
    const std::uint32_t blocks = 1 + pick(3);
    for (std::uint32_t b = 0; b < blocks; ++b) {
      if (b > 0)
        for (ProgramBuilder* program : programs_)
          program->block();
      for (std::uint32_t events = pick(options_.solos ? 60 : 7); events > 0; --events)
        add_event();
    }
    for (std::uint32_t calls = 1 + pick(4); calls > 0; --calls)
      call(pick(blocks));
    if (options_.repeats) repeat_calls(blocks);
    if (options_.mistakes && pick(5) == 0) make_mistake();
    connect();
    return std::move(built_);
  }

 private:
  std::uint32_t pick(std::uint64_t bound) {
    return static_cast<std::uint32_t>(random_.below(bound));
  }

  void call(std::uint32_t block) {
    for (ProgramBuilder* program : programs_)
      program->call(block);
  }

  void repeat_calls(std::uint32_t blocks) {
    for (std::uint32_t runs = 1 + pick(2); runs > 0; --runs) {
      std::vector<std::uint32_t> unit(1 + pick(3));
      for (std::uint32_t& block : unit)
        block = pick(blocks);
      for (std::uint32_t times = 5 + pick(60); times > 0; --times)
        for (const std::uint32_t block : unit)
          call(block);
    }
  }

  void plan_edges() {
    std::vector<std::uint32_t> next_port(actors_ * 2);  // communicators, then channels
    for (std::uint32_t count = 1 + pick(2); count > 0; --count) {
      Edge edge;
      for (std::uint32_t a = 0; a < actors_; ++a)
        if (pick(3) != 0) edge.actors.push_back(a);
      if (edge.actors.empty()) edge.actors.push_back(pick(actors_));
      for (std::uint32_t a : edge.actors)
        edge.ports.push_back(next_port[a]++);
      edges_.push_back(edge);
    }
    for (std::uint32_t a = 0; options_.solos && a < actors_; ++a)
      for (int count = 0; count < 2; ++count)
        own_edges_.push_back({.actors = {a}, .ports = {next_port[a]++}});
    for (std::uint32_t count = pick(3); count > 0; --count) {
      Edge edge{.channel = true, .actors = {pick(actors_), pick(actors_)}, .ports = {}};
      edge.ports.push_back(next_port[actors_ + edge.actors[0]]++);
      edge.ports.push_back(
          edge.actors[0] == edge.actors[1] ? edge.ports[0] : next_port[actors_ + edge.actors[1]]++);
      edges_.push_back(edge);
    }
  }

  // Some actors have a channel each to one of them, behind all others.
  void plan_inbox() {
    listener_ = pick(actors_);
    for (std::uint32_t a = 0; a < actors_; ++a)
      if (a != listener_ && pick(3) != 0) speakers_.push_back(a);
    if (!speakers_.empty()) first_ = 1 + pick(speakers_.size());
  }

  bool add_round() {
    if (speakers_.empty()) return false;
    for (const std::uint32_t a : speakers_) {
      programs_[a]->send("say", static_cast<int>(pick(streams_)), port_of_speaker(a),
                         pick(kTransfers));
      decorate(*programs_[a]);
    }
    for (std::uint32_t i = 0; i < first_; ++i) {
      programs_[listener_]->hear("hear", static_cast<int>(pick(streams_)), 0);
      decorate(*programs_[listener_]);
    }
    return true;
  }

  std::uint32_t port_of_speaker(std::uint32_t actor) const {
    std::uint32_t port = 0;
    for (const Edge& edge : edges_)
      if (edge.channel && (edge.actors[0] == actor || edge.actors[1] == actor)) ++port;
    return port;
  }

  void fill_tables(ProgramBuilder& builder) {
    Program& program = builder.program();
    for (std::uint32_t k = 0; k < kKernels; ++k)
      builder.times().kernel.push_back(Duration(pick(4) == 0 ? 0 : pick(20)));
    // Kernels that mind a loss of units not at all, less, just as much and more than their share.
    // Chosen by the lengths, so that the rest of the machine is what it was without weights.
    std::int64_t mixed = 0;
    for (const Duration length : builder.times().kernel)
      mixed = 7 * mixed + length.count();
    if (options_.slow_downs && mixed % 2 == 0) {
      constexpr std::array<std::uint16_t, 5> kWeights = {0, 77, 256, 300, 700};
      for (std::size_t k = 0; k < kKernels; ++k)
        builder.times().weight.push_back(
            kWeights[(static_cast<std::size_t>(mixed) + 3 * k) % kWeights.size()]);
    }
    for (std::uint32_t s = 0; s < 3; ++s) {
      program.segments.edit().push_back(
          {static_cast<std::uint32_t>(program.kernels.size()), pick(4)});
      for (std::uint32_t k = 0; k < program.segments.back().kernels; ++k)
        program.kernels.edit().push_back(pick(kKernels));
    }
    if (options_.solos) program.pools = pick(8);
    for (std::uint32_t r = pick(3); r > 0; --r)
      builder.resident(pick(30), static_cast<std::uint8_t>(pick(3)), pick(2));
  }

  // One thing that happens, written into the programs of all it concerns; in this order nothing can
  // get stuck, on whatever streams it is.
  void add_event() {
    if (options_.inboxes && pick(3) == 0 && add_round()) return;
    if (pick(2) == 0) {
      const std::uint32_t a = pick(actors_);
      programs_[a]->again("c", static_cast<int>(pick(streams_)), pick(3));
      decorate(*programs_[a]);
      return;
    }
    const bool own = options_.solos && pick(6) != 0;
    const Edge& edge = own ? own_edges_[pick(own_edges_.size())] : edges_[pick(edges_.size())];
    const std::uint32_t transfer = pick(kTransfers);
    for (std::size_t i = 0; i < edge.actors.size(); ++i) {
      ProgramBuilder& program = *programs_[edge.actors[i]];
      const auto stream = static_cast<int>(pick(streams_));
      if (!edge.channel)
        program.collective("x", stream, edge.ports[i], transfer);
      else if (i == 0)
        program.send("s", stream, edge.ports[i], transfer);
      else
        program.receive("r", stream, edge.ports[i], transfer);
      decorate(program);
    }
  }

  void decorate(ProgramBuilder& program) {
    Op& op = program.program().blocks.edit().back().ops.back();
    op.waits = pick(1U << streams_) & pick(1U << streams_) & ~(1U << op.stream);
    if (options_.solos && pick(4) != 0) op.waits = ((1U << streams_) - 1) & ~(1U << op.stream);
    if (options_.launches) op.launches = pick(4);
    if (options_.calls) op.call = Duration(pick(6));
    if (options_.drains) op.drained = op.kind == OpKind::compute && pick(3) == 0;
    for (std::uint32_t e = pick(3); e > 0; --e)
      program.memory(static_cast<std::int64_t>(pick(41)) - 20, static_cast<std::uint8_t>(pick(3)),
                     pick(2));
  }

  void make_mistake() {
    Program& program = programs_[pick(actors_)]->program();
    std::vector<Op>& ops = program.blocks.edit()[pick(program.blocks.size())].ops;
    if (ops.empty()) return;
    const std::uint32_t at = pick(ops.size());
    switch (pick(3)) {
      case 0: ops.erase(ops.begin() + at); break;
      case 1: std::swap(ops[at], ops[pick(ops.size())]); break;
      default:
        if (ops[at].kind != OpKind::compute) ops[at].subject = pick(kTransfers);
    }
  }

  std::vector<Transfer> table() {
    std::vector<Transfer> transfers(kTransfers);
    for (Transfer& transfer : transfers) {
      transfer.latency = Duration(pick(3) == 0 ? 0 : pick(10));
      transfer.bytes = Bytes(pick(4) == 0 ? 0 : pick(30));
      if (transfer.bytes > Bytes{})
        transfer.rate =
            50'000'000'000 + static_cast<std::int64_t>(random_.below(3'000'000'000'000));
      if (options_.slow_downs && pick(2) == 0) transfer.units_taken = static_cast<int>(pick(4));
    }
    return transfers;
  }

  Path path() {
    Path result;
    for (std::uint32_t l = 0; l < links_; ++l)
      if (pick(2) == 0) result.push_back({LinkId{l}, static_cast<std::int32_t>(1 + pick(2))});
    return result;
  }

  // Their ports are behind those of the shared ones. Each has all copies of its actor as members.
  void connect_own(const std::vector<std::vector<ActorId>>& copies) {
    for (const Edge& edge : std::exchange(own_edges_, {})) {
      std::vector<ActorId> members;
      for (const std::vector<ActorId>& ids : copies)
        members.push_back(ids[edge.actors.front()]);
      built_->communicator(members, table());
    }
  }

  void make_actors(std::vector<ActorId>& ids, int copy) {
    for (ProgramBuilder* program : programs_) {
      ids.push_back(built_->actor(*program));
      Actor& actor = (*built_)[ids.back()];
      if (copy == 0) {
        if (options_.slow_downs) actor.units = static_cast<int>(1 + pick(4));
        if (options_.launches && pick(2) == 0) actor.launch = Duration(pick(8));
        continue;
      }
      const Actor& first = (*built_)[ActorId{static_cast<std::uint32_t>(ids.size() - 1)}];
      actor.units = first.units;
      actor.launch = first.launch;
      if (pick(8) == 0) actor.launch += Duration(1);  // one that is not like the others
    }
  }

  void connect_edge(const Edge& edge, const std::vector<ActorId>& ids) {
    const bool flows = options_.flows && pick(2) == 0;
    if (edge.channel) {
      built_->channel(ids[edge.actors[0]], ids[edge.actors[1]], table(), flows ? path() : Path{});
      return;
    }
    std::vector<ActorId> members;
    for (std::uint32_t a : edge.actors)
      members.push_back(ids[a]);
    std::vector<Path> paths(flows ? 1 + pick(3) : 0);
    for (Path& p : paths)
      p = path();
    built_->communicator(members, table(), paths);
  }

  // Of the last copies of an edge, so that they mostly stay in step.
  void share_terms(const Edge& edge, std::size_t copies) {
    Machine& machine = built_->machine();
    const auto share = [&](auto& edges, auto last) {
      const auto first = static_cast<std::uint32_t>(edges.size() - copies);
      for (std::uint32_t i = first + 1; i < edges.size(); ++i)
        edges[decltype(last){i}].transfers = edges[decltype(last){first}].transfers;
    };
    if (edge.channel)
      share(machine.channels, ChannelId{});
    else
      share(machine.communicators, CommunicatorId{});
  }

  void connect() {
    links_ = 1 + pick(4);
    for (std::uint32_t l = 0; l < links_; ++l)
      built_->link(100'000'000'000 + static_cast<std::int64_t>(random_.below(3'000'000'000'000)));
    std::vector<std::vector<ActorId>> copies(options_.copies ? 1 + pick(3) : 1);
    for (std::size_t copy = 0; copy < copies.size(); ++copy)
      make_actors(copies[copy], static_cast<int>(copy));
    for (const Edge& edge : edges_) {
      if (edge.channel) connect_own(copies);
      for (const std::vector<ActorId>& ids : copies)
        connect_edge(edge, ids);
      if (copies.size() > 1 && pick(5) != 0) share_terms(edge, copies.size());
    }
    connect_own(copies);
    std::vector<ChannelId> heard;
    for (const std::uint32_t a : speakers_)
      heard.push_back(built_->channel(copies[0][a], copies[0][listener_], table(),
                                      options_.flows && pick(2) == 0 ? path() : Path{}));
    if (!heard.empty()) built_->inbox(heard, first_);
  }

  SplitMix64 random_;
  RandomOptions options_;
  std::unique_ptr<MachineBuilder> built_;
  std::uint32_t actors_ = 0, streams_ = 0, links_ = 0;
  std::vector<Edge> edges_, own_edges_;  // own: two of each actor, with no other members
  std::uint32_t listener_ = 0, first_ = 0;
  std::vector<std::uint32_t> speakers_;
  std::vector<ProgramBuilder*> programs_;
};

}  // namespace

std::unique_ptr<MachineBuilder> random_machine(std::uint64_t seed, const RandomOptions& options) {
  return Generator(seed, options).build();
}

}  // namespace trainyard::testing
