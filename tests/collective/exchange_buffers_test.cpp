// Bytes of what exchanges rows of experts, against the formulas of its sources.
#include "sim/collective/exchange_buffers.h"

#include <doctest/doctest.h>

#include "tests/support/rooms.h"

using namespace trainyard;
using collective::exchange_buffers;

// 10 channels x 8 peers x 256 tokens x (2 x 7168 + 2048) bytes; on eight servers 288 tokens, and
// twice 128 for each server.
TEST_CASE("DeepEP has a queue for each channel and peer, and for each server") {
  CHECK(exchange_buffers({8, 8, 4096, 7168, 256}) == Bytes(10LL * 8 * 256 * 16'384));
  CHECK(exchange_buffers({64, 8, 4096, 7168, 256}) ==
        Bytes(10LL * (8 * 288 + 2 * 8 * 128) * 16'384));
  // However many tokens there are, and more for larger groups.
  CHECK(exchange_buffers({8, 8, 1, 7168, 256}) == exchange_buffers({8, 8, 4096, 7168, 256}));
  CHECK(exchange_buffers({8, 4, 1, 7168, 256}) == Bytes(10LL * (4 * 256 + 2 * 2 * 128) * 16'384));
  CHECK(exchange_buffers({256, 8, 1, 1024, 256}) == Bytes(10LL * (8 * 720 + 2 * 32 * 128) * 4'096));
}

TEST_CASE("HybridEP has room for the tokens of all ranks, twice") {
  CHECK(exchange_buffers({64, 64, 4096, 7168, 256}) == Bytes(2LL * 64 * 4096 * (14'336 + 4 * 256)));
  CHECK(exchange_buffers({64, 32, 4096, 7168, 256}) == Bytes(2LL * 64 * 4096 * (14'336 + 4 * 128)));
}
