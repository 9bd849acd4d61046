#include "sim/engine/peak_owners.h"

#include <algorithm>
#include <map>
#include <utility>

#include "sim/base/check.h"

namespace trainyard::engine {

std::vector<MemoryChange> owners_of_peak(const Program& program, ActorId actor,
                                         const MemoryPeak& peak) {
  // What stays is the most where nothing that comes and goes is larger.
  TRAINYARD_CHECK(peak.ended.empty() || peak.ended.size() == program.streams.size(),
                  "{} of {} streams are known", peak.ended.size(), program.streams.size());
  std::map<std::pair<std::uint8_t, std::uint32_t>, std::int64_t> live;
  for (const MemoryEffect& effect : program.resident)
    live[{effect.category, effect.owner}] += effect.bytes;
  std::vector<std::uint32_t> left = peak.ended;
  unsigned running = peak.running;
  unsigned unfinished = 0;  // streams of which some op is still to be found
  for (std::size_t s = 0; s < left.size(); ++s)
    if (left[s] > 0 || (running >> s & 1U) != 0) unfinished |= 1U << s;
  for (std::size_t c = 0; c < program.calls.size() && unfinished != 0; ++c) {
    for (const Op& op : program.blocks[program.calls[c].block].ops) {
      const unsigned bit = 1U << op.stream;
      if ((unfinished & bit) == 0) continue;
      const bool ended = left[op.stream] > 0;
      for (std::uint32_t e = op.first_effect; e < op.first_effect + op.effects; ++e) {
        const MemoryEffect& effect = program.effects[e];
        if (effect.bytes > 0 || ended) live[{effect.category, effect.owner}] += effect.bytes;
      }
      if (ended)
        --left[op.stream];
      else
        running &= ~bit;
      if (left[op.stream] == 0 && (running & bit) == 0) unfinished &= ~bit;
    }
  }
  std::vector<MemoryChange> owners;
  for (const auto& [key, bytes] : live) {
    if (bytes == 0) continue;
    owners.push_back({.at = peak.at,
                      .actor = actor,
                      .category = key.first,
                      .owner = key.second,
                      .bytes = bytes});
  }
  std::stable_sort(owners.begin(), owners.end(),
                   [](const MemoryChange& a, const MemoryChange& b) { return a.bytes > b.bytes; });
  return owners;
}

}  // namespace trainyard::engine
