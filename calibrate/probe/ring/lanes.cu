#include <algorithm>

#include "lanes.h"
#include "message.h"

namespace trainyard::probe {
namespace {

// Longer than the host takes to enqueue a batch on 16 devices. A gate that gives up makes a time
// too long, never a hang.
constexpr unsigned long long kGateNs = 400'000'000;

__global__ void lane_gate_kernel(const volatile unsigned* flag, unsigned epoch) {
  const unsigned long long begin = nanoseconds();
  while (*flag != epoch && nanoseconds() - begin < kGateNs) {
  }
}

// Opens the gates when the host has enqueued everything, and also when enqueuing has failed.
struct GateOpener {
  volatile unsigned* flag;
  unsigned epoch;
  ~GateOpener() { *flag = epoch; }
};

using Intervals = std::vector<std::vector<double>>;  // by repeat, then lane; microseconds of a call

Intervals repeat_lanes(Lanes& lanes, const std::function<void(std::size_t, int)>& work,
                       const LaneOptions& options) {
  int call = 0;
  const auto batch_of = [&](int count) {
    const int first = call;
    call += count;
    return lanes.interval([&](std::size_t lane) {
      for (int i = 0; i < count; ++i)
        work(lane, first + i);
    });
  };
  const auto slowest = [](const std::vector<double>& times) {
    return *std::max_element(times.begin(), times.end());
  };
  batch_of(1);  // loads code, connects peers
  const double estimate = std::max(0.1, slowest(batch_of(2)) / 2);
  const int batch = static_cast<int>(
      std::clamp(options.interval_us / estimate, 1.0, static_cast<double>(options.most_batch)));
  const int repeats = static_cast<int>(std::clamp(options.limit_us / (estimate * batch),
                                                  static_cast<double>(options.least_repeats),
                                                  static_cast<double>(options.most_repeats)));
  Intervals intervals;
  for (int i = 0; i < repeats; ++i) {
    intervals.push_back(batch_of(batch));
    for (double& time : intervals.back())
      time /= batch;
  }
  return intervals;
}

}  // namespace

bool enable_peer_access(int device, int other) {
  if (device == other) return true;
  int possible = 0;
  PROBE_CUDA(cudaDeviceCanAccessPeer(&possible, device, other));
  if (possible == 0) return false;
  const OnDevice current(device);
  const cudaError_t code = cudaDeviceEnablePeerAccess(other, 0);
  if (code == cudaErrorPeerAccessAlreadyEnabled) {
    cudaGetLastError();  // not to be found by the next launch
    return true;
  }
  // More peers than the system supports at once: as if there were no access.
  if (code == cudaErrorTooManyPeers || code == cudaErrorPeerAccessUnsupported) {
    cudaGetLastError();
    return false;
  }
  PROBE_CUDA(code);
  return true;
}

Lane::Lane(int on_device) : device(on_device) {}

Lanes::Lanes(const std::vector<int>& devices)
    : flag_(sizeof(unsigned), cudaHostAllocMapped | cudaHostAllocPortable) {
  *reinterpret_cast<volatile unsigned*>(flag_.data()) = 0;
  for (const int device : devices) {
    const OnDevice current(device);  // a stream and its events belong to it
    lanes_.emplace_back(device);
  }
}

Lanes::~Lanes() {
  for (Lane& lane : lanes_)
    cudaStreamSynchronize(lane.stream);
}

std::vector<double> Lanes::interval(const std::function<void(std::size_t lane)>& enqueue) {
  auto* flag = reinterpret_cast<volatile unsigned*>(flag_.data());
  {
    const GateOpener opener{flag, ++epoch_};
    for (std::size_t i = 0; i < lanes_.size(); ++i) {
      Lane& lane = lanes_[i];
      const OnDevice current(lane.device);
      lane_gate_kernel<<<1, 1, 0, lane.stream>>>(flag, epoch_);
      PROBE_LAUNCHED();
      lane.start.record(lane.stream);
      enqueue(i);
      lane.stop.record(lane.stream);
    }
  }
  wait();
  std::vector<double> times;
  for (Lane& lane : lanes_)
    times.push_back(elapsed_us(lane.start, lane.stop));
  return times;
}

void Lanes::wait() {
  for (Lane& lane : lanes_)
    lane.stream.wait();
}

std::vector<Timing> measure_lanes(Lanes& lanes,
                                  const std::function<void(std::size_t lane, int call)>& work,
                                  const LaneOptions& options) {
  const Intervals intervals = repeat_lanes(lanes, work, options);
  std::vector<Timing> timings;
  for (std::size_t lane = 0; lane < lanes.size(); ++lane) {
    std::vector<double> times;
    for (const std::vector<double>& interval : intervals)
      times.push_back(interval[lane]);
    timings.push_back(summarize(std::move(times)));
  }
  return timings;
}

Timing measure_slowest_lane(Lanes& lanes,
                            const std::function<void(std::size_t lane, int call)>& work,
                            const LaneOptions& options) {
  std::vector<double> times;
  for (const std::vector<double>& interval : repeat_lanes(lanes, work, options))
    times.push_back(*std::max_element(interval.begin(), interval.end()));
  return summarize(std::move(times));
}

}  // namespace trainyard::probe
