// The timeline as a Perfetto trace (ui.perfetto.dev, trace_processor): one process per rank, one
// track per rank and stream, flows from each send to its receive, memory as counters.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "sim/simulate/report/timeline.h"

namespace trainyard::report {

// The bytes of a perfetto.protos.Trace. Its clock counts nanoseconds: begins and ends are both
// rounded down, so slices of a track stay disjoint. Packets are in order of time.
std::string perfetto_trace(const simulate::Timeline& timeline, std::string_view title);

// Several variants in one trace, on one clock: a variant's processes carry its name and come after
// those of the variants before it. Each of their tracks is a packet sequence of its own.
struct NamedTimeline {
  std::string_view name;
  const simulate::Timeline* timeline = nullptr;
};
std::string perfetto_trace(std::span<const NamedTimeline> variants, std::string_view title);

}  // namespace trainyard::report
