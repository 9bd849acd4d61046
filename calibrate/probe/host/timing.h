// How everything is timed: events around a batch of calls, median of repeats, operands rotated past
// the L2 cache.
#pragma once

#include <cstddef>
#include <functional>

#include "device.h"
#include "sample.h"

namespace trainyard::probe {

// Where call i finds its operands: one of several copies, so that none of them is in the L2 cache
// when it is read again. Operands of less than factor x L2 / most_copies stay in the cache in part,
// as they do in training, where the kernel before has just written them.
struct Rotation {
  std::size_t stride = 0;  // bytes from copy to copy, a multiple of 256
  int copies = 1;

  std::size_t bytes() const { return stride * static_cast<std::size_t>(copies); }
  std::size_t offset(long long call) const {
    return stride * static_cast<std::size_t>(call % copies);
  }
};

// As many copies as take `factor` x L2, at least one, and not more than fit into `most_bytes`.
Rotation rotate(std::size_t bytes_of_one_call, std::size_t l2_bytes, std::size_t most_bytes,
                double factor = 3, int most_copies = 64);

struct TimingOptions {
  int copies = 1;            // of the rotation; a batch that is repeated takes whole rounds
  double interval_us = 200;  // at least this long is timed at once
  int least_repeats = 3;
  int most_repeats = 20;
  double limit_us = 60'000;  // of all repeats together, if that allows least_repeats
  int most_batch = 512;
  // Short work is captured into a CUDA graph, so that the host's launches are not what is timed.
  // False for work that cannot be captured or that spans streams of several devices.
  bool graph = true;
  // The stream is held until the host has enqueued the whole batch. False for work whose calls wait
  // for the device.
  bool gate = true;
};

// Enqueues one call on the stream of the stopwatch. `call` counts from 0.
using Work = std::function<void(long long call)>;

// Times work on one stream of the current device. Make one per suite: it owns events and pinned
// memory.
class Stopwatch {
 public:
  explicit Stopwatch(cudaStream_t stream);

  // The device time of one call when many follow each other: the gap between two kernels is in it.
  Timing measure(const Work& work, const TimingOptions& options = {});

 private:
  double interval(const std::function<void()>& enqueue, bool gate);
  Timing repeat(const std::function<void()>& enqueue, int batch, double estimate_us,
                const TimingOptions& options);
  bool capture(const Work& work, int batch, cudaGraphExec_t& graph);

  cudaStream_t stream_;
  Event start_, stop_;
  PinnedBuffer flag_;
  unsigned epoch_ = 0;
};

// The same for a single measurement.
Timing measure(cudaStream_t stream, const Work& work, const TimingOptions& options = {});

// Wall time of one call on the host: `batch` calls are timed at once, `settle` runs between two
// batches and is not timed.
Timing measure_host(const std::function<void()>& call, const std::function<void()>& settle,
                    int batch, int repeats);

// Keeps the device busy for about this long, so that its clock is that of a loaded device.
void warm_up_device(cudaStream_t stream, double seconds);

}  // namespace trainyard::probe
