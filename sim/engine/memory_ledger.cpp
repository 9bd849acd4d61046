#include "sim/engine/memory_ledger.h"

#include "sim/base/check.h"

namespace trainyard {

void MemoryLedger::add_resident(const MemoryEffect& effect) {
  TRAINYARD_CHECK(effect.category < kMaxCategories, "memory category {}", effect.category);
  add(effect.category, effect.bytes);
  peak_.peak = peak_.resident = Bytes(level_);
  peak_.by_category = by_category_;
}

void MemoryLedger::record() {
  peak_.peak = Bytes(level_);
  peak_.at = changed_;
  peak_.by_category = by_category_;
}

MemoryPeak MemoryLedger::result() const {
  MemoryPeak peak = peak_;
  peak.at_end = Bytes(level_);
  return peak;
}

}  // namespace trainyard
