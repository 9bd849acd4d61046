// What the probe program runs: a table of suites, each a function that measures and writes samples.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "budget.h"
#include "device.h"
#include "sample.h"

namespace trainyard::probe {

// What a suite is given. Suites of one device measure devices[0], which is current; the key `gpu`
// of a sample is the place in `devices`, not CUDA's ordinal.
struct Context {
  SampleFile& samples;
  const std::vector<DeviceInfo>& devices;  // at least one
  Progress& progress;
  Budget budget;  // of this suite
  bool quick = false;

  const DeviceInfo& device() const { return devices.front(); }
  // False when time is over or the user wants to stop: end the suite, keep what was measured.
  bool go_on() const { return interrupt_signal() == 0 && !budget.over(); }
  void show(const std::string& text) const { progress.show(text); }
  // Says on standard error why something is not measured.
  void note(const std::string& text) const { progress.note(text); }
};

struct Suite {
  std::string_view name;
  std::string_view about;
  double share;  // of the time, compared with the other suites that are run
  bool several;  // needs more than one device
  void (*run)(Context&);
};

const std::vector<Suite>& suites();

void run_machine(Context& context);  // writes the machine line; always runs first
void run_launch(Context& context);
void run_gemm(Context& context);
void run_memory(Context& context);
void run_attention(Context& context);
void run_convolution(Context& context);
void run_copy(Context& context);
void run_p2p(Context& context);
void run_collective(Context& context);
void run_overlap(Context& context);

}  // namespace trainyard::probe
