#include "sim/simulate/report/actor_spans.h"

namespace trainyard::simulate {

using engine::MemoryChange;

std::vector<MemoryChange> changes_to_peak(const engine::Trace& trace, engine::ActorId actor) {
  const engine::MemoryPeak& peak = trace.peaks[actor];
  std::int64_t level = peak.resident.count();
  std::vector<MemoryChange> changes;
  for (const MemoryChange& change : trace.memory) {
    if (level == peak.peak.count()) break;
    if (change.actor != actor) continue;
    level += change.bytes;
    changes.push_back(change);
  }
  return changes;
}

}  // namespace trainyard::simulate
