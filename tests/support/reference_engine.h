// A second engine, written to be obvious and not to be fast: every op is an object, every instant
// looks at all of them, and rates, memory and flows are worked out anew each time. It shares the
// headers of the engine's contract with the real one and nothing else.
#pragma once

#include <vector>

#include "sim/engine/machine.h"
#include "sim/engine/trace.h"
#include "tests/support/rooms.h"

namespace trainyard::testing {

struct ReferenceResult {
  bool finished = false;
  Duration last{};                  // when the last op began or ended
  std::vector<Span> spans;          // of ended ops, sorted by (actor, stream, program order)
  std::vector<KernelSpan> kernels;  // of ended ops, sorted by (actor, call, op, kernel)
  std::vector<MemoryPeak> peaks;    // by actor
  std::vector<Waiting> waiting;     // heads of unfinished streams, without the texts
};

ReferenceResult run_reference(const Machine& machine);

// Max-min rates round by round over all links and flows, as the definition reads.
std::vector<std::int64_t> reference_rates(const std::vector<std::int64_t>& capacity,
                                          const std::vector<Path>& paths,
                                          const std::vector<std::int64_t>& limits);

}  // namespace trainyard::testing
