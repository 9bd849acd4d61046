#include "sim/collective/nccl_buffers.h"

#include <bit>
#include <cstdint>

namespace trainyard::nccl {
namespace {

constexpr std::int64_t kSteps = 8;
constexpr std::int64_t kLl = 8 * 512 * kSteps * 16;
constexpr std::int64_t kLl128 = 120 * 640 * kSteps * 8;
constexpr std::int64_t kSimple = std::int64_t{4} << 20;
constexpr std::int64_t kFragment = std::int64_t{2} << 20;  // of cuMemCreate on a GPU

constexpr std::int64_t kSharedSteps = 16;
constexpr std::int64_t kNetChunk = std::int64_t{128} << 10;
constexpr int kChannelsPerRemotePeer = 2;

constexpr std::int64_t rounded(std::int64_t bytes) {
  return (bytes + kFragment - 1) / kFragment * kFragment;
}

int next_power_of_two(int number) {
  return static_cast<int>(std::bit_ceil(static_cast<unsigned>(number)));
}

}  // namespace

Bytes receiving_end() {
  return Bytes(rounded(kLl + kLl128 + kSimple));
}

Bytes sending_end() {
  return Bytes(kFragment);
}

Bytes ring(int channels) {
  return channels * (receiving_end() + sending_end());
}

Bytes pairs(int channels, bool spans_servers, int local_peers, int remote_peers) {
  const int most = next_power_of_two(channels);
  const int per_peer = spans_servers ? kChannelsPerRemotePeer : most;
  const Bytes local = local_peers * (per_peer * (receiving_end() + sending_end()));
  return remote_peers == 0 ? local : local + Bytes(2 * most * kSharedSteps * kNetChunk);
}

}  // namespace trainyard::nccl
