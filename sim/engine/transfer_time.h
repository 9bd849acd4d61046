// How long a transfer takes that shares no links.
#pragma once

#include <cstdint>

#include "sim/base/check.h"
#include "sim/base/divide.h"
#include "sim/base/units.h"
#include "sim/engine/machine.h"

namespace trainyard::engine {

// How long a transfer of closed form takes. Requires: a rate, if it has bytes.
inline Duration transfer_time(const Transfer& transfer) {
  if (transfer.bytes == Bytes{}) return transfer.latency;
  TRAINYARD_CHECK(transfer.rate >= 1, "a transfer of {} bytes with rate {}", transfer.bytes.count(),
                  transfer.rate);
  return later(
      transfer.latency,
      Duration(divide_up(Int128{transfer.bytes.count()} * kPicosecondsPerSecond, transfer.rate)));
}

}  // namespace trainyard::engine
