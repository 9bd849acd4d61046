// Samples as the probes wrote them (docs/samples.md), read with every mistake noted.
#pragma once

#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "models/layer/kernel.h"
#include "sim/base/diagnostic.h"

namespace trainyard::fit {

struct Machine {
  std::string probe, date, driver, cuda;
  std::vector<std::string> gpus;                           // as the driver calls them, by index
  std::vector<std::pair<std::string, std::string>> facts;  // all that the line says, for people
};

struct GemmCase {
  models::Gemm shape;
  std::string layout;
};
struct MemoryCase {
  models::MemoryOp op = models::MemoryOp::elementwise;
  std::string variant;  // without "-warm"
  bool warm = false;    // the operands were in the L2, if they fit
  std::string dtype;
  std::int64_t rows = 0, columns = 0;
  Bytes read, written;
};
struct AttentionCase {
  models::Attention shape;
  std::string implementation;
};
struct ConvolutionCase {
  models::Convolution shape;
  std::int64_t stride = 1;
  std::string network;
};
struct LaunchCase {
  std::string what;
};
struct CopyCase {
  std::string direction;
  bool pinned = true;
  Bytes bytes;
};
struct PeerCase {
  int from = 0, to = 1;
  Bytes bytes;
  std::string access, mode;
};
struct CollectiveCase {
  std::string collective;
  int ranks = 2, servers = 1;
  Bytes bytes;
  std::string backend;
  bool in_switch = false;
};
struct OverlapCase {
  std::string victim, load;
  int channels = 1, multiprocessors = 1;
  double alone_us = 0;
  double load_alone_us = 0, load_us = 0;  // 0: not measured
};

struct Sample {
  std::variant<GemmCase, MemoryCase, AttentionCase, ConvolutionCase, LaunchCase, CopyCase, PeerCase,
               CollectiveCase, OverlapCase>
      of;
  std::string key;  // what was measured, all of it: equal keys are repeats of one case
  double time_us = 0;
  double spread = 0;  // 0: unknown
  int gpu = 0;
  std::size_t machine = 0;  // index of its run's machine line
  Position at;
};

struct Samples {
  std::vector<Machine> machines;
  std::vector<Sample> samples;
  std::vector<Diagnostic> warnings;
};

// Throws ScenarioError with all mistakes of all files (the first twenty, and how many more).
Samples read_samples(const std::vector<std::string>& paths);

// One sample per key, in the order of the keys: the median of its distinct measurements, at the
// first of their places. A run that is listed twice counts once.
std::vector<Sample> merge_repeats(std::vector<Sample> samples);

}  // namespace trainyard::fit
