// Time of transfers that one rank makes alone: between the memories of GPU and host over PCIe,
// within the host's memory, and between that and NVMe.
//
//   T(S) = start + S / min(B, offered)
//
// with start and B of a profile's law of pinned copies where it has one (docs/cost-messages.md),
// else 0 and what is offered: the datasheet's bandwidth, or this rank's share of it.
#pragma once

#include <span>

#include "sim/base/host_transfer.h"
#include "sim/cost/cost.h"
#include "sim/cost/profile.h"

namespace trainyard::cost {

// The law of pinned copies in that direction; null: none.
const HostCopyLaw* host_copy_law(HostTransfer transfer, std::span<const HostCopyLaw> laws);

// Requires: bytes >= 0, offered > 0.
MessageTerms host_transfer_terms(HostTransfer transfer, Bytes bytes, BytesPerSecond offered,
                                 std::span<const HostCopyLaw> laws);

}  // namespace trainyard::cost
