#include <algorithm>
#include <chrono>

#include "timing.h"

namespace trainyard::probe {
namespace {

constexpr double kShortUs = 40;  // below, launching from the host may take longer than the work
constexpr unsigned long long kGateNs = 5'000'000;

__device__ unsigned long long nanoseconds() {
  unsigned long long now;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
  return now;
}

// Waits until the host has written `epoch`, so that what stands behind it in the stream is enqueued
// in full before it begins. Gives up after kGateNs: the host may have been waiting for the device.
__global__ void gate_kernel(const volatile unsigned* flag, unsigned epoch) {
  const unsigned long long begin = nanoseconds();
  while (*flag != epoch && nanoseconds() - begin < kGateNs) {
  }
}

__global__ void busy_kernel(float* out, unsigned long long nanosecond_limit) {
  const unsigned long long begin = nanoseconds();
  float a = static_cast<float>(threadIdx.x) * 1e-3f;
  float b = 0.5f;
  do {
    for (int i = 0; i < 1024; ++i) {
      a = a * 0.999f + b;
      b = b * 1.001f - a * 1e-3f;
    }
  } while (nanoseconds() - begin < nanosecond_limit);
  if (a == 12345.0f) *out = b;  // never; keeps the loop
}

}  // namespace

Rotation rotate(std::size_t bytes_of_one_call, std::size_t l2_bytes, std::size_t most_bytes,
                double factor, int most_copies) {
  Rotation rotation;
  rotation.stride = (std::max<std::size_t>(bytes_of_one_call, 1) + 255) / 256 * 256;
  const auto wanted = static_cast<std::size_t>(factor * static_cast<double>(l2_bytes));
  std::size_t copies = (wanted + rotation.stride - 1) / rotation.stride;
  copies = std::min({copies, most_bytes / rotation.stride, static_cast<std::size_t>(most_copies)});
  rotation.copies = static_cast<int>(std::max<std::size_t>(copies, 1));
  return rotation;
}

Stopwatch::Stopwatch(cudaStream_t stream)
    : stream_(stream), flag_(sizeof(unsigned), cudaHostAllocMapped | cudaHostAllocPortable) {
  *reinterpret_cast<volatile unsigned*>(flag_.data()) = 0;
}

double Stopwatch::interval(const std::function<void()>& enqueue, bool gate) {
  auto* flag = reinterpret_cast<volatile unsigned*>(flag_.data());
  ++epoch_;
  if (gate) {
    gate_kernel<<<1, 1, 0, stream_>>>(flag, epoch_);
    PROBE_LAUNCHED();
  }
  start_.record(stream_);
  enqueue();
  stop_.record(stream_);
  *flag = epoch_;
  stop_.wait();
  return elapsed_us(start_, stop_);
}

Timing Stopwatch::repeat(const std::function<void()>& enqueue, int batch, double estimate_us,
                         const TimingOptions& options) {
  const double one = std::max(estimate_us * batch, 1.0);
  const int repeats = static_cast<int>(std::clamp(options.limit_us / one,
                                                  static_cast<double>(options.least_repeats),
                                                  static_cast<double>(options.most_repeats)));
  std::vector<double> times;
  for (int i = 0; i < repeats; ++i)
    times.push_back(interval(enqueue, options.gate) / batch);
  return summarize(std::move(times));
}

// False if the work cannot be captured; it is then launched call by call.
bool Stopwatch::capture(const Work& work, int batch, cudaGraphExec_t& graph) {
  cudaGraph_t captured = nullptr;
  PROBE_CUDA(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeRelaxed));
  bool whole = true;
  try {
    for (int i = 0; i < batch; ++i)
      work(i);
  } catch (const std::runtime_error&) {
    whole = false;
  }
  const cudaError_t ended = cudaStreamEndCapture(stream_, &captured);
  if (!whole || ended != cudaSuccess || captured == nullptr) {
    if (captured != nullptr) cudaGraphDestroy(captured);
    cudaGetLastError();
    return false;
  }
  const cudaError_t made = cudaGraphInstantiateWithFlags(&graph, captured, 0);
  cudaGraphDestroy(captured);
  // A device that has failed shows it again at the next call.
  if (made != cudaSuccess) cudaGetLastError();
  return made == cudaSuccess;
}

Timing Stopwatch::measure(const Work& work, const TimingOptions& options) {
  long long call = 0;
  const auto calls = [&](int count) {
    return [&, count] {
      for (int i = 0; i < count; ++i)
        work(call++);
    };
  };
  // The first call loads code and the second may still find cold page tables.
  work(call++);
  PROBE_CUDA(cudaStreamSynchronize(stream_));
  double estimate = interval(calls(1), options.gate);
  if (estimate < 2000) estimate = interval(calls(8), options.gate) / 8;

  int batch = static_cast<int>(std::clamp(options.interval_us / std::max(estimate, 0.01), 1.0,
                                          static_cast<double>(options.most_batch)));
  if (batch * estimate < options.interval_us && batch < options.most_batch) ++batch;
  if (options.graph && estimate < kShortUs) {
    // A graph repeats the same calls: less than a round would find its operands in the cache.
    const int rounds = (batch + options.copies - 1) / options.copies;
    const int captured = std::max(1, rounds) * options.copies;
    cudaGraphExec_t graph = nullptr;
    if (capture(work, captured, graph)) {
      const auto replay = [&] { PROBE_CUDA(cudaGraphLaunch(graph, stream_)); };
      struct Owner {
        cudaGraphExec_t graph;
        ~Owner() { cudaGraphExecDestroy(graph); }
      } owner{graph};
      PROBE_CUDA(cudaGraphUpload(graph, stream_));
      interval(replay, options.gate);
      return repeat(replay, captured, estimate, options);
    }
  }
  return repeat(calls(batch), batch, estimate, options);
}

Timing measure(cudaStream_t stream, const Work& work, const TimingOptions& options) {
  return Stopwatch(stream).measure(work, options);
}

Timing measure_host(const std::function<void()>& call, const std::function<void()>& settle,
                    int batch, int repeats) {
  using Clock = std::chrono::steady_clock;
  std::vector<double> times;
  for (int i = 0; i <= repeats; ++i) {
    const Clock::time_point begin = Clock::now();
    for (int j = 0; j < batch; ++j)
      call();
    const std::chrono::duration<double, std::micro> taken = Clock::now() - begin;
    settle();
    if (i > 0) times.push_back(taken.count() / batch);  // the first one warms up
  }
  return summarize(std::move(times));
}

void warm_up_device(cudaStream_t stream, double seconds) {
  int device = 0, multiprocessors = 0;
  PROBE_CUDA(cudaGetDevice(&device));
  PROBE_CUDA(cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, device));
  DeviceBuffer out(sizeof(float));
  const auto begin = std::chrono::steady_clock::now();
  do {
    busy_kernel<<<static_cast<unsigned>(multiprocessors * 4), 256, 0, stream>>>(out.as<float>(),
                                                                                10'000'000ull);
    PROBE_LAUNCHED();
    PROBE_CUDA(cudaStreamSynchronize(stream));
  } while (std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count() <
           seconds);
}

}  // namespace trainyard::probe
