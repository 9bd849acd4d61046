// Stretches of a program that concern nobody but its actor: kernels and collectives of which it is
// the only member (a representative of ranks that behave alike is alone in most of its groups). As
// long as nothing else touches the actor, what happens in such a solo follows from when it began.
#pragma once

#include <cstdint>
#include <vector>

#include "sim/engine/compiled_program.h"

namespace trainyard::engine {

// Ops first to last of a block, with nothing else between them. Nothing outside can tell when any
// of them ended but by when the last one did, which ends last.
struct Solo {
  static constexpr int kMostStreams = 8;

  std::uint32_t block = 0, first = 0, last = 0;
  std::uint32_t streams = 0;    // bit s: some are of stream s
  std::uint64_t columns = 0;    // bit c: some are collectives of column c
  std::uint32_t first_end = 0;  // into Solos::ends, one per bit, lowest first
};

class BusyStreams;

// The solos of a program whose collectives of some columns have no other members.
class Solos {
 public:
  static constexpr std::uint32_t kNone = 0xFFFFFFFF;

  // `alone`: bit c of columns below 64.
  Solos(const CompiledProgram& program, std::uint64_t alone);

  // The solo that can be entered at an op of CompiledProgram::ops, which begins when all ops of the
  // solo before it have ended; kNone: none.
  std::uint32_t entered_at(std::size_t op) const { return entered_[op]; }
  const std::vector<Solo>& all() const { return solos_; }
  // Behind the last op of a solo's stream in CompiledProgram::ops; `nth` bit of Solo::streams.
  std::uint32_t end(const Solo& solo, std::uint32_t nth) const {
    return ends_[solo.first_end + nth];
  }

 private:
  // `kWidth`: at least the number of streams.
  template <std::size_t kWidth>
  void find(const CompiledProgram& program, const BusyStreams& busy, std::uint64_t alone);

  std::vector<std::uint32_t> entered_;
  std::vector<Solo> solos_;
  std::vector<std::uint32_t> ends_;
};

}  // namespace trainyard::engine
