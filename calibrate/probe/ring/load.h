// Blocks that behave as those of a collective do, for as long as the host wants: they hold
// multiprocessors, and may stream memory.
#pragma once

#include <cstddef>
#include <cstdint>

#include "device.h"

namespace trainyard::probe {

enum class LoadKind {
  hold,   // occupies one multiprocessor per block
  stream  // and copies memory, as fast as a block can
};

inline constexpr std::size_t kLoadPiece = std::size_t{256} << 10;  // what a block copies at a time

class Load {
 public:
  // Of the current device. Takes two buffers of `bytes` to stream; more than the L2 cache.
  Load(const DeviceInfo& device, std::size_t bytes);
  ~Load();  // stops it
  Load(const Load&) = delete;
  Load& operator=(const Load&) = delete;

  // The most blocks, one per multiprocessor; half of the multiprocessors are left to the victim.
  int most_channels() const { return most_channels_; }

  // Returns when all blocks run; false if they did not within a second, and then it is stopped.
  // Blocks end by themselves after five seconds. Until stop(), nothing that waits for the whole
  // device (allocating, freeing) may be called.
  bool start(LoadKind kind, int channels);
  // Ends the blocks and waits for them. False if they had ended before they were told.
  bool stop();

  // Enqueues a note of how far the blocks have come. Requires: index < 2.
  void mark(cudaStream_t stream, int index);
  // After stop(): microseconds in which every block copied one piece, between marks 0 and 1.
  double piece_us() const;
  // Bytes read and written in that time.
  std::size_t bytes_per_piece() const {
    return 2 * kLoadPiece * static_cast<std::size_t>(channels_);
  }

  // Enqueues a kernel of one thread that takes this long, so that a load can be watched alone.
  static void delay(cudaStream_t stream, double microseconds);

 private:
  struct Mark {
    unsigned long long time_ns = 0;
    unsigned long long pieces = 0;
  };
  volatile unsigned* word(int index) const;

  int most_channels_ = 1;
  int channels_ = 0;
  int footprint_ = 0;  // bytes of shared memory of a block
  unsigned epoch_ = 0;
  bool runs_ = false;
  std::size_t pieces_ = 0;
  cudaStream_t stream_ = nullptr;
  PinnedBuffer words_;  // stop, then one `running` and one `ended` per block
  DeviceBuffer source_, target_, progress_, marks_;
};

}  // namespace trainyard::probe
