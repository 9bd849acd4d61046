#include "sim/engine/solo/solo_stretches.h"

#include <bit>

namespace trainyard::engine {
namespace {

struct Nobody {
  void begin(const SoloRun::Lane& /*lane*/, Duration /*now*/) {}
  void end(const SoloRun::Lane& /*lane*/) {}
};

SoloStretch make(const SoloKind& kind, std::uint32_t solo, const SoloTable& table,
                 const SoloStretches::Cut& cut) {
  SoloStretch stretch;
  const SoloTable::Told& entry = table.told[cut.entry];
  stretch.begin = entry.at;
  stretch.runs = table.told[cut.behind - 1].runs;
  bool is_slowed = false;
  std::size_t nth = 0;
  for (std::uint32_t bits = stretch.runs; bits != 0; bits &= bits - 1) {
    const SoloTable::Told& begun = table.begin_of(std::countr_zero(bits), cut.behind);
    is_slowed |= begun.slowed;
    stretch.running[nth++] = {begun.at, table.end[begun.op]};
  }
  if (is_slowed) {
    const Duration last = table.told[cut.behind - 1].at;
    SoloRun run(kind, solo, table.ops[entry.op], entry.at);
    Nobody nobody;
    run.run(cut.at_last ? last : last + Duration(1), nobody);
    stretch.slowed = std::make_unique<const SoloRun>(run);
  }
  const std::uint32_t first = cut.entry + (cut.has_begun ? 1 : 0);
  stretch.effect = solo_effect(kind, table, first, cut.behind, stretch.begin);
  for (std::uint32_t i = first; i < cut.behind; ++i)
    if (table.told[i].ends) stretch.ended = table.told[i].at;
  return stretch;
}

}  // namespace

const SoloStretch* SoloStretches::find(const SoloKind& kind, std::uint32_t solo,
                                       const SoloTable& table, const Cut& cut, std::size_t& left) {
  const auto known = known_.find(cut);
  if (known != known_.end()) return &known->second;
  if (left == 0) return nullptr;
  --left;
  return &known_.emplace(cut, make(kind, solo, table, cut)).first->second;
}

}  // namespace trainyard::engine
