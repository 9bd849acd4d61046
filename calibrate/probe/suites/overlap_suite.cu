// What compute loses to communication beside it, and the other way round: kernels are timed alone
// and beside blocks that hold multiprocessors, or that also stream memory.
#include <algorithm>
#include <memory>
#include <optional>

#include "load.h"
#include "matmul.h"
#include "suite.h"
#include "timing.h"

namespace trainyard::probe {
namespace {

constexpr int kThreads = 256;
constexpr int kVectorsPerThread = 4;
constexpr std::size_t kVictimBytes = std::size_t{256} << 20;  // of one operand of a memory victim
constexpr std::size_t kStreamedBytes = std::size_t{512} << 20;
constexpr double kWatchUs = 3000;  // the load is watched for at least this long

// out = a, or a + b: blocks of 16 KiB, as elementwise kernels of frameworks have them.
template <bool Add>
__global__ void __launch_bounds__(kThreads)
    victim_kernel(const float4* __restrict__ a, const float4* __restrict__ b,
                  float4* __restrict__ out, long long count) {
  const long long first =
      static_cast<long long>(blockIdx.x) * kThreads * kVectorsPerThread + threadIdx.x;
#pragma unroll
  for (int i = 0; i < kVectorsPerThread; ++i) {
    const long long at = first + i * kThreads;
    if (at >= count) return;
    float4 value = a[at];
    if constexpr (Add) {
      const float4 other = b[at];
      value = {value.x + other.x, value.y + other.y, value.z + other.z, value.w + other.w};
    }
    out[at] = value;
  }
}

// A kernel that is slowed down. `describe` adds its keys to a sample.
struct Victim {
  std::string name;
  std::function<void(cudaStream_t)> enqueue;
  std::function<void(Sample&)> describe;
};

Victim memory_victim(bool add, const DeviceBuffer& a, const DeviceBuffer& b,
                     const DeviceBuffer& out) {
  const auto bytes = static_cast<long long>(out.bytes());
  const long long vectors = bytes / static_cast<long long>(sizeof(float4));
  constexpr long long kPerBlock = kThreads * kVectorsPerThread;
  const auto blocks = static_cast<unsigned>((vectors + kPerBlock - 1) / kPerBlock);
  Victim victim;
  victim.name = add ? "add" : "copy";
  victim.enqueue = [=, pa = a.as<float4>(), pb = b.as<float4>(),
                    po = out.as<float4>()](cudaStream_t stream) {
    if (add)
      victim_kernel<true><<<blocks, kThreads, 0, stream>>>(pa, pb, po, vectors);
    else
      victim_kernel<false><<<blocks, kThreads, 0, stream>>>(pa, pb, po, vectors);
    PROBE_LAUNCHED();
  };
  victim.describe = [=](Sample& sample) {
    sample.text("victim", "memory")
        .text("op", "elementwise")
        .text("variant", add ? "add" : "copy")
        .text("dtype", "fp32")
        .number("read_bytes", add ? 2 * bytes : bytes)
        .number("written_bytes", bytes);
  };
  return victim;
}

class OverlapRun {
 public:
  explicit OverlapRun(Context& context)
      : context_(context),
        watch_(stream_),
        load_(context.device(), std::min(kStreamedBytes, free_memory() / 16)) {
    make_gemms();
    const std::size_t bytes = std::min(kVictimBytes, free_memory() / 16) / 4096 * 4096;
    for (DeviceBuffer* buffer : {&a_, &b_, &out_}) {
      *buffer = DeviceBuffer(bytes);
      fill_random(Type::fp32, buffer->data(), bytes / sizeof(float), 3, stream_);
    }
    stream_.wait();
    for (const bool add : {false, true})
      victims_.push_back(memory_victim(add, a_, b_, out_));
  }

  void run() {
    warm_up_device(stream_, context_.quick ? 0.1 : 0.5);
    for (const int channels : channel_counts())
      for (const LoadKind kind : {LoadKind::hold, LoadKind::stream})
        for (const Victim& victim : victims_) {
          if (!context_.go_on()) return;
          context_.show("overlap: " + victim.name + " beside " + std::to_string(channels) +
                        " blocks");
          one(victim, kind, channels);
        }
  }

 private:
  void make_gemms();
  std::vector<int> channel_counts() const;
  Timing time(const Victim& victim);
  std::optional<double> watch_load_alone(int channels);
  void watch_load_beside(const Victim& victim, double call_us);
  void one(const Victim& victim, LoadKind kind, int channels);

  Context& context_;
  Stream stream_;
  Stopwatch watch_;
  Load load_;
  MatmulLibrary library_;
  std::vector<std::unique_ptr<Matmul>> products_;
  DeviceBuffer gemm_input_, gemm_output_, a_, b_, out_;
  std::vector<Victim> victims_;
};

// A product of many waves, and one of few: of these the last wave counts.
void OverlapRun::make_gemms() {
  std::vector<GemmShape> shapes(2);
  shapes[0].m = shapes[0].n = 8192;
  shapes[0].k = 4096;
  shapes[1].m = shapes[1].n = shapes[1].k = 4096;
  const Type type = can_multiply(context_.device(), Type::bf16) ? Type::bf16 : Type::fp16;
  const Operands largest = operands_of(shapes[0], type);
  gemm_input_ = DeviceBuffer(largest.input_bytes);
  gemm_output_ = DeviceBuffer(largest.output_bytes);
  fill_random(type, gemm_input_.data(), gemm_input_.bytes() / type_bytes(type), 1, stream_);
  for (GemmShape& shape : shapes) {
    shape.batch = 1;
    auto product = std::make_unique<Matmul>(library_, shape, type);
    if (!product->supported()) {
      context_.note("overlap: cuBLASLt has no algorithm for a product to slow down");
      continue;
    }
    Victim victim;
    victim.name = "gemm";
    victim.enqueue = [this, product = product.get()](cudaStream_t stream) {
      product->enqueue(gemm_input_.data(), gemm_output_.data(), stream);
    };
    victim.describe = [shape, type](Sample& sample) {
      sample.text("victim", "gemm")
          .text("dtype", type_name(type))
          .number("m", shape.m)
          .number("n", shape.n)
          .number("k", shape.k);
    };
    victims_.push_back(std::move(victim));
    products_.push_back(std::move(product));
  }
}

std::vector<int> OverlapRun::channel_counts() const {
  std::vector<int> counts;
  const std::vector<int> wanted =
      context_.quick ? std::vector<int>{8, 24} : std::vector<int>{24, 8, 16, 32, 4, 1, 2, 48, 64};
  for (const int count : wanted)
    if (count <= load_.most_channels()) counts.push_back(count);
  if (counts.empty()) counts.push_back(load_.most_channels());
  return counts;
}

// No graph: instantiating one might wait for the load. Calls are long, so that launches do not
// show.
Timing OverlapRun::time(const Victim& victim) {
  TimingOptions options;
  options.graph = false;
  options.interval_us = 1500;
  options.limit_us = context_.quick ? 8'000 : 30'000;
  return watch_.measure([&](long long) { victim.enqueue(stream_); }, options);
}

// Nothing if the blocks did not run from one mark to the other.
std::optional<double> OverlapRun::watch_load_alone(int channels) {
  if (!load_.start(LoadKind::stream, channels)) return std::nullopt;
  Load::delay(stream_, 500);
  load_.mark(stream_, 0);
  Load::delay(stream_, kWatchUs);
  load_.mark(stream_, 1);
  stream_.wait();
  if (!load_.stop()) return std::nullopt;
  return load_.piece_us();
}

// From mark to mark the victim is never idle.
void OverlapRun::watch_load_beside(const Victim& victim, double call_us) {
  const int calls = static_cast<int>(std::clamp(kWatchUs / std::max(call_us, 1.0), 2.0, 200.0));
  victim.enqueue(stream_);
  load_.mark(stream_, 0);
  for (int i = 0; i < calls; ++i)
    victim.enqueue(stream_);
  load_.mark(stream_, 1);
  stream_.wait();
}

void OverlapRun::one(const Victim& victim, LoadKind kind, int channels) {
  // Alone right before: the clocks of a device that gets warm are then the same for both.
  const Timing alone = time(victim);
  std::optional<double> load_alone;
  if (kind == LoadKind::stream) {
    load_alone = watch_load_alone(channels);
    if (!load_alone) return context_.note("overlap: the load did not run; left out");
  }
  if (!load_.start(kind, channels))
    return context_.note("overlap: " + std::to_string(channels) + " blocks did not start");
  const Timing beside = time(victim);
  if (kind == LoadKind::stream) watch_load_beside(victim, beside.median_us);
  if (!load_.stop()) return context_.note("overlap: the load ended too early; left out");

  Sample sample("overlap");
  victim.describe(sample);
  sample.text("load", kind == LoadKind::hold ? "hold" : "stream")
      .number("channels", channels)
      .number("multiprocessors", context_.device().multiprocessors)
      .number("alone_us", alone.median_us);
  if (load_alone) {
    const double load_us = load_.piece_us();
    if (load_us <= 0 || *load_alone <= 0)
      return context_.note("overlap: the load stood still beside " + victim.name + "; left out");
    sample.number("load_alone_us", *load_alone)
        .number("load_us", load_us)
        .number("load_bytes", load_.bytes_per_piece());
  }
  context_.samples.write(sample.timing(beside));
}

}  // namespace

void run_overlap(Context& context) {
  OverlapRun(context).run();
}

}  // namespace trainyard::probe
