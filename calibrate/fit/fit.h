// From samples that probes measured (docs/samples.md) to a profile. The laws are those of sim/cost
// and are evaluated by its own code, so that an error given here is the simulator's error.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "sim/base/diagnostic.h"
#include "sim/cost/profile.h"

namespace trainyard::fit {

// What the datasheet says of the GPU that was measured.
struct FitGpu {
  std::string name;  // of the preset
  cost::MachinePeaks peaks;
  int multiprocessors = 0;
  // How cuDNN's convolutions in fp32 have Winograd's algorithm there.
  cost::WinogradUse winograd = cost::WinogradUse::separate;
};

struct FitOptions {
  std::string name;  // of the profile; empty: the GPU's
  // The preset of a GPU as the driver calls it ("NVIDIA H200"), or nothing if none is known. It may
  // ignore the device's name and return the preset that the user has chosen.
  std::function<std::optional<FitGpu>(const std::string& device)> find_gpu;
  std::string attention;  // "cudnn" or "tiled"; empty: cudnn where both were measured
  // The profile that gives what the samples cannot: of this GPU, or of one like it. Without: what
  // was not measured stays absent.
  std::function<std::optional<cost::Profile>(const FitGpu&)> find_base;
  // Multiprocessors that a collective and a send hold, which nobody can measure from outside.
  std::optional<int> channels, point_to_point_channels;
};

// held_out: of a family (n, k), size or length that nothing near to it was fitted on.
// held_out_size: another m of a family that was.
enum class SampleFate : std::uint8_t { fitted, held_out, held_out_size, rejected, unused };

// One measured case (repeats of a case merged by their median) and what the profile says of it.
struct FitRecord {
  std::string group;      // "gemm bf16", "memory layer-norm backward"
  std::string size_name;  // "flops" or "bytes"
  double size = 0;
  std::string shape;  // "4096x4096x4096 TN"
  double measured_us = 0;
  double fitted_us = 0;  // 0: no law says anything of it
  SampleFate fate = SampleFate::fitted;
  std::string reason;  // why it was rejected or not used
  Position at;         // of its first line
};

// A law of the profile that the samples did not give.
struct CarriedLaw {
  std::string what;  // "all-reduce on 8 ranks, 1 server"
  cost::Provenance from;
};

struct FitResult {
  cost::Profile profile;
  std::string base;                  // the name of the profile that others are from; empty: none
  std::vector<CarriedLaw> carried;   // from it, or given by the user
  std::vector<std::string> missing;  // what neither samples nor the base say, and what it means
  std::vector<FitRecord> records;    // by group, size and shape
  std::vector<Diagnostic> warnings;  // cut-off lines, unknown kinds, laws that could not be fitted
  std::string device;                // as the driver calls it
  std::vector<std::pair<std::string, std::string>> machine;  // facts for the page
};

// Reads and fits. The same cases give the same profile, in whatever order and however often they
// are listed. Throws ScenarioError with every mistake of the files, and if they are of several
// kinds of GPU or of one that find_gpu does not know.
FitResult fit_samples(const std::vector<std::string>& paths, const FitOptions& options);

// A page that needs nothing else and runs no script: measured against fitted, errors by kind and
// size, rejected samples, machine.
std::string calibration_html(const FitResult& result);

// The table of errors for a terminal, and the same as JSON.
std::string fit_text(const FitResult& result);
std::string fit_json(const FitResult& result);

}  // namespace trainyard::fit
