// What a scenario leaves out though an estimate depends on it: practice decides, every output names
// it.
#pragma once

#include <string>

namespace trainyard::scenario {

struct Assumption {
  std::string pointer;  // of the key that would say it
  std::string value;    // as it would stand there
  std::string why;      // a few words
};

}  // namespace trainyard::scenario
