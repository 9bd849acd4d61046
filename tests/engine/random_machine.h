// Seeded random machines, small enough for the reference engine and full of coincidences: durations
// of a few picoseconds, several streams, repeated blocks, slow-downs, flows, launches, and some
// mistakes.
#pragma once

#include <cstdint>
#include <memory>

#include "tests/support/program_builder.h"
#include "tests/support/rooms.h"

namespace trainyard::testing {

struct RandomOptions {
  bool flows = true;
  bool slow_downs = true;
  bool launches = true;
  bool calls = false;
  bool drains = false;
  bool inboxes = false;  // messages of several actors, of which the first are heard
  bool repeats = false;  // calls that come many times over
  bool solos = false;    // most ops concern one actor alone, and wait for most of its others
  bool copies = false;   // of all actors, that share those communicators of theirs
  bool mistakes = true;  // programs that disagree, so that some machines get stuck
};

std::unique_ptr<MachineBuilder> random_machine(std::uint64_t seed, const RandomOptions& options);

}  // namespace trainyard::testing
