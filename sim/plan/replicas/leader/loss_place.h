// Networks as the ranks of one process see them: the loss over all their samples is computed on the
// first rank, and the launches of their passes take turns at the interpreter's lock.
#pragma once

#include <optional>
#include <string>

#include "models/families/network.h"

namespace trainyard::plan {

// Why the loss cannot be taken out of the network, in words; nullopt if it can.
std::optional<std::string> loss_stays(const models::NetworkWork& work);

// What the loss reads of one micro-batch, and whose gradient it returns. Requires: !loss_stays.
Bytes loss_input(const models::NetworkWork& work);

// The network with a place behind it for its loss, over `batches` micro-batches: kernels of so many
// times the bytes, which keep and need as much more; 0: another rank computes it. Requires:
// !loss_stays(work).
models::NetworkWork with_loss_apart(const models::NetworkWork& work, int batches);

// The network with an empty place behind it, where a loss that it has within it is handed on.
models::NetworkWork with_loss_within(const models::NetworkWork& work);

// What Python launches, the kernels of forward passes and those that recomputation repeats, with
// `factor` times the launches, rounded over all of a list.
void slow_launches(models::NetworkWork& work, double factor);

}  // namespace trainyard::plan
