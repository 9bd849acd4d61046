// The machine line: what is measured, and in which state.
#include <algorithm>
#include <chrono>
#include <memory>
#include <thread>

#include "host.h"
#include "matmul.h"
#include "nvml.h"
#include "suite.h"
#include "timing.h"

#ifdef TRAINYARD_PROBE_CUDNN
#include <cudnn.h>
#endif
#ifdef TRAINYARD_PROBE_NCCL
#include <nccl.h>
#endif

namespace trainyard::probe {
namespace {

// Raised when a method of measurement changes, so that old and new samples can be told apart.
constexpr const char* kProgram = "trainyard-probe 1";

__global__ void clock_kernel(long long* ticks_and_ns) {
  unsigned long long begin, now;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(begin));
  const long long tick = clock64();
  do {
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
  } while (now - begin < 1'000'000ull);
  ticks_and_ns[0] = clock64() - tick;
  ticks_and_ns[1] = static_cast<long long>(now - begin);
}

struct Load {
  double clock_mhz = 0;  // 0: not known
  double power_w = 0;
  int pcie_generation = 0, pcie_width = 0;
};

double median(std::vector<double> values) {
  return values.empty() ? 0 : summarize(std::move(values)).median_us;
}

// Large products on one device, without end.
class Burner {
 public:
  explicit Burner(const DeviceInfo& device) : device_(device) {
    PROBE_CUDA(cudaSetDevice(device.index));
    stream_ = std::make_unique<Stream>();
    library_ = std::make_unique<MatmulLibrary>();
    done_ = std::make_unique<Event>(cudaEventDisableTiming);
    const Type type = can_multiply(device, Type::bf16) ? Type::bf16 : Type::fp16;
    const GemmShape shape{4096, 4096, 4096, 1, Layout::tn};
    const Operands operands = operands_of(shape, type);
    input_ = DeviceBuffer(operands.input_bytes);
    output_ = DeviceBuffer(operands.output_bytes);
    fill_random(type, input_.data(), operands.input_bytes / type_bytes(type), 1, *stream_);
    product_ = std::make_unique<Matmul>(*library_, shape, type);
  }
  // Keeps some work queued.
  void feed() {
    PROBE_CUDA(cudaSetDevice(device_.index));
    const cudaError_t state = cudaEventQuery(*done_);
    if (state == cudaErrorNotReady) {
      cudaGetLastError();
      return;
    }
    PROBE_CUDA(state);
    done_->record(*stream_);  // reached when the calls of last time are through
    for (int i = 0; i < 128 && product_->supported(); ++i)
      product_->enqueue(input_.data(), output_.data(), *stream_);
  }
  // The clock as the multiprocessors count it, right after the load.
  double clock_mhz() {
    PROBE_CUDA(cudaSetDevice(device_.index));
    DeviceBuffer out(2 * sizeof(long long));
    long long values[2] = {};
    clock_kernel<<<1, 1, 0, *stream_>>>(out.as<long long>());
    PROBE_LAUNCHED();
    PROBE_CUDA(
        cudaMemcpyAsync(values, out.data(), sizeof values, cudaMemcpyDeviceToHost, *stream_));
    stream_->wait();
    return values[1] > 0 ? 1e3 * static_cast<double>(values[0]) / static_cast<double>(values[1])
                         : 0;
  }

 private:
  DeviceInfo device_;
  std::unique_ptr<Stream> stream_;
  std::unique_ptr<MatmulLibrary> library_;
  std::unique_ptr<Event> done_;
  DeviceBuffer input_, output_;
  std::unique_ptr<Matmul> product_;
};

// All devices at once, as in training: they share the power and the cooling of the box.
std::vector<Load> under_load(const Context& context, const Nvml& nvml) {
  using Clock = std::chrono::steady_clock;
  const std::vector<DeviceInfo>& devices = context.devices;
  std::vector<std::unique_ptr<Burner>> burners;
  for (const DeviceInfo& device : devices)
    burners.push_back(std::make_unique<Burner>(device));
  // The driver's power is an average of up to a second; what it says before that is not used.
  const double seconds = context.quick ? 1.3 : 3.0;
  const double settled = context.quick ? 0.9 : 1.5;
  std::vector<std::vector<double>> clocks(devices.size()), watts(devices.size());
  std::vector<Load> loads(devices.size());
  const Clock::time_point begin = Clock::now();
  for (double now = 0; now < seconds && interrupt_signal() == 0;) {
    for (std::size_t i = 0; i < devices.size(); ++i) {
      burners[i]->feed();
      const Nvml::Device device = nvml.device(devices[i].pci);
      if (now < settled || device == nullptr) continue;
      if (const auto value = nvml.clock_mhz(device)) clocks[i].push_back(*value);
      if (const auto value = nvml.power_w(device)) watts[i].push_back(*value);
      loads[i].pcie_generation = nvml.pcie_generation(device).value_or(0);
      loads[i].pcie_width = nvml.pcie_width(device).value_or(0);
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
    now = std::chrono::duration<double>(Clock::now() - begin).count();
  }
  for (std::size_t i = 0; i < devices.size(); ++i) {
    const double counted = burners[i]->clock_mhz();
    loads[i].clock_mhz = clocks[i].empty() ? counted : median(clocks[i]);
    loads[i].power_w = median(watts[i]);
  }
  PROBE_CUDA(cudaSetDevice(devices.front().index));
  return loads;
}

std::string object(const Sample& sample) {
  // Without the line break and without the kind that every line begins with.
  std::string text = sample.line();
  text.pop_back();
  const std::size_t comma = text.find(',');
  return comma == std::string::npos ? "{}" : "{" + text.substr(comma + 1);
}

template <class Row>
std::string matrix(std::size_t count, const Row& cell) {
  std::string text = "[";
  for (std::size_t i = 0; i < count; ++i) {
    text += i > 0 ? ",[" : "[";
    for (std::size_t j = 0; j < count; ++j)
      text += (j > 0 ? "," : "") + cell(i, j);
    text += "]";
  }
  return text + "]";
}

std::string gpu_object(const DeviceInfo& device, const Nvml& nvml, double idle_w,
                       const Load& load) {
  Sample gpu("gpu");
  gpu.text("name", device.name)
      .text("compute_capability", std::to_string(device.major) + "." + std::to_string(device.minor))
      .number("multiprocessors", device.multiprocessors)
      .number("memory_bytes", device.memory_bytes)
      .number("l2_bytes", device.l2_bytes)
      .number("memory_bus_bits", device.memory_bus_bits);
  const Nvml::Device handle = nvml.device(device.pci);
  const double memory = nvml.memory_clock_mhz(handle).value_or(device.memory_clock_mhz);
  const double highest = nvml.max_clock_mhz(handle).value_or(device.clock_mhz);
  if (memory > 0) gpu.number("memory_clock_mhz", memory);
  if (highest > 0) gpu.number("clock_mhz", highest);
  if (load.clock_mhz > 0) gpu.number("clock_busy_mhz", load.clock_mhz);
  if (idle_w > 0) gpu.number("power_idle_w", idle_w);
  if (load.power_w > 0) gpu.number("power_busy_w", load.power_w);
  Pcie pcie = pcie_of(device.pci).value_or(Pcie{});
  if (load.pcie_generation > 0) pcie.generation = load.pcie_generation;
  if (load.pcie_width > 0) pcie.width = load.pcie_width;
  if (pcie.generation > 0 && pcie.width > 0)
    gpu.json(
        "pcie",
        object(Sample("pcie").number("generation", pcie.generation).number("width", pcie.width)));
  if (const auto node = numa_of(device.pci)) gpu.number("numa", *node);
  return object(gpu);
}

// How many NVLinks lead from each device to each other one. Links to a switch lead to all.
std::vector<std::vector<int>> nvlink_counts(const std::vector<DeviceInfo>& devices,
                                            const Nvml& nvml) {
  const std::size_t count = devices.size();
  std::vector<std::vector<std::string>> ends;
  for (const DeviceInfo& device : devices) {
    const auto links = nvml.nvlinks(nvml.device(device.pci));
    if (!links) return {};
    ends.push_back(*links);
  }
  const auto to_switch = [&](std::size_t i) {
    return static_cast<int>(std::count(ends[i].begin(), ends[i].end(), ""));
  };
  std::vector<std::vector<int>> counts(count, std::vector<int>(count, 0));
  for (std::size_t i = 0; i < count; ++i)
    for (std::size_t j = 0; j < count; ++j)
      if (i != j)
        counts[i][j] =
            static_cast<int>(std::count(ends[i].begin(), ends[i].end(), devices[j].pci)) +
            std::min(to_switch(i), to_switch(j));
  return counts;
}

void add_links(Sample& line, const std::vector<DeviceInfo>& devices, const Nvml& nvml) {
  const std::vector<std::vector<int>> counts = nvlink_counts(devices, nvml);
  if (!counts.empty())
    line.json("nvlinks", matrix(devices.size(), [&](std::size_t i, std::size_t j) {
                return std::to_string(counts[i][j]);
              }));
  line.json("links", matrix(devices.size(), [&](std::size_t i, std::size_t j) {
              if (i == j) return json_text("X");
              if (!counts.empty() && counts[i][j] > 0)
                return json_text("NV" + std::to_string(counts[i][j]));
              const std::string path =
                  nvml.path(nvml.device(devices[i].pci), nvml.device(devices[j].pci));
              return json_text(path.empty() ? pci_path(devices[i].pci, devices[j].pci) : path);
            }));
}

std::string dotted(std::size_t version) {
  return std::to_string(version / 10000) + "." + std::to_string(version / 100 % 100) + "." +
         std::to_string(version % 100);
}

void add_versions(Sample& line, const Nvml& nvml) {
  const std::string driver = nvml.loaded() ? nvml.driver() : driver_version();
  if (!driver.empty()) line.text("driver", driver);
  int runtime = 0;
  if (cudaRuntimeGetVersion(&runtime) == cudaSuccess)
    line.text("cuda", std::to_string(runtime / 1000) + "." + std::to_string(runtime % 1000 / 10));
  line.text("cublas", dotted(cublasLtGetVersion()));
#ifdef TRAINYARD_PROBE_CUDNN
  line.text("cudnn", dotted(cudnnGetVersion()));
#endif
#ifdef TRAINYARD_PROBE_NCCL
  int nccl = 0;
  if (ncclGetVersion(&nccl) == ncclSuccess)
    line.text("nccl", dotted(static_cast<std::size_t>(nccl)));
#endif
}

}  // namespace

void run_machine(Context& context) {
  const Nvml nvml;
  const std::vector<DeviceInfo>& devices = context.devices;
  if (!nvml.loaded())
    context.note("libnvidia-ml.so.1 was not found: power and NVLinks are left out");
  std::vector<double> idle;
  for (const DeviceInfo& device : devices)
    idle.push_back(nvml.power_w(nvml.device(device.pci)).value_or(0));
  // A run without its machine line cannot be fitted: what fails here costs the clock, not the line.
  std::vector<Load> loads(devices.size());
  try {
    loads = under_load(context, nvml);
  } catch (const std::exception& error) {
    context.note(std::string("machine: nothing is known of the load: ") + error.what());
  }
  std::string gpus;
  for (std::size_t i = 0; i < devices.size(); ++i)
    gpus += (i > 0 ? "," : "") + gpu_object(devices[i], nvml, idle[i], loads[i]);

  Sample line("machine");
  line.text("probe", kProgram).text("date", utc_date()).json("gpus", "[" + gpus + "]");
  if (devices.size() > 1) add_links(line, devices, nvml);
  add_versions(line, nvml);
  if (const std::string name = cpu_name(); !name.empty()) line.text("cpu", name);
  if (const auto count = sockets()) line.number("sockets", *count);
  if (const auto bytes = host_memory_bytes()) line.number("host_memory_bytes", *bytes);
  context.samples.write(line);
}

}  // namespace trainyard::probe
