// What every writer says of a step in the same words: one sentence about the scenario, the largest
// losses, how far the numbers were measured.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "sim/simulate/report/step_report.h"

namespace trainyard::simulate {

// A part of the step that is not computation, with its share of the (simulated) step.
struct Finding {
  TimeCategory category = TimeCategory::bubble;
  Duration time{};
  double share = 0;
  std::string text;  // "Pipeline bubble: 27.3 % of the step ..."
};

// "tensor-parallel communication that computation does not hide": a category as people say it.
std::string_view title(TimeCategory category);
// The same of one report: without a pipeline there is no bubble of it.
std::string_view title(TimeCategory category, const StepReport& report);
std::string_view meaning(TimeCategory category);
std::string_view title(plan::MemoryKind category);

// The label, or the name where there is none.
const std::string& label_of(const StepReport& report);

// One sentence: how many GPUs of which kind, how the network is divided, the batch.
std::string describe(const StepReport& report);

// MFU with the full square of attention, as PaLM and Megatron-LM count. Empty where there is no
// step time, and above 1: the mask's share is work that no kernel has to do, so that is no
// utilisation.
std::optional<double> full_square_mfu(const StepReport& report);

// "44.0 %, 137 TFLOP/s per GPU with the full square of attention, as ..."; empty if no mask leaves
// out any of it, or there is no step time.
std::string describe_full_square(const StepReport& report);

// Largest first, at most `count`, none below half a percent of the step.
std::vector<Finding> findings(const StepReport& report, std::size_t count = 5);

// False if the GPU has no profile of its own, or no part of the step rests on a measurement: the
// profile is then a preset of datasheets.
bool is_calibrated(const StepReport& report);

// "62 % measured, 38 % interpolated (profile a100-sxm4)", or "uncalibrated: ..." said plainly. Of a
// profile that `trainyard fit` made also the machine, the date and the errors on held-out samples,
// by kind.
std::string describe_basis(const StepReport& report);

// "12.3 % of the predicted time is extrapolated: gemm bf16 8192x128256x16384, n is beyond the 65536
// fitted (8.1 %); ...", at most `count` reasons with as many names each. Empty if nothing is.
std::string describe_extrapolation(const StepReport& report, std::size_t count = 3);

// What the scenario leaves out and how it was taken; empty if it says all.
std::string describe_assumed(const StepReport& report);

// What the named software decides: "torchtitan: training.execution = \"eager\", ..."; empty without
// one.
std::string describe_software(const StepReport& report);

// The warnings of the report, first what is extrapolated.
std::vector<std::string> all_warnings(const StepReport& report);

// Idle share of a pipeline of equal passes against its ideal time: (stages - 1) / (microbatches
// chunks). Source: Narayanan et al. 2021 (arXiv:2104.04473), section 2.2. Zero for schedules
// without a flush.
double ideal_bubble(const StepReport& report);

// "does not fit: 93.1 GiB of 80.0 GiB on rank 0", "never finishes", or empty if there is a step
// time.
std::string why_no_time(const StepReport& report);

// "12.3 M", "1.7 B": a count for people, three digits.
std::string count_text(double count);
std::string percent_text(double fraction);

double seconds(Duration duration);

}  // namespace trainyard::simulate
