// What happened: the engine's only output.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "sim/base/ids.h"
#include "sim/base/units.h"
#include "sim/engine/machine.h"

namespace trainyard::engine {

inline constexpr std::size_t kMaxCategories = 12;

// One op as it ran: issued <= begin <= active <= end.
struct Span {
  ActorId actor{};
  std::uint32_t call = 0;  // into Program::calls
  std::uint32_t op = 0;    // into the ops of that call's block
  Duration issued{};       // the host had enqueued its first launch
  Duration begin{};   // it was at the head of its stream, issued, and all it waits for had ended
  Duration active{};  // compute: begin; collective: the last member had begun; send: begin;
                      // receive: the matching send had become active, or begin if that is later
  Duration end{};
  friend bool operator==(const Span&, const Span&) = default;
};

// A kernel of a compute op, in a detailed trace.
struct KernelSpan {
  ActorId actor{};
  std::uint32_t call = 0, op = 0;
  std::uint32_t kernel = 0;  // position in Program::kernels
  Duration begin{}, end{};
};

struct MemoryChange {
  Duration at{};
  ActorId actor{};
  std::uint8_t category = 0;
  std::uint32_t owner = 0;  // into the program's labels
  std::int64_t bytes = 0;   // taken (> 0) or given back (< 0)
};

struct MemoryPeak {
  Bytes peak;     // the most after all changes of an instant
  Duration at{};  // the first such instant
  std::array<std::int64_t, kMaxCategories> by_category{};  // bytes at that instant
  Bytes resident;                                          // before and after the step
  Bytes pooled;  // the most outside of Program::pools and the most of each of them, whenever
  Bytes at_end;  // equals resident unless a program leaks
  // Of actors that are recorded or over their capacity, at that instant: how many ops of each
  // stream had ended, and (bit s) whether the next one of stream s was running.
  std::vector<std::uint32_t> ended{};
  std::uint32_t running = 0;
};

struct Trace {
  Duration end{};                        // the last op's end
  std::vector<Span> spans;               // recorded actors only; sorted by (actor, stream, begin)
  std::vector<KernelSpan> kernels;       // with Record::kernels only
  std::vector<MemoryChange> memory;      // recorded actors only, in time order; not with nothing
  IdVector<ActorId, Duration> finished;  // when each actor's last op ended
  IdVector<ActorId, MemoryPeak> peaks;
  std::uint64_t events = 0;   // begins and ends of ops, and ends of flows
  std::uint64_t skipped = 0;  // of these
  std::uint64_t ops = 0;      // that ran
};

// A rank needs more memory than it has. The step is simulated to its end all the same, so that the
// peak, its owners and the time it would have taken are known.
struct OutOfMemory {
  ActorId actor{};  // the one furthest over its capacity (lowest id among equals)
  Bytes needed, capacity;
  std::vector<MemoryChange> owners;  // live at the peak, summed by (category, owner), largest first
  Trace trace;
};

// Unfinished ops wait for each other; `waiting` says who waits for what, one line per stream.
struct Waiting {
  ActorId actor{};
  std::uint32_t call = 0, op = 0;
  std::string why;  // "waits for 3 of 8 members of communicator 2 (first missing: actor 5)"
};
struct Deadlock {
  Duration at{};
  std::vector<Waiting> waiting;  // sorted by actor, then stream
  std::vector<ActorId> cycle;    // who waits for whom, first == last; empty if a peer simply ended
  Trace trace;                   // up to that moment
};

using Outcome = std::variant<Trace, OutOfMemory, Deadlock>;

enum class Record : std::uint8_t { nothing, ops, kernels };

}  // namespace trainyard::engine
