// Numbers that leave the range in which the program counts.
#pragma once

#include <stdexcept>

namespace trainyard {

// Sizes and rates of the user's job make time, bytes or work outgrow 64 bits. It is no mistake of
// ours: whoever knows the file makes a diagnostic of it.
class OutOfRange : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

}  // namespace trainyard
