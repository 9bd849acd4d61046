// A Program laid out for running, shared by all actors that run it: ops by stream, and every count
// that the engine compares against (ended ops, launches, sequence numbers) as a prefix within the
// block plus a base per call, so that an actor keeps a few words per stream and nothing per op.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "sim/engine/machine.h"
#include "sim/engine/program.h"

namespace trainyard::engine {

struct CompiledOp {
  OpKind kind = OpKind::compute;
  std::uint8_t stream = 0;
  bool takes = false, releases = false;  // has memory effects at its begin, at its end
  // As in Op, but for streams without ops and for what earlier ops of its stream waited for.
  std::uint32_t waits = 0;
  std::uint32_t index = 0;    // in the block
  std::uint32_t subject = 0;  // compute: into works; else as in Op
  std::uint32_t port = 0;
  std::uint32_t column = 0;    // of sequence_base: its kind and port
  std::uint32_t sequence = 0;  // earlier ops of the block in this column
  std::uint32_t launches = 0;
  std::uint64_t launches_before = 0;  // in the block
  Duration calls_before{};            // Op::call of this op and of earlier ones of the block
  std::uint32_t first_threshold =
      0;  // one per bit of waits, lowest first: earlier ops on that stream
  std::uint32_t first_effect = 0, effects = 0;
  bool drained = false;      // as in Op
  bool has_kernels = false;  // computes, and not nothing
  bool enters_solo = false;  // of some actor
};

// A segment as some op enqueues it.
struct Work {
  std::uint32_t segment = 0;
  std::uint32_t launches = 0;
};

// What the host does to enqueue a block.
struct HostWork {
  std::uint64_t launches = 0;
  Duration calls{};
};

// How long a Work takes on a kind of actor that nothing slows down.
struct WorkTime {
  Duration total{};  // sum of the kernels
  Duration
      host{};  // from the last launch of earlier ops to the end, if only the host holds kernels up
};

// When the host enqueues a program with launches of one length.
struct HostTimes {
  // From the begin of the op's call to when the host begins with its launches, to when it has done
  // the first and to when it has done all.
  struct OfOp {
    Duration from{}, issued{}, done{};
  };
  std::vector<Duration> call;  // when it begins with the call
  std::span<const OfOp> op;    // as CompiledProgram::ops
};

// Where a stream is: the next op, and the end of that stream's ops in the call's block.
struct Position {
  std::uint32_t call = 0, at = 0, last = 0;
};

// All of a program but the order in which its blocks are called.
struct CompiledCode {
  static constexpr std::uint32_t kNoPort = 0xFFFFFFFF;
  static constexpr std::uint32_t kUnused = 0xFFFFFFFF;

  explicit CompiledCode(const Program& source);

  std::uint32_t streams = 0;
  std::uint32_t columns = 0;
  std::vector<CompiledOp> ops;              // by block, stream, program order
  std::vector<std::uint32_t> stream_begin;  // [block * (streams + 1) + stream], into ops
  std::vector<std::uint32_t> thresholds;
  std::vector<Work> works;
  std::vector<std::uint32_t> collective_ports;  // [column]; kNoPort: of other ops
  std::vector<std::uint32_t> column;            // by column_of(); kUnused: no op has it
  std::vector<std::uint32_t> counts;            // [block * columns + column]: ops per block
  std::vector<HostWork> host;                   // by block

  // When the host enqueues the ops of a block that it begins with at once.
  std::vector<HostTimes::OfOp> host_times(Duration launch) const;

 private:
  void compile_block(const Program& source, const Block& block, std::uint32_t busy);
  std::uint32_t work(std::uint32_t segment, std::uint32_t launches);

  std::vector<std::vector<std::uint32_t>> works_of_segment_;
};

struct CompiledProgram {
  static constexpr std::uint32_t kNoPort = CompiledCode::kNoPort;

  explicit CompiledProgram(const Program& source)
      : CompiledProgram(source, std::make_shared<CompiledCode>(source)) {}
  // Requires: `shared` is of a program that has same_code().
  CompiledProgram(const Program& source, std::shared_ptr<CompiledCode> shared);

  const Program* program;
  std::shared_ptr<CompiledCode> code;
  // Those of the code.
  std::uint32_t streams, columns;
  std::span<const CompiledOp> ops;
  std::span<const std::uint32_t> stream_begin, thresholds;
  std::span<const Work> works;
  std::span<const std::uint32_t> collective_ports;

  std::vector<std::uint32_t> ended_base;   // [call * streams + stream]
  std::vector<std::uint64_t> launch_base;  // [call]
  std::vector<Duration> call_base;         // [call]
  std::int64_t all_launches = 0;
  Duration all_calls{};
  std::vector<std::uint32_t> sequence_base;  // [call * columns + column]
  std::vector<std::uint32_t> stream_ops;     // [stream], in all calls

  // The first op of `stream` in `call` or a later one; call == number of calls if there is none.
  Position seek(std::uint32_t stream, std::uint32_t call) const;
  std::uint32_t sequence(std::uint32_t call, const CompiledOp& op) const {
    return sequence_base[std::size_t{call} * columns + op.column] + op.sequence;
  }
  // The stream of the op of column_of() `number` with this sequence number;
  // false if the program has none. O(log calls + ops of a block).
  bool find(std::uint32_t number, std::uint32_t sequence, std::uint32_t& stream) const;

  // Ops of a stream in earlier calls.
  std::uint32_t ops_before(std::uint32_t call, std::uint32_t stream) const {
    return call < program->calls.size() ? ended_base[std::size_t{call} * streams + stream]
                                        : stream_ops[stream];
  }
  // When the host is done with earlier calls.
  Duration enqueued_before(std::uint32_t call, Duration launch) const {
    return call < program->calls.size()
               ? static_cast<std::int64_t>(launch_base[call]) * launch + call_base[call]
               : all_launches * launch + all_calls;
  }

  // When the host begins with each call. Refuses launches of which all that is ever enqueued takes
  // too long.
  std::vector<Duration> call_times(Duration launch) const;
  std::vector<WorkTime> work_times(const KernelTimes& times, Duration launch) const;

 private:
  void compile_calls();
};

// Columns of sequence_base, before those are left out that no op has: so many for every port
// number, one for each kind of op that is matched by its number.
inline constexpr std::uint32_t kColumns = 4;
// Requires: no computation.
constexpr std::uint32_t column_of(OpKind kind, std::uint32_t port) {
  return port * kColumns + (kind == OpKind::collective ? 0U
                            : kind == OpKind::send     ? 1U
                            : kind == OpKind::receive  ? 2U
                                                       : 3U);
}

}  // namespace trainyard::engine
