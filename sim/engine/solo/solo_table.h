// When the ops of a solo begin, and in which legs what happens in it can be taken as a whole.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "sim/engine/memory_accounts.h"
#include "sim/engine/solo/solo_run.h"
#include "sim/engine/solo/solos.h"

namespace trainyard::engine {

// Numbers of legs, the same for all that differ in nothing that can be told of them: their ops,
// with their kernels and streams, begin and end at the same times from the begin of the leg.
class LegIds {
 public:
  // Of all legs of a run.
  explicit LegIds(std::uint32_t& next) : next_(next) {}
  std::uint32_t of(std::vector<std::int64_t> ops) {
    const auto [known, is_new] = ids_.try_emplace(std::move(ops), next_);
    if (is_new) ++next_;
    return known->second;
  }

 private:
  std::uint32_t& next_;
  std::map<std::vector<std::int64_t>, std::uint32_t> ids_;
};

// What some ops of a solo, which come one after another, leave behind.
struct SoloEffect {
  struct Lane {
    std::uint32_t stream = 0, until = 0;  // behind its last op, into CompiledProgram::ops
  };
  std::vector<Lane> lanes;  // streams of which ops end
  struct Collectives {
    std::uint32_t op = 0, count = 0;  // one of them, into CompiledProgram::ops
  };
  std::vector<Collectives> collectives;  // that end, by communicator
  MemoryCourse memory;
  std::uint64_t told = 0;  // how often SoloRun tells of one that begins or ends
};

// From the begin of an op to that of a later one of its stream, which begins when that stream's op
// before it ends, or to the end of the solo. At both nothing else of the solo runs.
struct SoloLeg {
  static constexpr std::uint32_t kNone = 0xFFFFFFFF;

  std::uint32_t id = 0;               // LegIds
  std::uint32_t first = 0, next = 0;  // these ops, into CompiledProgram::ops; kNone: there is none
  Duration begin{}, end{};            // from that of the solo
  SoloEffect effect;
  std::vector<std::uint32_t> last;  // Leg::last, in the order of its lanes
};

struct SoloTable {
  // What SoloRun tells of an op.
  struct Told {
    Duration at{};         // from the begin of the solo
    std::uint32_t op = 0;  // of the solo, in the order of the program
    std::uint8_t stream = 0;
    bool ends = false;
    bool slowed = false;     // of its begin: it has a clock, as a transfer may take units from it
    std::uint32_t runs = 0;  // bit s: an op of stream s runs from then on
  };

  Duration length{};
  std::vector<std::uint32_t> ops;  // in the order of the program, into CompiledProgram::ops
  std::vector<Duration> begin;     // by op of the solo, in the order of the program, from its begin
  std::vector<Duration> end;       // the same
  std::vector<Duration> lead;  // the latest that the host is done with it or a later one, before
                               // these begin; from the begin of the call
  std::vector<Told> told;      // of all ops, as they come
  std::vector<std::uint32_t> told_begin;  // by op: where its begin is told
  std::vector<SoloLeg> legs;              // in order, without gaps, where somebody is told of them

  // Behind the last of what is told so long after the begin, from `from` on; what begins then is
  // not, unless the solo is over.
  std::uint32_t find_behind(std::uint32_t from, Duration until) const {
    if (until >= length) return static_cast<std::uint32_t>(told.size());
    auto behind = std::partition_point(told.begin() + from + 1, told.end(),
                                       [&](const Told& one) { return one.at < until; });
    while (behind != told.end() && behind->at == until && behind->ends)
      ++behind;
    return static_cast<std::uint32_t>(behind - told.begin());
  }
  // The begin of the op of a stream that runs then. Requires: one does.
  const Told& begin_of(int stream, std::uint32_t behind) const {
    while (told[behind - 1].stream != stream)
      --behind;
    return told[behind - 1];
  }
};

// Of what the table tells of in [first, behind), in times from `begin` on.
// Requires: nothing before `first` has an effect behind it.
SoloEffect solo_effect(const SoloKind& kind, const SoloTable& table, std::uint32_t first,
                       std::uint32_t behind, Duration begin);

// Of a kind's solo; `ids`: of the kind, null where nobody is told of legs.
SoloTable solo_table(const SoloKind& kind, std::uint32_t solo, LegIds* ids);

}  // namespace trainyard::engine
