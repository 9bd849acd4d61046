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
#include "sim/plan/recompute_places.h"
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
  models::NetworkWork work;         // what its places keep is hold_shared()'s
  std::vector<ChainRange> layers;   // by stage
  std::vector<int> place_of;        // by place of the network
  std::vector<Crossing> crossings;  // of each stage in the order in which it makes them
};

// `stage_of`: by place. Of a tensor that several stages read, each is sent its own; the network's
// input is on all of them. Requires: a kind for each place, each of `stages` stages has a place.
PlacedNetwork place_network(const models::NetworkWork& work, std::span<const int> stage_of,
                            int stages);

// Makes each stage hold once what its places keep of the tensors of `network`: those that read or
// make it and keep it for their backward pass; that run again and read it; that run again with
// others which do not make it. `placed`: its work is that of place_network(), with the places that
// run again.
void hold_shared(RecomputePlaces& placed, const models::NetworkWork& network,
                 std::span<const int> stage_of, std::span<const int> place_of);

// Whether a layer of a table runs again: it keeps all that it reads, and nothing else.
bool runs_again(const models::LayerWork& layer);

// Places that keep a tensor of `work` if each layer that runs again does so alone, in order.
std::vector<int> keepers_of(const models::NetworkWork& work, const models::SharedTensor& tensor);

}  // namespace trainyard::plan
