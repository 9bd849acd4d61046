// A network whose layers are placed on stages in any way: what its stages hold, and which tensors
// travel between them.
//
// Two towers a and b of two layers each, joined by a head, with b on stage 1:
//
//   network    a1 a2 b1 b2 head          places of the chain in the network's order
//   placed     a1 a2 head | b1 b2        stage by stage, each in that order
//   crossing   b2's output: stage 1 to stage 0, needed by the head; its gradient comes back
#pragma once

#include <span>
#include <vector>

#include "models/families/network.h"
#include "sim/plan/split/stage_split.h"

namespace trainyard::plan {

// A tensor that a stage makes and another one reads.
struct Crossing {
  int from = 0, to = 0;       // stages
  int maker = 0, reader = 0;  // places of the placed chain; of several readers there the first
  Bytes bytes;                // of a micro-batch
  bool gradient = true;       // of as many bytes, from the reader back
};

struct PlacedNetwork {
  models::NetworkWork work;
  std::vector<ChainRange> layers;   // by stage
  std::vector<Crossing> crossings;  // of each stage in the order in which it makes them
};

// Places that keep a tensor of `work` for their backward pass, its maker and those that run again
// among them, in order.
std::vector<int> keepers_of(const models::NetworkWork& work, const models::SharedTensor& tensor);

// Which of its keepers holds it for a stage that another stage does not hold it for; -1: none.
int keeper_of_copy(const models::SharedTensor& tensor, std::span<const int> keepers,
                   std::span<const int> stage_of, int stage);

// `stage_of`: by place. A stage that keeps a tensor for its backward pass which another stage keeps
// too holds it once more. Of a tensor that several stages read, each is sent its own; the network's
// input is on all of them. Requires: a kind for each place, each of `stages` stages has a place.
PlacedNetwork place_network(const models::NetworkWork& work, std::span<const int> stage_of,
                            int stages);

}  // namespace trainyard::plan
