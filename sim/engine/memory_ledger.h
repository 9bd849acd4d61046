// The memory of one actor over time: what it holds, and when it held most.
//
// What counts at an instant is what is held after all of that instant's changes, so that the order in
// which simultaneous ops end and begin cannot show.
#pragma once

#include <array>
#include <cstdint>

#include "sim/base/units.h"
#include "sim/engine/trace.h"

namespace trainyard {

class MemoryLedger {
 public:
  void add_resident(const MemoryEffect& effect);

  // True if the instants before `now` set a new peak, which is then known for good.
  // Requires: `now` never decreases. To be called before the changes of an instant.
  bool settle(Duration now) {
    if (now == changed_ || level_ <= peak_.peak.count()) {
      changed_ = now;
      return false;
    }
    record();
    changed_ = now;
    return true;
  }
  void add(std::uint8_t category, std::int64_t bytes) {
    level_ += bytes;
    by_category_[category] += bytes;
  }
  MemoryPeak result() const;

 private:
  void record();

  Duration changed_{};
  std::int64_t level_ = 0;
  std::array<std::int64_t, kMaxCategories> by_category_{};
  MemoryPeak peak_;
};

}  // namespace trainyard
