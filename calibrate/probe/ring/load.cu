#include <algorithm>
#include <chrono>
#include <thread>

#include "load.h"
#include "message.h"

namespace trainyard::probe {
namespace {

// A block is as large as one of NCCL, which runs 512 threads and more and is compiled for up to 96
// registers each (makefiles/common.mk there): what else runs on its multiprocessor has to do with
// the rest.
constexpr int kThreads = 512;
constexpr int kKeptValues = 84;
constexpr int kMostChannels = 256;
constexpr unsigned long long kLimitNs = 5'000'000'000;
constexpr auto kStartLimit = std::chrono::seconds(1);

struct LoadArguments {
  const volatile unsigned* stop;
  volatile unsigned* running;  // by block
  volatile unsigned* ended;
  volatile unsigned long long* progress;
  unsigned epoch;
  const float4* source;
  float4* target;
  long long pieces;  // of either buffer
  float* sink;
};

// Tells the host that the block is there. Both words lie in host memory.
__device__ void announce(const LoadArguments& a) {
  if (threadIdx.x == 0) {
    a.running[blockIdx.x] = a.epoch;
    __threadfence_system();
  }
}

// Thread 0 says whether it was the host that ended the block.
__device__ void leave(const LoadArguments& a, bool told) {
  if (threadIdx.x == 0) {
    a.ended[blockIdx.x] = told ? a.epoch : 0;
    __threadfence_system();
  }
}

__global__ void __launch_bounds__(kThreads, 1) hold_kernel(const LoadArguments a) {
  announce(a);
  const unsigned long long deadline = nanoseconds() + kLimitNs;
  float kept[kKeptValues];
#pragma unroll
  for (int i = 0; i < kKeptValues; ++i)
    kept[i] = static_cast<float>(threadIdx.x + i);
  bool told = false;
  for (;;) {
    // Every value changes every time, so that all of them stay in registers.
#pragma unroll
    for (int i = 0; i < kKeptValues; ++i)
      kept[i] = kept[i] * 0.5f + kept[(i + 1) % kKeptValues];
    bool over = false;
    if (threadIdx.x == 0) {
      told = *a.stop == a.epoch;
      over = told || nanoseconds() > deadline;
    }
    if (__syncthreads_or(over)) break;
    __nanosleep(500);
  }
  float all = 0;
#pragma unroll
  for (int i = 0; i < kKeptValues; ++i)
    all += kept[i];
  if (all == 1e-30f) *a.sink = all;  // never
  leave(a, told);
}

// Blocks take turns with the pieces of the buffers, so that no piece is in the cache when it is
// read again.
__global__ void __launch_bounds__(kThreads, 1) stream_kernel(const LoadArguments a) {
  constexpr int kVectors = static_cast<int>(kLoadPiece / sizeof(float4));
  constexpr int kUnroll = 4;
  static_assert(kVectors % (kThreads * kUnroll) == 0, "a piece is a whole number of rounds");
  announce(a);
  const unsigned long long deadline = nanoseconds() + kLimitNs;
  bool told = false;
  long long piece = static_cast<long long>(blockIdx.x) % a.pieces;
  for (unsigned long long done = 1;; ++done) {
    // Asked before the copy and looked at behind it: the answer of the host takes a microsecond.
    unsigned stop = 0;
    if (threadIdx.x == 0) stop = *a.stop;
    const float4* const from = a.source + piece * kVectors;
    float4* const to = a.target + piece * kVectors;
    for (int i = static_cast<int>(threadIdx.x); i < kVectors; i += kThreads * kUnroll) {
      float4 values[kUnroll];
#pragma unroll
      for (int u = 0; u < kUnroll; ++u)
        values[u] = __ldcs(from + i + u * kThreads);
#pragma unroll
      for (int u = 0; u < kUnroll; ++u)
        __stcs(to + i + u * kThreads, values[u]);
    }
    bool over = false;
    if (threadIdx.x == 0) {
      a.progress[blockIdx.x] = done;
      told = stop == a.epoch;
      over = told || nanoseconds() > deadline;
    }
    if (__syncthreads_or(over)) break;
    piece = (piece + gridDim.x) % a.pieces;
  }
  leave(a, told);
}

// One warp adds what the blocks have done.
__global__ void mark_kernel(const volatile unsigned long long* progress, int channels,
                            unsigned long long* time_and_pieces) {
  unsigned long long pieces = 0;
  for (int i = static_cast<int>(threadIdx.x); i < channels; i += 32)
    pieces += progress[i];
  for (int distance = 16; distance > 0; distance /= 2)
    pieces += __shfl_down_sync(0xffffffffu, pieces, distance);
  if (threadIdx.x != 0) return;
  time_and_pieces[0] = nanoseconds();
  time_and_pieces[1] = pieces;
}

__global__ void delay_kernel(unsigned long long duration_ns) {
  const unsigned long long begin = nanoseconds();
  while (nanoseconds() - begin < duration_ns)
    __nanosleep(1000);
}

}  // namespace

Load::Load(const DeviceInfo& device, std::size_t bytes)
    : most_channels_(std::clamp(device.multiprocessors / 2, 1, kMostChannels)),
      pieces_(std::max<std::size_t>(bytes / kLoadPiece, 1)),
      words_((1 + 2 * kMostChannels) * sizeof(unsigned),
             cudaHostAllocMapped | cudaHostAllocPortable),
      source_(pieces_ * kLoadPiece),
      target_(pieces_ * kLoadPiece),
      progress_(kMostChannels * sizeof(unsigned long long)),
      marks_(2 * sizeof(Mark)) {
  std::fill_n(words_.data(), words_.bytes(), std::byte{0});
  int least = 0, greatest = 0, shared = 0, optional = 0;
  PROBE_CUDA(cudaDeviceGetStreamPriorityRange(&least, &greatest));
  PROBE_CUDA(cudaStreamCreateWithPriority(&stream_, cudaStreamNonBlocking, greatest));
  PROBE_CUDA(
      cudaDeviceGetAttribute(&shared, cudaDevAttrMaxSharedMemoryPerMultiprocessor, device.index));
  PROBE_CUDA(
      cudaDeviceGetAttribute(&optional, cudaDevAttrMaxSharedMemoryPerBlockOptin, device.index));
  // More than half of what a multiprocessor has: two blocks of the load never share one.
  footprint_ = std::min(optional, shared / 2 + 1024);
  for (const auto kernel : {hold_kernel, stream_kernel})
    PROBE_CUDA(
        cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, footprint_));
  fill_random(Type::fp32, source_.data(), source_.bytes() / sizeof(float), 7, stream_);
  PROBE_CUDA(cudaMemsetAsync(progress_.data(), 0, progress_.bytes(), stream_));
  // Loads their code now: that might wait for a load that runs.
  mark(stream_, 0);
  mark(stream_, 1);
  delay(stream_, 1);
  PROBE_CUDA(cudaStreamSynchronize(stream_));
}

Load::~Load() {
  if (runs_) *word(0) = epoch_;
  cudaStreamSynchronize(stream_);
  cudaStreamDestroy(stream_);
}

volatile unsigned* Load::word(int index) const {
  return reinterpret_cast<volatile unsigned*>(words_.data()) + index;
}

bool Load::start(LoadKind kind, int channels) {
  channels_ = std::clamp(channels, 1, most_channels_);
  ++epoch_;
  // Counts of an earlier load must not be seen by the marks of this one.
  PROBE_CUDA(cudaMemsetAsync(progress_.data(), 0, progress_.bytes(), stream_));
  const LoadArguments arguments{word(0),
                                word(1),
                                word(1 + kMostChannels),
                                progress_.as<unsigned long long>(),
                                epoch_,
                                source_.as<float4>(),
                                target_.as<float4>(),
                                static_cast<long long>(pieces_),
                                marks_.as<float>()};
  const auto blocks = static_cast<unsigned>(channels_);
  const auto footprint = static_cast<std::size_t>(footprint_);
  if (kind == LoadKind::hold)
    hold_kernel<<<blocks, kThreads, footprint, stream_>>>(arguments);
  else
    stream_kernel<<<blocks, kThreads, footprint, stream_>>>(arguments);
  PROBE_LAUNCHED();
  runs_ = true;
  const auto begin = std::chrono::steady_clock::now();
  for (int block = 0; block < channels_; ++block)
    while (*word(1 + block) != epoch_) {
      if (std::chrono::steady_clock::now() - begin > kStartLimit) {
        stop();
        return false;
      }
      std::this_thread::yield();
    }
  return true;
}

bool Load::stop() {
  *word(0) = epoch_;
  PROBE_CUDA(cudaStreamSynchronize(stream_));
  runs_ = false;
  bool told = true;
  for (int block = 0; block < channels_; ++block)
    told = told && *word(1 + kMostChannels + block) == epoch_;
  return told;
}

void Load::mark(cudaStream_t stream, int index) {
  mark_kernel<<<1, 32, 0, stream>>>(
      progress_.as<unsigned long long>(), kMostChannels,
      marks_.as<unsigned long long>(static_cast<std::size_t>(index) * sizeof(Mark)));
  PROBE_LAUNCHED();
}

double Load::piece_us() const {
  Mark marks[2];
  PROBE_CUDA(cudaMemcpy(marks, marks_.data(), sizeof marks, cudaMemcpyDeviceToHost));
  const auto pieces = static_cast<double>(marks[1].pieces - marks[0].pieces);
  const double taken = static_cast<double>(marks[1].time_ns - marks[0].time_ns) * 1e-3;
  return pieces > 0 ? taken * channels_ / pieces : 0;
}

void Load::delay(cudaStream_t stream, double microseconds) {
  delay_kernel<<<1, 1, 0, stream>>>(static_cast<unsigned long long>(microseconds * 1e3));
  PROBE_LAUNCHED();
}

}  // namespace trainyard::probe
