// Bytes of NCCL's connections, against the constants of its source.
#include "sim/collective/nccl_buffers.h"

#include <doctest/doctest.h>

#include "tests/support/rooms.h"

using namespace trainyard;

// 8*512*8*16 + 120*640*8*8 + 4 MiB = 9,633,792 bytes, in fragments of 2 MiB; both sizes stand in
// the log of NVIDIA/nccl issue 1685.
TEST_CASE("a connection takes 10 MiB where it ends and 2 MiB where it begins") {
  CHECK(nccl::receiving_end() == Bytes(10'485'760));
  CHECK(nccl::sending_end() == Bytes(2'097'152));
}

TEST_CASE("a ring takes 12 MiB a channel whatever its size") {
  for (const int channels : {1, 2, 12, 24, 32})
    CHECK(nccl::ring(channels) == Bytes(std::int64_t{12} * channels << 20));
}

// 8 H100 that exchange all with all: 7 peers x 32 channels x 12 MiB.
TEST_CASE("pairs within a server have the next power of two of channels each") {
  CHECK(nccl::pairs(24, false, 7, 0) == Bytes(std::int64_t{7 * 32 * 12} << 20));
  CHECK(nccl::pairs(2, false, 1, 0) == Bytes(std::int64_t{2 * 12} << 20));
}

TEST_CASE("peers in other servers share two pools of 128 KiB x 16 x channels, however many") {
  const Bytes pools(std::int64_t{2 * 128 * 16 * 32} << 10);
  CHECK(nccl::pairs(24, true, 0, 1) == pools);
  CHECK(nccl::pairs(24, true, 0, 50) == pools);
  CHECK(nccl::pairs(24, true, 3, 50) == pools + Bytes(std::int64_t{3 * 2 * 12} << 20));
}
