// Choices from a seed: the same ones on every machine.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <iterator>
#include <string>

#include "sim/base/random.h"

namespace trainyard::fuzz {

class Draw {
 public:
  explicit Draw(std::uint64_t seed) : random_(seed) {}

  // Requires: least <= most.
  int between(int least, int most) {
    return least + static_cast<int>(random_.below(static_cast<std::uint64_t>(most - least) + 1));
  }
  bool chance(int percent) { return between(1, 100) <= percent; }
  // One of them; what is listed twice comes twice as often.
  template <class T>
  T pick(std::initializer_list<T> of) {
    return of.begin()[random_.below(of.size())];
  }
  const char* word(std::initializer_list<const char*> of) { return pick(of); }
  template <class List>
  const auto& element(const List& list) {
    return list[random_.below(std::size(list))];
  }
  std::uint64_t below(std::uint64_t bound) { return random_.below(bound); }

 private:
  SplitMix64 random_;
};

}  // namespace trainyard::fuzz
