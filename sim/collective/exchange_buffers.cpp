#include "sim/collective/exchange_buffers.h"

#include <algorithm>
#include <array>
#include <utility>

#include "sim/base/check.h"
#include "sim/base/divide.h"

namespace trainyard::collective {
namespace {

constexpr int kMostPeers = 8;  // NUM_MAX_NVL_PEERS
constexpr std::int64_t kChannels = 20 / 2, kRemoteTokens = 128;
constexpr std::int64_t kBytesOfNumber = 2, kBytesOfWeight = 4;
constexpr std::int64_t kBytesBesideRow = 128 * (8 + 4 + 4);

// Tokens of a queue, for groups of up to so many ranks.
std::int64_t queued_tokens(int ranks) {
  constexpr std::array<std::pair<int, std::int64_t>, 4> kTokens = {
      {{8, 256}, {64, 288}, {96, 480}, {128, 560}}};
  for (const auto& [most, tokens] : kTokens)
    if (ranks <= most) return tokens;
  return 720;
}

}  // namespace

Bytes exchange_buffers(const RowExchange& exchange) {
  TRAINYARD_CHECK(1 <= exchange.per_server && exchange.per_server <= exchange.ranks,
                  "{} of {} ranks on a server", exchange.per_server, exchange.ranks);
  const std::int64_t row = kBytesOfNumber * exchange.hidden;
  const std::int64_t servers =
      divide_up(std::int64_t{exchange.ranks}, std::int64_t{exchange.per_server});
  if (exchange.per_server > kMostPeers) {
    const std::int64_t weights = kBytesOfWeight * divide_up(exchange.experts, servers);
    return Bytes(2 * exchange.ranks * exchange.tokens * (row + weights));
  }
  const std::int64_t token = row + kBytesBesideRow;
  const std::int64_t inside = exchange.per_server * queued_tokens(exchange.ranks);
  const std::int64_t between = servers > 1 ? 2 * servers * kRemoteTokens : 0;
  return Bytes(kChannels * (inside + between) * token);
}

}  // namespace trainyard::collective
