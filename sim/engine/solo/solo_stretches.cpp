#include "sim/engine/solo/solo_stretches.h"

#include <bit>
#include <optional>

namespace trainyard::engine {
namespace {

// Where the head of a stream has begun that runs behind what was told. Requires: it has.
const SoloTable::Told& begin_of(const SoloTable& table, std::uint32_t behind, int stream) {
  while (table.told[--behind].stream != stream) {
  }
  return table.told[behind];
}

std::optional<SoloStretch> make(const SoloKind& kind, const SoloTable& table, std::uint32_t entry,
                                bool has_begun, std::uint32_t behind) {
  SoloStretch stretch;
  stretch.begin = table.told[entry].at;
  stretch.runs = table.told[behind - 1].runs;
  std::size_t nth = 0;
  for (std::uint32_t bits = stretch.runs; bits != 0; bits &= bits - 1) {
    const SoloTable::Told& begun = begin_of(table, behind, std::countr_zero(bits));
    if (begun.slowed) return std::nullopt;
    stretch.running[nth++] = {begun.at, table.end[begun.op]};
  }
  const std::uint32_t first = has_begun ? entry + 1 : entry;
  stretch.effect = solo_effect(kind, table, first, behind, stretch.begin);
  for (std::uint32_t i = first; i < behind; ++i)
    if (table.told[i].ends) stretch.ended = table.told[i].at;
  return stretch;
}

}  // namespace

const SoloStretch* SoloStretches::find(const SoloKind& kind, const SoloTable& table,
                                       std::uint32_t entry, bool has_begun, std::uint32_t behind) {
  const std::uint64_t key = std::uint64_t{entry} << 33 | std::uint64_t{behind} << 1 |
                            static_cast<std::uint64_t>(has_begun);
  const auto known = known_.find(key);
  if (known != known_.end()) return &known->second;
  if (known_.size() >= kMost) return nullptr;
  std::optional<SoloStretch> made = make(kind, table, entry, has_begun, behind);
  return made ? &known_.emplace(key, *std::move(made)).first->second : nullptr;
}

}  // namespace trainyard::engine
