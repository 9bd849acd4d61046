// What the host pays for handing work to the device, and what the device pays for beginning it.
#include "suite.h"
#include "timing.h"

namespace trainyard::probe {
namespace {

constexpr int kBatch = 256;  // below the depth of a stream's queue (1024), which would make it wait
constexpr int kNodes = 512;

// As many arguments as a small kernel of a framework has.
__global__ void empty_kernel(float* a, const float* b, long long count, float scale) {
  if (count < 0) a[0] = b[0] * scale;  // never
}

__global__ void spin_kernel(unsigned long long limit_ns) {
  unsigned long long begin, now;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(begin));
  do {
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
  } while (now - begin < limit_ns);
}

class LaunchRun {
 public:
  explicit LaunchRun(Context& context)
      : context_(context), stopwatch_(stream_), repeats_(context.quick ? 20 : 100) {}

  void run() {
    warm_up_device(stream_, 0.05);
    using Step = void (LaunchRun::*)();
    for (const Step step : {&LaunchRun::kernel, &LaunchRun::empty, &LaunchRun::round_trip,
                            &LaunchRun::graph, &LaunchRun::events})
      if (context_.go_on()) (this->*step)();
  }

 private:
  void launch() {
    empty_kernel<<<1, 32, 0, stream_>>>(nullptr, nullptr, 0, 1.0f);
    PROBE_LAUNCHED();
  }

  void write(const char* what, const Timing& timing) {
    context_.samples.write(Sample("launch").text("what", what).timing(timing));
  }

  void kernel() {
    write("kernel",
          measure_host([this] { launch(); }, [this] { stream_.wait(); }, kBatch, repeats_));
  }

  // Launched one by one, but held back until all are enqueued: the device's pace, not the host's.
  void empty() {
    TimingOptions options;
    options.graph = false;
    options.most_repeats = repeats_;
    write("empty_kernel", stopwatch_.measure([this](long long) { launch(); }, options));
  }

  void round_trip() {
    const auto call = [this] {
      launch();
      stream_.wait();
    };
    write("round_trip", measure_host(
                            call, [] {}, 1, repeats_ * 4));
  }

  void graph() {
    cudaGraph_t captured = nullptr;
    PROBE_CUDA(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal));
    for (int i = 0; i < kNodes; ++i)
      launch();
    PROBE_CUDA(cudaStreamEndCapture(stream_, &captured));
    struct Owner {
      cudaGraph_t graph;
      cudaGraphExec_t executable = nullptr;
      ~Owner() {
        if (executable != nullptr) cudaGraphExecDestroy(executable);
        cudaGraphDestroy(graph);
      }
    } owner{captured};
    PROBE_CUDA(cudaGraphInstantiateWithFlags(&owner.executable, captured, 0));
    PROBE_CUDA(cudaGraphUpload(owner.executable, stream_));
    const auto once = [&] { PROBE_CUDA(cudaGraphLaunch(owner.executable, stream_)); };

    TimingOptions options;
    options.graph = false;
    options.most_repeats = repeats_;
    options.limit_us = 200'000;
    Timing nodes = stopwatch_.measure([&](long long) { once(); }, options);
    nodes.median_us /= kNodes;
    write("graph_node", nodes);
    if (context_.go_on())
      write("graph_launch", measure_host(
                                once, [this] { stream_.wait(); }, 1, repeats_));
  }

  void events() {
    const Event mark(cudaEventDisableTiming);
    write("event_record", measure_host([&] { mark.record(stream_); }, [this] { stream_.wait(); },
                                       kBatch, repeats_));
    // An event that has happened is no reason to wait, and the driver may say so at once: keep the
    // other stream busy while waits are enqueued.
    const Stream other;
    const Event pending(cudaEventDisableTiming);
    const auto hold = [&] {
      stream_.wait();
      other.wait();
      spin_kernel<<<1, 1, 0, other>>>(3'000'000ull);
      PROBE_LAUNCHED();
      pending.record(other);
    };
    hold();
    write("stream_wait", measure_host([&] { PROBE_CUDA(cudaStreamWaitEvent(stream_, pending, 0)); },
                                      hold, kBatch, context_.quick ? 10 : 40));
    stream_.wait();
    other.wait();
  }

  Context& context_;
  Stream stream_;
  Stopwatch stopwatch_;
  int repeats_;
};

}  // namespace

void run_launch(Context& context) {
  LaunchRun(context).run();
}

}  // namespace trainyard::probe
