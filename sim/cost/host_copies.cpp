#include "sim/cost/host_copies.h"

#include <algorithm>

#include "sim/base/check.h"

namespace trainyard::cost {

const HostCopyLaw* host_copy_law(HostTransfer transfer, std::span<const HostCopyLaw> laws) {
  if (transfer != HostTransfer::to_host && transfer != HostTransfer::to_device) return nullptr;
  const bool to_device = transfer == HostTransfer::to_device;
  const auto law = std::find_if(laws.begin(), laws.end(), [&](const HostCopyLaw& candidate) {
    return candidate.pinned && candidate.to_device == to_device;
  });
  return law == laws.end() ? nullptr : &*law;
}

MessageTerms host_transfer_terms(HostTransfer transfer, Bytes bytes, BytesPerSecond offered,
                                 std::span<const HostCopyLaw> laws) {
  TRAINYARD_CHECK(bytes >= Bytes(0) && offered.count() > 0, "{} of {} bytes at {} B/s",
                  name(transfer), bytes.count(), offered.count());
  MessageTerms terms;
  terms.wire_bytes = bytes;
  terms.bandwidth = offered;
  const HostCopyLaw* law = host_copy_law(transfer, laws);
  if (law == nullptr) return terms;
  terms.latency = law->start;
  if (law->bandwidth > offered) return terms;
  terms.bandwidth = law->bandwidth;
  terms.basis = law->from.basis;
  return terms;
}

}  // namespace trainyard::cost
