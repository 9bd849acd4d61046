// A stretch of time in equal samples.
#pragma once

#include <algorithm>
#include <cstdint>

#include "sim/simulate/monitor/kernel_loads.h"

namespace trainyard::simulate {

class Samples {
 public:
  // Requires: begin < end, interval >= 1 ps.
  Samples(Duration begin, Duration end, Duration interval)
      : begin_(begin), end_(end), interval_(interval) {}

  std::size_t count() const {
    return static_cast<std::size_t>((end_ - begin_ + interval_ - Duration(1)) / interval_);
  }
  Stretch operator[](std::size_t at) const {
    const Duration from = begin_ + static_cast<std::int64_t>(at) * interval_;
    return {from, std::min(end_, from + interval_)};
  }
  // The sample that holds an instant, the last one of the end. Requires: begin <= at <= end.
  std::size_t at(Duration at) const {
    return std::min(count() - 1, static_cast<std::size_t>((at - begin_) / interval_));
  }

  // each(sample, part) for what lies in each sample of a stretch, as far as it lies in them.
  template <class Each>
  void cut(const Stretch& stretch, const Each& each) const {
    const Duration to = std::min(stretch.end, end_);
    Duration from = std::max(stretch.begin, begin_);
    for (std::size_t s = from < to ? at(from) : 0; from < to; ++s) {
      const Stretch part{from, std::min(to, (*this)[s].end)};
      each(s, part);
      from = part.end;
    }
  }
  // add(sample, bytes) of what moves evenly during a stretch, or at once if it takes no time; what
  // lies in the samples adds up to `bytes`.
  template <class Add>
  void spread(std::int64_t bytes, const Stretch& stretch, const Add& add) const {
    if (stretch.begin == stretch.end) {
      if (begin_ <= stretch.begin && stretch.begin <= end_) add(at(stretch.begin), bytes);
      return;
    }
    const Duration whole = stretch.end - stretch.begin;
    cut(stretch, [&](std::size_t sample, const Stretch& part) {
      add(sample, share_of(bytes, part.end - stretch.begin, whole) -
                      share_of(bytes, part.begin - stretch.begin, whole));
    });
  }

 private:
  Duration begin_, end_, interval_;
};

}  // namespace trainyard::simulate
