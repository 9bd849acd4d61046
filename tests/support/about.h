// Comparison in proportion: `x == about(2e-3).within(0.01)` holds from 1.98e-3 to 2.02e-3.
// doctest's own allows the share of 1 + |x|, so that seconds and milliseconds compare equal to
// anything.
#pragma once

#include <cmath>
#include <ostream>

namespace trainyard {

class About {
 public:
  explicit About(double value) : value_(value) {}

  // In parts of the value.
  About within(double share) const {
    About other = *this;
    other.share_ = share;
    return other;
  }
  // Beside that, in its unit: of what may be 0, or is the small difference of large numbers.
  About give_or_take(double much) const {
    About other = *this;
    other.much_ = much;
    return other;
  }

  // NaN is about nothing.
  bool has(double found) const {
    if (found == value_) return true;
    return std::isfinite(value_) && std::abs(found - value_) <= share_ * std::abs(value_) + much_;
  }

  friend bool operator==(double found, const About& about) { return about.has(found); }
  friend bool operator!=(double found, const About& about) { return !about.has(found); }
  friend bool operator<=(double found, const About& about) {
    return found < about.value_ || about.has(found);
  }
  friend std::ostream& operator<<(std::ostream& out, const About& about) {
    out << "about " << about.value_ << ", within " << about.share_;
    return about.much_ > 0 ? out << ", give or take " << about.much_ : out;
  }

 private:
  double value_;
  double share_ = 1e-5, much_ = 0;
};

inline About about(double value) {
  return About(value);
}

}  // namespace trainyard
