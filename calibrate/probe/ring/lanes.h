// Several devices at work at once: peer access, and the time of streams that start together.
#pragma once

#include <functional>
#include <vector>

#include "device.h"
#include "sample.h"

namespace trainyard::probe {

// Makes a device current for the length of a scope.
class OnDevice {
 public:
  explicit OnDevice(int device) {
    PROBE_CUDA(cudaGetDevice(&before_));
    PROBE_CUDA(cudaSetDevice(device));
  }
  OnDevice(const OnDevice&) = delete;
  OnDevice& operator=(const OnDevice&) = delete;
  ~OnDevice() { cudaSetDevice(before_); }

 private:
  int before_ = 0;
};

// Lets `device` reach the memory of `other` by loads, stores and copies. False if it cannot. True
// for a device and itself.
bool enable_peer_access(int device, int other);

// A stream of a device, with the events that time it.
struct Lane {
  explicit Lane(int on_device);
  int device;
  Stream stream;
  Event start, stop;
};

// Streams that wait until the host has enqueued the work of all of them, so that neither the host's
// launches nor its order of devices is in what is timed.
class Lanes {
 public:
  explicit Lanes(const std::vector<int>& devices);
  ~Lanes();  // waits for what is still running
  Lanes(const Lanes&) = delete;
  Lanes& operator=(const Lanes&) = delete;

  std::size_t size() const { return lanes_.size(); }
  cudaStream_t stream(std::size_t lane) const { return lanes_[lane].stream; }
  int device(std::size_t lane) const { return lanes_[lane].device; }

  // Calls `enqueue(lane)` for each lane with its device current, then lets all go. Microseconds of
  // each lane from its start to its end. What is enqueued must not wait for the device.
  std::vector<double> interval(const std::function<void(std::size_t lane)>& enqueue);
  void wait();

 private:
  PinnedBuffer flag_;
  std::vector<Lane> lanes_;
  unsigned epoch_ = 0;
};

struct LaneOptions {
  double interval_us = 300;   // at least this long is timed at once
  double limit_us = 200'000;  // of all repeats together, if that allows least_repeats
  int least_repeats = 3;
  int most_repeats = 12;
  int most_batch = 64;
};

// Times `work(lane, call)`, called in batches on all lanes at once. The result has one timing per
// lane; each is of one call.
std::vector<Timing> measure_lanes(Lanes& lanes,
                                  const std::function<void(std::size_t lane, int call)>& work,
                                  const LaneOptions& options = {});

// The same where the lanes work on one thing: a call takes as long as its slowest lane.
Timing measure_slowest_lane(Lanes& lanes,
                            const std::function<void(std::size_t lane, int call)>& work,
                            const LaneOptions& options = {});

}  // namespace trainyard::probe
