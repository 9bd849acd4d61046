// The messages of a stage whose layers another stage's read, or read: each tensor goes when it is
// made, and is awaited before the first layer that needs it; gradients come the other way.
//
// A channel delivers in the order of the sends, so a layer that needs the third message takes all
// three, as PipelineMessages do.
#pragma once

#include <cstddef>
#include <map>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include "sim/plan/branches/placed_network.h"
#include "sim/plan/program_builder.h"

namespace trainyard::plan {

class BranchMessages {
 public:
  // `crossings` of the whole network; all must outlive it. `overlaps`: a layer does not wait for
  // what those before it send.
  BranchMessages(ProgramBuilder& builder, std::span<const Crossing> crossings, int stage,
                 bool overlaps)
      : builder_(builder), crossings_(crossings), stage_(stage), overlaps_(overlaps) {}

  // Around the work of a whole forward or backward pass: begin(), then before() and after() each
  // place in the order of the pass.
  void begin_forward() { begin(false); }
  void begin_backward() { begin(true); }
  void before(int place);
  void after(int place);

 private:
  using Pair = std::pair<int, int>;  // of stages: from, to
  // What a crossing's message is in the pass.
  Pair pair(const Crossing& crossing) const {
    return backward_ ? Pair{crossing.to, crossing.from} : Pair{crossing.from, crossing.to};
  }
  int sender(const Crossing& crossing) const {
    return backward_ ? crossing.reader : crossing.maker;
  }
  int receiver(const Crossing& crossing) const {
    return backward_ ? crossing.maker : crossing.reader;
  }

  void begin(bool backward);
  // The ports of this stage's n-th peer on the lane of a pair.
  ConnectionId port(const Pair& pair, bool sends) const;

  ProgramBuilder& builder_;
  std::span<const Crossing> crossings_;
  int stage_;
  bool overlaps_;

  // Of the open pass: its messages in the order in which each stage sends them, and how many of
  // those from each stage this one has taken.
  bool backward_ = false;
  std::vector<Crossing> messages_;
  std::set<Pair> pairs_;                           // between which they travel
  std::map<int, std::vector<Crossing>> arriving_;  // by sending stage
  std::map<int, std::size_t> taken_;
};

}  // namespace trainyard::plan
