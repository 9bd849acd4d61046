// Copies between host and device and inside of each, by size.
#include <algorithm>
#include <cstring>

#include "suite.h"
#include "timing.h"

namespace trainyard::probe {
namespace {

constexpr std::size_t kLeast = std::size_t{4} << 10;
constexpr std::size_t kMost = std::size_t{256} << 20;
// Twice the largest copy: also more than the caches of today's processors.
constexpr std::size_t kBlock = 2 * kMost;

class CopyRun {
 public:
  explicit CopyRun(Context& context)
      : context_(context),
        stopwatch_(stream_),
        device_from_(kBlock),
        device_to_(kBlock),
        pinned_(kBlock),
        pageable_(kBlock / 8),
        pageable_to_(kBlock / 8) {
    fill_random(Type::fp32, device_from_.data(), kBlock / 4, 1, stream_);
    PROBE_CUDA(cudaMemcpyAsync(pinned_.data(), device_from_.data(), kBlock, cudaMemcpyDeviceToHost,
                               stream_));
    stream_.wait();
    std::memcpy(pageable_.data(), pinned_.data(), kBlock);
    std::memcpy(pageable_to_.data(), pinned_.data(), kBlock);
  }

  void run() {
    // Coarse sizes of every direction first, so that a budget that ends early leaves whole curves.
    for (const std::size_t first : {kLeast, 2 * kLeast}) {
      for (std::size_t bytes = first; bytes <= kMost; bytes *= 4)
        all_directions(bytes);
      if (context_.quick) break;
    }
  }

 private:
  void all_directions(std::size_t bytes) {
    using Step = void (CopyRun::*)(std::size_t);
    for (const Step step :
         {&CopyRun::pinned_to_device, &CopyRun::pinned_to_host, &CopyRun::inside_device,
          &CopyRun::pageable_to_device, &CopyRun::pageable_to_host, &CopyRun::inside_host})
      if (context_.go_on()) (this->*step)(bytes);
  }

  void write(const char* direction, bool pinned, std::size_t bytes, const Timing& timing) {
    context_.show(std::string("copy ") + direction + " " + std::to_string(bytes));
    context_.samples.write(Sample("copy")
                               .text("direction", direction)
                               .flag("pinned", pinned)
                               .number("bytes", bytes)
                               .timing(timing));
  }

  // By the copy engine; the host only enqueues.
  Timing asynchronous(std::byte* to, const std::byte* from, std::size_t bytes,
                      cudaMemcpyKind kind) {
    // kBlock holds at least two places of any size; 3 x L2 of today's devices is less than kBlock.
    const Rotation rotation = rotate(bytes, kBlock, kBlock, 1, 1 << 16);
    TimingOptions options;
    options.graph = false;
    options.limit_us = context_.quick ? 20'000 : 100'000;
    return stopwatch_.measure(
        [&](long long call) {
          const std::size_t at = rotation.offset(call);
          PROBE_CUDA(cudaMemcpyAsync(to + at, from + at, bytes, kind, stream_));
        },
        options);
  }

  // The host waits for each copy, as it does in a program that uses pageable memory.
  Timing synchronous(std::byte* to, const std::byte* from, std::size_t bytes, cudaMemcpyKind kind) {
    const Rotation rotation = rotate(bytes, kBlock, kBlock, 1, 1 << 16);
    long long call = 0;
    const auto copy = [&] {
      const std::size_t at = rotation.offset(call++);
      PROBE_CUDA(cudaMemcpyAsync(to + at, from + at, bytes, kind, stream_));
      stream_.wait();
    };
    return measure_host(
        copy, [] {}, 1, repeats(bytes));
  }

  int repeats(std::size_t bytes) const {
    const int most = context_.quick ? 20 : 60;
    return bytes >= (std::size_t{16} << 20) ? most / 10 + 1 : most;
  }

  void pinned_to_device(std::size_t bytes) {
    write("h2d", true, bytes,
          asynchronous(device_to_.data(), pinned_.data(), bytes, cudaMemcpyHostToDevice));
  }
  void pinned_to_host(std::size_t bytes) {
    write("d2h", true, bytes,
          asynchronous(pinned_.data(), device_from_.data(), bytes, cudaMemcpyDeviceToHost));
  }
  void inside_device(std::size_t bytes) {
    write("d2d", false, bytes,
          asynchronous(device_to_.data(), device_from_.data(), bytes, cudaMemcpyDeviceToDevice));
  }
  void pageable_to_device(std::size_t bytes) {
    write("h2d", false, bytes,
          synchronous(device_to_.data(), host(pageable_), bytes, cudaMemcpyHostToDevice));
  }
  void pageable_to_host(std::size_t bytes) {
    write("d2h", false, bytes,
          synchronous(host(pageable_to_), device_from_.data(), bytes, cudaMemcpyDeviceToHost));
  }
  void inside_host(std::size_t bytes) {
    const Rotation rotation = rotate(bytes, kBlock, kBlock, 1, 1 << 16);
    long long call = 0;
    const auto copy = [&] {
      const std::size_t at = rotation.offset(call++);
      std::memcpy(host(pageable_to_) + at, host(pageable_) + at, bytes);
    };
    const int batch = static_cast<int>(std::max<std::size_t>(1, (std::size_t{1} << 20) / bytes));
    write("h2h", false, bytes,
          measure_host(
              copy, [] {}, batch, repeats(bytes)));
  }

  static std::byte* host(std::vector<double>& block) {
    return reinterpret_cast<std::byte*>(block.data());
  }

  Context& context_;
  Stream stream_;
  Stopwatch stopwatch_;
  DeviceBuffer device_from_, device_to_;
  PinnedBuffer pinned_;
  std::vector<double> pageable_, pageable_to_;
};

}  // namespace

void run_copy(Context& context) {
  CopyRun(context).run();
}

}  // namespace trainyard::probe
