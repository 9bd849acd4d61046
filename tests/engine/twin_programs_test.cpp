// Programs that differ in the order of calls alone share what is compiled and learned of them, and
// nothing tells.
#include <doctest/doctest.h>

#include <deque>
#include <utility>

#include "sim/engine/run_state.h"
#include "tests/engine/random_machine.h"
#include "tests/engine/same_outcome.h"
#include "tests/support/rooms.h"

using namespace trainyard;
using namespace trainyard::testing;

namespace {

template <class Id>
Id moved(Id id, std::size_t by) {
  return index(id) == 0xFFFFFFFF ? id : Id{static_cast<std::uint32_t>(index(id) + by)};
}
template <class Id>
void move_all(std::vector<Id>& ids, std::size_t by) {
  for (Id& id : ids)
    id = moved(id, by);
}

// A machine beside another one whose actors have the same code and call their blocks in another
// order, all in the same one.
class Twins {
 public:
  explicit Twins(const engine::Machine& one) : machine_(one) {
    const std::size_t actors = one.actors.size();
    for (const Actor& actor : one.actors) {
      Actor& twin = machine_.actors[machine_.actors.push_back(actor)];
      Program& program = programs_.emplace_back(*actor.program);
      for (std::size_t i = 0; i + 1 < program.calls.size(); i += 2)
        std::swap(program.calls[i], program.calls[i + 1]);
      program.labels = {};
      program.calls.resize(program.calls.size() - program.calls.size() / 4);
      twin.program = &program;
      move_all(twin.communicators, one.communicators.size());
      move_all(twin.channels, one.channels.size());
    }
    for (Communicator communicator : one.communicators) {
      move_all(communicator.members, actors);
      machine_.communicators.push_back(communicator);
    }
    for (Channel channel : one.channels) {
      channel.source = moved(channel.source, actors);
      channel.destination = moved(channel.destination, actors);
      machine_.channels.push_back(channel);
    }
  }
  const engine::Machine& machine() const { return machine_; }

 private:
  engine::Machine machine_;
  std::deque<Program> programs_;
};

}  // namespace

TEST_CASE("programs with the same code are compiled and gone through once") {
  for (std::uint64_t seed = 0; seed < 600; ++seed) {
    CAPTURE(seed);
    const auto one = random_machine(seed, {.flows = seed % 4 == 0,
                                           .launches = seed % 3 == 0,
                                           .calls = seed % 5 == 0,
                                           .repeats = seed % 7 == 0,
                                           .solos = true,
                                           .mistakes = false});
    const Twins twins(one->machine());
    const RunState state(twins.machine());
    const std::size_t half = one->machine().actors.size();
    for (std::size_t actor = 0; actor < half; ++actor)
      CHECK(state.code_of[state.actors[actor].program] ==
            state.code_of[state.actors[half + actor].program]);
    check_equal(twins.machine(), run_solos(twins.machine(), true),
                run_solos(twins.machine(), false));
  }
}
