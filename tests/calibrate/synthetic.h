// Samples with a known truth: lines of samples.jsonl, and the GPU that they pretend to be of.
#pragma once

#include <fmt/format.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "calibrate/fit/fit.h"
#include "sim/base/random.h"
#include "tests/support/rooms.h"

namespace trainyard::test {

inline constexpr const char* kMachine =
    R"({"kind": "machine", "probe": "test 1", "date": "2026-01-01", "gpus": [{"name": "Test )"
    R"(GPU"}]})";

inline FitGpu test_gpu() {
  FitGpu gpu;
  gpu.name = "test-gpu";
  gpu.peaks.fp32 = FlopsPerSecond(60e12);
  gpu.peaks.bf16 = gpu.peaks.fp16 = FlopsPerSecond(1000e12);
  gpu.peaks.memory_bandwidth = BytesPerSecond(3000e9);
  gpu.peaks.l2 = Bytes(50 << 20);
  gpu.multiprocessors = 132;
  return gpu;
}

inline FitOptions test_options() {
  FitOptions options;
  options.find_gpu = [](const std::string&) { return test_gpu(); };
  return options;
}

// Noise that is the same on every machine: a sum of twelve uniform numbers is nearly normal.
class Noise {
 public:
  explicit Noise(std::uint64_t seed) : random_(seed) {}
  double uniform() { return static_cast<double>(random_.next() >> 11) / 9007199254740992.0; }
  double factor(double sigma) {
    double sum = -6;
    for (int i = 0; i < 12; ++i)
      sum += uniform();
    return std::exp(sigma * sum);
  }
  // A whole number between the powers of two, evenly in the logarithm.
  std::int64_t size(double from, double to) {
    return static_cast<std::int64_t>(std::exp2(from + (to - from) * uniform()));
  }

 private:
  SplitMix64 random_;
};

inline std::string gemm_line(const Gemm& g, double seconds) {
  return fmt::format(
      R"({{"kind": "gemm", "dtype": "{}", "m": {}, "n": {}, "k": {}, "batch": {}, "layout": )"
      R"("TN", "time_us": {:.6g}}})",
      name(g.dtype), g.m, g.n, g.k, g.batch, seconds * 1e6);
}

// Of equal height and width, forward.
inline std::string convolution_line(const Convolution& c, double seconds) {
  return fmt::format(
      R"({{"kind": "convolution", "pass": "forward", "dtype": "{0}", "batch": {1}, )"
      R"("in_channels": {2}, "out_channels": {3}, "in_height": {4}, "in_width": {4}, )"
      R"("out_height": {5}, "out_width": {5}, "kernel_height": {6}, "kernel_width": {6}, )"
      R"("groups": 1, "time_us": {7:.6g}}})",
      name(c.dtype), c.batch, c.in_channels, c.out_channels, c.in_height, c.out_height,
      c.kernel_height, seconds * 1e6);
}

inline std::string collective_line(const std::string& kind, int ranks, std::int64_t bytes,
                                   double seconds, const std::string& backend = "nccl") {
  return fmt::format(
      R"({{"kind": "collective", "collective": "{}", "ranks": {}, "servers": 1, "bytes": )"
      R"({}, "backend": "{}", "time_us": {:.6g}}})",
      kind, ranks, bytes, backend, seconds * 1e6);
}

// 200 random GEMMs under a law, in bf16, each with noise of this size.
// n and k are multiples of `aligned`, m any number.
inline std::vector<std::string> gemm_lines(const GemmLaw& law, double sigma, std::uint64_t seed = 1,
                                           int count = 200, std::int64_t aligned = 8) {
  Profile truth;
  truth.gemm = {law};
  const auto cost = fitted_compute_cost(truth, test_gpu().peaks);
  Noise noise(seed);
  std::vector<std::string> lines;
  for (int i = 0; i < count; ++i) {
    const Gemm g{noise.size(5, 14), aligned * noise.size(4, 11), aligned * noise.size(4, 11), 1,
                 law.dtype};
    lines.push_back(gemm_line(g, cost->time(g).time.count() * noise.factor(sigma)));
  }
  return lines;
}

inline GemmLaw test_gemm_law() {
  GemmLaw law;
  law.dtype = Dtype::bf16;
  law.fixed = Seconds(5e-6);
  law.compute_efficiency = 0.74;
  law.memory_efficiency = 0.9;
  law.exponent = 1.6;
  return law;
}

// A file of its own for one test, removed at its end.
class SampleFile {
 public:
  explicit SampleFile(const std::vector<std::string>& lines,
                      const std::string& machine = kMachine) {
    std::string text = machine + "\n";
    for (const std::string& line : lines)
      text += line + "\n";
    write(text);
  }
  struct Raw {
    std::string text;
  };
  explicit SampleFile(const Raw& raw) { write(raw.text); }
  ~SampleFile() {
    std::error_code code;
    std::filesystem::remove(path_, code);
  }
  SampleFile(const SampleFile&) = delete;
  SampleFile& operator=(const SampleFile&) = delete;
  const std::string& path() const { return path_; }

 private:
  void write(const std::string& text) {
    static int count = 0;
    path_ = (std::filesystem::temp_directory_path() /
             fmt::format("trainyard-samples-{}-{}.jsonl", ::getpid(), ++count))
                .string();
    std::ofstream(path_, std::ios::binary) << text;
  }
  std::string path_;
};

inline FitResult fit_lines(const std::vector<std::string>& lines, const FitGpu& gpu = test_gpu()) {
  const SampleFile file(lines);
  FitOptions options;
  options.find_gpu = [&gpu](const std::string&) { return gpu; };
  return fit_samples({file.path()}, options);
}

// The row of all sizes of a group.
inline HeldOutError error_of(const FitResult& result, const std::string& what) {
  for (const HeldOutError& e : result.profile.calibration->errors)
    if (e.what == what && e.size == "all") return e;
  return {};
}

}  // namespace trainyard::test
