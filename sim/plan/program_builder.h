// Writes one stage's program: turns work items into ops and keeps the program's tables free of
// repeats.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "models/layer/layer_work.h"
#include "sim/engine/program.h"
#include "sim/plan/cast.h"
#include "sim/plan/label_index.h"
#include "sim/plan/stage_connections.h"

namespace trainyard::plan {

// A set of streams: bit s for stream s.
using StreamSet = std::uint32_t;

constexpr StreamSet stream_bit(StreamKind stream) {
  return static_cast<StreamSet>(1U << static_cast<unsigned>(stream));
}

// The streams on which the groups of a layer talk: what follows from a layer waits for them.
inline constexpr StreamSet kLayerStreams = stream_bit(StreamKind::tensor) |
                                           stream_bit(StreamKind::context) |
                                           stream_bit(StreamKind::expert);

// On which a stage sends to others: those of every pipeline, and those of pipelines whose messages
// go both ways.
inline constexpr StreamSet kSends =
    stream_bit(StreamKind::send_forward) | stream_bit(StreamKind::send_backward);
inline constexpr StreamSet kSendsUp =
    stream_bit(StreamKind::send_forward_up) | stream_bit(StreamKind::send_backward_up);

// What a layer has given the next: its kernels and what they waited for.
inline constexpr StreamSet kLayerTails = stream_bit(StreamKind::compute) | kLayerStreams;

class ProgramBuilder {
 public:
  // Kernels and transfers are added to the tables of `cast`, which all roles share; both must
  // outlive the builder.
  ProgramBuilder(Cast& cast, StageConnections& connections);

  StageConnections& connections() { return connections_; }

  void begin_block();
  std::uint32_t end_block();  // its index in Program::blocks

  // The next compute op waits for all of `streams` so far.
  void compute_waits_for(StreamSet streams) {
    pending_waits_ = static_cast<StreamSet>(pending_waits_ | streams);
  }
  // The compute stream takes the waits asked for so far at once, as an op without kernels, so that
  // its next kernel does not wait for what is enqueued from here on.
  void settle_waits(const std::string& label);
  // Bytes held from the next compute op's begin until release() names the same owner and category.
  void hold(MemoryKind kind, Bytes bytes, const std::string& owner);
  // Given back when the last compute op of the block so far ends.
  void release(MemoryKind kind, Bytes bytes, const std::string& owner);
  void resident(MemoryKind kind, Bytes bytes, const std::string& owner);
  // The same for the op written last, whatever it is: taken when it begins, given back when it
  // ends.
  void last_takes(MemoryKind kind, Bytes bytes, const std::string& owner);
  void last_gives_back(MemoryKind kind, Bytes bytes, const std::string& owner);

  // Kernels become segments, which end where a collective stands; `where` begins each label. A
  // segment that begins or ends with a repeated kernel belongs to OpGroup::recompute. `drained`:
  // the host enqueues the last segment when all before it have ended.
  void work(std::span<const models::WorkItem> items, const std::string& where, OpGroup group,
            PairPart part = PairPart::backward, bool drained = false);
  // The same of items that outlive the builder, which are looked at once for all layers that have
  // them.
  void layer_work(std::span<const models::WorkItem> items, const std::string& where, OpGroup group,
                  PairPart part);
  // Kernels of `group` on a stream of their own choice, after the tails of `waits`.
  void work_beside(StreamKind stream, const std::vector<models::NamedKernel>& kernels,
                   StreamSet waits, OpGroup group, const std::string& label);
  // A compute op without kernels, if the block has none yet or none that holds what hold() asked
  // for.
  void settle(const std::string& label);
  // A collective, or a meeting, on a stream of its own choice, after the tails of `waits`.
  // `launches`: of the host; 0 where another thread than the script's calls it.
  void collective(StreamKind stream, ConnectionId connection, const TransferSpec& spec,
                  StreamSet waits, const std::string& label, PairPart part = PairPart::backward,
                  std::uint32_t launches = 1);
  // A transfer of this rank alone, after the tails of `waits`.
  void host_transfer(HostTransfer transfer, Bytes bytes, StreamSet waits, const std::string& label);
  // An op without work: what `stream` is given from here on comes after the tails of `waits`, and
  // after so many launches of the host.
  void mark(StreamKind stream, StreamSet waits, const std::string& label,
            std::uint32_t launches = 0);
  // On the connection's stream, after the tails of `waits`.
  void send(ConnectionId connection, Bytes bytes, const std::string& label,
            PairPart part = PairPart::backward, StreamSet waits = kLayerTails);
  // Of a connection that hears the first (Connection::heard_first): another one, from whomever.
  void receive(ConnectionId connection, Bytes bytes, const std::string& label,
               PairPart part = PairPart::backward);

  void call(std::uint32_t block, std::uint32_t tag);
  // Streams behind the last one that is used or waited for are left out.
  engine::Program finish();

 private:
  // What work() has made of some items, behind the waits that were asked for.
  struct ScriptKey {
    const models::WorkItem* items = nullptr;
    std::size_t count = 0;
    OpGroup group = {};
    PairPart part = {};
    StreamSet waits = 0;
    auto operator<=>(const ScriptKey&) const = default;
  };
  struct Script {
    struct Written {
      engine::Op op;
      bool is_named = false;   // its label tells where the layer is, and `what`
      bool may_hold = false;   // takes what hold() asked for, if no op before it has
      std::uint32_t what = 0;  // into LabelIndex
    };
    // Of ops that were written for the layer at `where`.
    Script(std::span<const engine::Op> of, const engine::Program& program, const LabelIndex& labels,
           std::uint32_t where, StreamSet waits_behind);

    std::vector<Written> ops;
    StreamSet waits = 0;  // that are asked for behind it
  };

  // Labels by their numbers in labels_.
  void flush_segment(std::uint32_t where, OpGroup group, PairPart part);
  void transfer(StreamKind stream, ConnectionId connection, const TransferSpec& spec,
                StreamSet waits, std::uint32_t label, PairPart part, std::uint32_t launches);
  engine::Op& push(engine::Op op, std::uint32_t label);
  engine::MemoryEffect effect(MemoryKind kind, std::int64_t bytes, const std::string& owner);

  Cast& cast_;
  StageConnections& connections_;
  engine::Program program_;
  LabelIndex labels_;
  std::vector<engine::Op> ops_;
  std::vector<std::vector<engine::MemoryEffect>>
      op_effects_;  // of ops_, written to the program at end_block
  std::vector<engine::MemoryEffect> pending_holds_;
  StreamSet pending_waits_ = 0;
  std::vector<std::uint32_t> segment_;  // kernels not yet in an op
  std::uint32_t segment_launches_ = 0;
  const models::NamedKernel* segment_first_ = nullptr;  // of those
  const models::NamedKernel* segment_last_ = nullptr;
  std::map<ScriptKey, Script> scripts_;
};

}  // namespace trainyard::plan
