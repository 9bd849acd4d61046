// The trace as lanes of named slices, for pictures and for Perfetto: the engine's indices resolved
// to words.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "sim/base/units.h"
#include "sim/simulate/report/step_report.h"

namespace trainyard::simulate {

// What a slice is coloured by.
enum class SliceKind : std::uint8_t {
  forward,
  backward,
  recompute,
  optimizer,  // kernels
  tensor,
  context,
  expert,
  data,
  pipeline,  // communication by group
  host_copy,
  input,
  other,
};
inline constexpr std::size_t kSliceKinds = 12;
std::string_view name(SliceKind kind);

struct Slice {
  Duration begin{}, end{};
  Duration active{};       // communication: when the transfer began to move (waiting before)
  std::uint32_t name = 0;  // into Timeline::names: "layer 5 fc1", "all-reduce bucket 3"
  SliceKind kind = SliceKind::other;
  std::int32_t microbatch = -1;  // -1: none
  std::int32_t chunk = 0;
  std::int64_t bytes = 0;  // communication: the whole buffer
  std::int32_t peer = -1;  // send, receive: the other rank
  std::uint64_t flow = 0;  // nonzero: joins a send to its receive
};

struct Lane {
  int rank = 0;
  int stage = 0;
  std::string role{};         // whose lane it is, if it is no rank's: "parameter server"
  std::string stream;         // "compute", "tensor parallel", "data parallel", "send", "receive"
  std::vector<Slice> slices;  // sorted, disjoint
};

struct MemorySample {
  Duration at{};
  std::array<std::int64_t, plan::kMemoryKinds> bytes{};  // live after this instant
};

struct MemoryCurve {
  int rank = 0;
  Bytes capacity;
  std::vector<MemorySample> samples;  // at most one per instant; first at 0 = resident
};

struct Timeline {
  Duration end{};
  std::vector<std::string> names;
  std::vector<Lane> lanes;  // by rank, then stream
  std::vector<MemoryCurve> memory;
  std::vector<int> ranks_shown;
  // What TimelineLimits::ops leaves out: ranks, the stage of each, and their ops.
  std::vector<int> ranks_left_out, stages_left_out;
  std::uint64_t ops_left_out = 0;
  int ranks_total = 0;  // of which lanes show representatives
};

}  // namespace trainyard::simulate
