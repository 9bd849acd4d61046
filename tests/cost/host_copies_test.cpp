// Copies between GPU and host by the law of a profile, or by what the link offers.
#include "sim/cost/host_copies.h"

#include <doctest/doctest.h>

#include <vector>

#include "tests/support/rooms.h"

using namespace trainyard;

TEST_CASE("pinned copies follow their own law up to what the link offers") {
  Provenance measured;
  measured.source = "test";
  measured.basis = Basis::measured;
  const std::vector<HostCopyLaw> laws = {
      {false, false, Seconds(1), BytesPerSecond(1e9), measured},
      {false, true, Seconds(1e-5), BytesPerSecond(20e9), measured},
      {true, true, Seconds(2e-5), BytesPerSecond(22e9), measured}};
  const BytesPerSecond wide(25e9), narrow(12e9);
  const auto terms = [&](HostTransfer transfer, BytesPerSecond offered) {
    return host_transfer_terms(transfer, Bytes(1000), offered, laws);
  };
  CHECK(terms(HostTransfer::to_host, wide).latency == Seconds(1e-5));
  CHECK(terms(HostTransfer::to_host, wide).bandwidth.count() == 20e9);
  CHECK(terms(HostTransfer::to_host, wide).basis == Basis::measured);
  CHECK(terms(HostTransfer::to_device, wide).latency == Seconds(2e-5));
  // A share of the link is no measurement.
  CHECK(terms(HostTransfer::to_host, narrow).bandwidth.count() == 12e9);
  CHECK(terms(HostTransfer::to_host, narrow).basis == Basis::analytic);
  // No law speaks of the host's own memory.
  CHECK(terms(HostTransfer::host_memory, wide).latency == Seconds(0));
  CHECK(terms(HostTransfer::host_memory, wide).bandwidth.count() == 25e9);
  CHECK(host_transfer_terms(HostTransfer::to_host, Bytes(7), wide, {}).wire_bytes == Bytes(7));
}
