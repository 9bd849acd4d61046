#include "sim/simulate/report/findings.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "sim/base/text.h"
#include "sim/schedule/schedule.h"

namespace trainyard::simulate {

using plan::MemoryKind;

std::string_view title(TimeCategory category) {
  switch (category) {
    case TimeCategory::compute: return "Compute";
    case TimeCategory::exposed_tp: return "Exposed tensor parallel";
    case TimeCategory::exposed_cp: return "Exposed context parallel";
    case TimeCategory::exposed_ep: return "Exposed expert parallel";
    case TimeCategory::exposed_dp: return "Exposed data parallel";
    case TimeCategory::exposed_pp: return "Exposed pipeline transfers";
    case TimeCategory::exposed_host_copy: return "Exposed host copies";
    case TimeCategory::bubble: return "Pipeline bubble";
    case TimeCategory::optimizer: return "Optimizer";
    case TimeCategory::host_optimizer: return "Host optimizer";
    case TimeCategory::host: return "Host launch";
    case TimeCategory::input: return "Input";
  }
  return "?";
}

std::string_view title(TimeCategory category, const StepReport& report) {
  const bool waits = category == TimeCategory::bubble && report.pipeline == 1;
  return waits ? "Waiting for other ranks" : title(category);
}

std::string_view meaning(TimeCategory category) {
  switch (category) {
    case TimeCategory::compute: return "kernels of the forward and backward pass run";
    case TimeCategory::exposed_tp: return "tensor-parallel communication that no kernel hides";
    case TimeCategory::exposed_cp:
      return "exchange of keys and values between parts of a sequence that no kernel hides";
    case TimeCategory::exposed_ep:
      return "rows on their way to experts and back, or embeddings to their samples, that no "
             "kernel hides";
    case TimeCategory::exposed_dp: return "data-parallel communication that no kernel hides";
    case TimeCategory::exposed_pp: return "transfers between stages that no kernel hides";
    case TimeCategory::exposed_host_copy:
      return "copies between GPU, host and NVMe that no kernel hides";
    case TimeCategory::bubble: return "waiting for a rank that has not yet sent or joined";
    case TimeCategory::optimizer: return "kernels of the optimizer run";
    case TimeCategory::host_optimizer:
      return "the host updates optimizer states and no kernel runs";
    case TimeCategory::host: return "the host has not yet issued the next kernel";
    case TimeCategory::input:
      return "batches are prepared or copied and no kernel of the network runs";
  }
  return "?";
}

std::string_view title(MemoryKind category) {
  switch (category) {
    case MemoryKind::parameters: return "Parameters";
    case MemoryKind::gradients: return "Gradients";
    case MemoryKind::optimizer_state: return "Optimizer state";
    case MemoryKind::activations: return "Activations";
    case MemoryKind::logits: return "Logits";
    case MemoryKind::communication_buffers: return "Communication buffers";
    case MemoryKind::workspace: return "Workspace";
    case MemoryKind::fragmentation: return "Fragmentation";
    case MemoryKind::nccl_buffers: return "NCCL buffers";
    case MemoryKind::context: return "CUDA context";
  }
  return "?";
}

const std::string& label_of(const StepReport& report) {
  return report.label.empty() ? report.name : report.label;
}

double seconds(Duration duration) {
  return Seconds(duration).count();
}

std::string count_text(double count) {
  static constexpr std::array<std::pair<double, std::string_view>, 4> kUnits = {
      {{1e12, " T"}, {1e9, " B"}, {1e6, " M"}, {1e4, " k"}}};
  const auto digits = [](double value) { return value >= 100 ? 0 : value >= 10 ? 1 : 2; };
  for (const auto& [scale, unit] : kUnits) {
    if (count < scale) continue;
    const double value = unit == " k" ? count / 1e3 : count / scale;
    return fmt::format("{:.{}f}{}", value, digits(value), unit);
  }
  if (count == std::floor(count)) return fmt::format("{:.0f}", count);
  return fmt::format("{:.{}f}", count, digits(count));
}

std::string percent_text(double fraction) {
  return fmt::format("{:.1f} %", fraction * 100);
}

// " (4.19 million of them trained, 0.06 %)"; nothing where all are.
std::string trained_text(const StepReport& report) {
  if (report.trained == report.parameters) return "";
  const double trained = static_cast<double>(report.trained);
  const double share = 100 * trained / static_cast<double>(report.parameters);
  return fmt::format(" ({} of them trained, {:.{}f} %)", count_text(trained), share,
                     share < 1 ? 3 : 1);
}

std::string describe(const StepReport& report) {
  std::string text;
  if (report.parameters > 0)
    text += fmt::format("{} parameters{} on ", count_text(static_cast<double>(report.parameters)),
                        trained_text(report));
  text +=
      fmt::format("{} {}{}", report.world_size, report.device, report.world_size == 1 ? "" : "s");
  if (!report.gpu.empty()) text += fmt::format(" ({})", report.gpu);
  if (!report.server.empty())
    text += fmt::format(" in {} server{} ({})", report.servers, report.servers == 1 ? "" : "s",
                        report.server);
  const std::string context =
      report.context > 1 ? fmt::format(" x context {}", report.context) : "";
  const std::string experts =
      report.expert > 1 ? fmt::format(", experts on {} ranks each", report.expert) : "";
  text += fmt::format(": tensor {}{} x pipeline {} x data {}{}", report.tensor, context,
                      report.pipeline, report.data, experts);
  if (report.pipeline > 1) {
    text += fmt::format(", schedule {}", report.schedule);
    if (report.chunks > 1) text += fmt::format(" with {} chunks per stage", report.chunks);
  }
  if (report.overlap_passes) text += ", passes overlapping";
  text +=
      fmt::format(", {} micro-batch{}", report.microbatches, report.microbatches == 1 ? "" : "es");
  if (report.global_batch > 0) {
    text += fmt::format(", global batch {} sample{}", report.global_batch,
                        report.global_batch == 1 ? "" : "s");
    if (report.is_language && report.sequence_length > 0)
      text += fmt::format(" of {} tokens{}", report.sequence_length,
                          report.document_length > 0
                              ? fmt::format(" in documents of {}", report.document_length)
                              : "");
  }
  return text + ".";
}

std::optional<double> full_square_mfu(const StepReport& report) {
  if (!report.step_time || report.full_square_mfu > 1) return std::nullopt;
  return report.full_square_mfu;
}

std::string describe_full_square(const StepReport& report) {
  if (!report.step_time || report.full_square_flops <= report.model_flops) return "";
  const std::optional<double> share = full_square_mfu(report);
  return fmt::format("{}{} TFLOP/s per {}", share ? percent_text(*share) + ", " : "",
                     count_text(report.full_square_tflops_per_gpu), report.device);
}

double ideal_bubble(const StepReport& report) {
  if (report.stages <= 1 || report.microbatches < 1) return 0;
  const schedule::ScheduleEntry* schedule = schedule::find_schedule(report.schedule);
  if (schedule == nullptr || !schedule->fills_and_drains) return 0;
  return (report.stages - 1.0) / (1.0 * report.microbatches * std::max(report.chunks, 1));
}

namespace {

Duration computes(const StepReport::RankBreakdown& ranks) {
  return ranks.breakdown[static_cast<std::size_t>(TimeCategory::compute)];
}

// "; stage 7 computes 12.4 % longer than the middle one"; nothing where stages hardly differ.
std::string describe_uneven_stages(const StepReport& report) {
  struct OfStage {
    Duration computes{};
    int stage = 0;
  };
  std::vector<OfStage> stages;
  for (const StepReport::RankBreakdown& ranks : report.ranks) {
    const auto stage = static_cast<std::size_t>(ranks.stage);
    if (stages.size() <= stage) stages.resize(stage + 1);
    OfStage& own = stages[stage];
    own = {std::max(own.computes, computes(ranks)), ranks.stage};
  }
  if (stages.empty()) return "";
  std::stable_sort(stages.begin(), stages.end(),
                   [](const OfStage& a, const OfStage& b) { return a.computes < b.computes; });
  const double middle = seconds(stages[(stages.size() - 1) / 2].computes);
  const double longer = middle > 0 ? seconds(stages.back().computes) / middle - 1 : 0;
  if (longer < 0.03) return "";
  return fmt::format("; stage {} computes {} longer than the {}", stages.back().stage,
                     percent_text(longer), stages.size() == 2 ? "other" : "middle one");
}

// What the numbers of this report add to the meaning of a category.
std::string detail(const StepReport& report, TimeCategory category) {
  if (category == TimeCategory::bubble && report.stages > 1) {
    std::string text =
        fmt::format("; {} stages share {} micro-batches", report.stages, report.microbatches);
    if (const double ideal = ideal_bubble(report); ideal > 0)
      text += fmt::format(" (equal passes would idle {} of the ideal time)", percent_text(ideal));
    text += describe_uneven_stages(report);
    if (report.input && !report.input->keeps_up())
      text += "; the first stage waits for input" + describe(*report.input);
    return text;
  }
  if (category == TimeCategory::exposed_tp && report.tensor > 1)
    return fmt::format("; {} ranks share every layer", report.tensor);
  if (category == TimeCategory::exposed_cp && report.context > 1)
    return fmt::format("; {} ranks share every sequence", report.context);
  if (category == TimeCategory::exposed_ep && report.expert > 1)
    return fmt::format("; {} ranks share the experts of a layer", report.expert);
  if (const int sharers = report.data * report.context;
      category == TimeCategory::exposed_dp && sharers > 1)
    return fmt::format("; {} ranks reduce the same gradients", sharers);
  if (category == TimeCategory::input && report.input && !report.input->keeps_up())
    return describe(*report.input);
  return "";
}

}  // namespace

namespace {

struct SlowRanks {
  const StepReport::RankBreakdown* of = nullptr;
  Duration late{};  // by which their kernels take longer than those of the stage's middle rank
};

// Of the stage where they are slower than the others by most.
SlowRanks slow_ranks(const StepReport& report) {
  std::vector<const StepReport::RankBreakdown*> sorted;
  for (const StepReport::RankBreakdown& ranks : report.ranks)
    sorted.push_back(&ranks);
  std::stable_sort(sorted.begin(), sorted.end(), [](const auto* a, const auto* b) {
    return std::pair(a->stage, computes(*a)) < std::pair(b->stage, computes(*b));
  });
  SlowRanks found;
  for (auto first = sorted.begin(); first != sorted.end();) {
    const auto last = std::find_if(
        first, sorted.end(), [&](const auto* ranks) { return ranks->stage != (*first)->stage; });
    std::int64_t all = 0, passed = 0;
    for (auto ranks = first; ranks != last; ++ranks)
      all += (*ranks)->count;
    auto middle = first;
    while (2 * (passed += (*middle)->count) < all)
      ++middle;
    const StepReport::RankBreakdown& slowest = **std::prev(last);
    const Duration late = computes(slowest) - computes(**middle);
    if (late > found.late) found = {&slowest, late};
    first = last;
  }
  return found;
}

// "Slow rank: rank 3 computes 3.28 s longer than the middle rank of its stage, ..."
std::string slow_text(const SlowRanks& slow, double share) {
  const bool one = slow.of->count == 1;
  return fmt::format(
      "Slow rank{}: {} compute{} {} longer than the middle rank of the same stage, {} of the "
      "step, as {} slower or {} more to do.",
      one ? "" : "s",
      one ? fmt::format("rank {}", slow.of->rank)
          : fmt::format("{} ranks like rank {}", slow.of->count, slow.of->rank),
      one ? "s" : "", to_text(slow.late), percent_text(share), one ? "it is" : "they are",
      one ? "has" : "have");
}

}  // namespace

std::vector<Finding> findings(const StepReport& report, std::size_t count) {
  std::vector<Finding> found;
  const double step = seconds(report.simulated_step);
  if (step <= 0) return found;
  for (std::size_t i = 0; i < kTimeCategories; ++i) {
    const auto category = static_cast<TimeCategory>(i);
    const double share = seconds(report.breakdown[i]) / step;
    if (category == TimeCategory::compute || share < 0.005) continue;
    found.push_back(
        {category, report.breakdown[i], share,
         fmt::format("{}: {} of the step ({}), {}{}.", title(category, report), percent_text(share),
                     to_text(report.breakdown[i]), meaning(category), detail(report, category))});
  }
  const SlowRanks slow = slow_ranks(report);
  if (const double share = seconds(slow.late) / step; share >= 0.005)
    found.push_back({TimeCategory::compute, slow.late, share, slow_text(slow, share)});
  std::stable_sort(found.begin(), found.end(),
                   [](const Finding& a, const Finding& b) { return a.time > b.time; });
  if (found.size() > count) found.resize(count);
  return found;
}

bool is_calibrated(const StepReport& report) {
  const auto is_measured = [](const BasisShare& share) {
    return share.basis != Basis::analytic && share.fraction > 0;
  };
  return report.uncalibrated.empty() &&
         std::any_of(report.basis.begin(), report.basis.end(), is_measured);
}

namespace {

// What a row of errors is of, in one word: dozens of rows would say less than five kinds.
std::string kind_of(const cost::HeldOutError& error) {
  constexpr std::array kKernels = {"gemm", "attention", "convolution", "memory", "overlap", "copy"};
  const std::string first = error.what.substr(0, error.what.find_first_of(" ,"));
  return std::find(kKernels.begin(), kKernels.end(), first) != kKernels.end() ? first : "messages";
}

// "held-out error 4.9 % (gemm 6.1 %, memory 2.0 %)": means over the cases of the totals, by kind in
// file order.
std::string describe_errors(const cost::Calibration& calibration) {
  struct Sum {
    std::string kind;
    double error = 0, cases = 0;
  };
  std::vector<Sum> kinds;
  Sum all;
  for (const cost::HeldOutError& error : calibration.errors) {
    if (error.size != "all" || error.held_out == 0) continue;
    const std::string kind = kind_of(error);
    auto at =
        std::find_if(kinds.begin(), kinds.end(), [&](const Sum& sum) { return sum.kind == kind; });
    if (at == kinds.end()) at = kinds.insert(at, {kind, 0, 0});
    for (Sum* sum : {&*at, &all}) {
      sum->error += error.mape * error.held_out;
      sum->cases += error.held_out;
    }
  }
  if (kinds.empty()) return "no sample was held out";
  std::string text;
  for (const Sum& sum : kinds)
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", sum.kind,
                        percent_text(sum.error / sum.cases));
  return fmt::format("held-out error {} ({})", percent_text(all.error / all.cases), text);
}

}  // namespace

namespace {

std::string describe_shares(const StepReport& report) {
  const std::string profile =
      report.profile.empty() ? "" : fmt::format(" (profile {})", report.profile);
  std::string text;
  bool measured = false;
  for (const BasisShare& share : report.basis) {
    if (share.fraction <= 0) continue;
    measured = measured || share.basis != Basis::analytic;
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", percent_text(share.fraction),
                        name(share.basis));
  }
  if (!measured)
    return "uncalibrated: every time is derived from datasheets, none from a measurement" + profile;
  text = fmt::format("of the predicted time {}", text);
  // Its name says no more than why the GPU has none of its own.
  if (!report.uncalibrated.empty())
    return fmt::format("uncalibrated: the {} is priced by {}; {}", report.device,
                       report.uncalibrated, text);
  text += profile;
  if (report.calibration)
    text += fmt::format("; calibrated on {}, {}: {}", report.calibration->machine,
                        // the day is enough
                        report.calibration->date.substr(0, report.calibration->date.find('T')),
                        describe_errors(*report.calibration));
  return text;
}

}  // namespace

std::string describe_basis(const StepReport& report) {
  const SlowestGpu& slowest = report.slowest_gpu;
  if (slowest.slowdown == 1) return describe_shares(report);
  return fmt::format("{}; kernels take {} longer than on the mean GPU, as {} wait for the slowest",
                     describe_shares(report), percent_text(slowest.slowdown - 1), slowest.gpus);
}

namespace {

// Parts that are extrapolated for the same reason.
struct SameReason {
  std::string why;
  std::vector<std::string> what;  // largest first
  double share = 0;
};

std::vector<SameReason> by_reason(const StepReport& report) {
  std::vector<SameReason> reasons;
  for (const Extrapolation& part : report.extrapolated) {
    auto at = std::find_if(reasons.begin(), reasons.end(),
                           [&](const SameReason& reason) { return reason.why == part.why; });
    if (at == reasons.end()) at = reasons.insert(at, {part.why, {}, 0});
    at->what.push_back(part.what);
    at->share += part.fraction;
  }
  std::stable_sort(reasons.begin(), reasons.end(),
                   [](const SameReason& a, const SameReason& b) { return a.share > b.share; });
  return reasons;
}

}  // namespace

std::string describe_extrapolation(const StepReport& report, std::size_t count) {
  if (report.extrapolated.empty()) return "";
  const std::vector<SameReason> reasons = by_reason(report);
  double share = 0;
  for (const SameReason& reason : reasons)
    share += reason.share;
  std::string text = fmt::format("{} of the predicted time is extrapolated", percent_text(share));
  for (std::size_t i = 0; i < reasons.size() && i < count; ++i) {
    const auto& [why, what, part] = reasons[i];
    const std::size_t named = std::min(what.size(), count);
    text += fmt::format("{}{}", i == 0 ? ": " : "; ",
                        fmt::join(what.begin(), what.begin() + static_cast<long>(named), ", "));
    if (named < what.size()) text += fmt::format(" and {} more", what.size() - named);
    text += fmt::format(": {} ({})", why, percent_text(part));
  }
  if (reasons.size() > count)
    text += fmt::format("; and {} more reason{}", reasons.size() - count,
                        reasons.size() == count + 1 ? "" : "s");
  return text;
}

namespace {

std::string dotted(const scenario::Assumption& assumption) {
  std::string key = assumption.pointer.substr(1);
  std::replace(key.begin(), key.end(), '/', '.');
  return fmt::format("{} = {}", key, assumption.value);
}

}  // namespace

std::string describe_assumed(const StepReport& report) {
  std::string text;
  for (const scenario::Assumption& assumption : report.assumed)
    text += fmt::format("{}{} ({})", text.empty() ? "" : ", ", dotted(assumption), assumption.why);
  return text;
}

std::string describe_software(const StepReport& report) {
  if (report.software.empty()) return "";
  std::string text = report.software;
  for (std::size_t i = 0; i < report.habits.size(); ++i)
    text += (i == 0 ? ": " : ", ") + dotted(report.habits[i]);
  return text;
}

std::vector<std::string> all_warnings(const StepReport& report) {
  std::vector<std::string> warnings;
  if (const MemoryReport& memory = report.memory; memory.is_tight)
    warnings.push_back(fmt::format(
        "memory is tight: rank {} would hold {} of {}, and fits only where its allocator gives "
        "blocks back, for which it waits; such runs end out of memory or take longer than "
        "predicted",
        memory.peak_rank, to_text(memory.wanted), to_text(memory.capacity)));
  if (std::string text = describe_extrapolation(report); !text.empty())
    warnings.push_back(std::move(text));
  warnings.insert(warnings.end(), report.warnings.begin(), report.warnings.end());
  return warnings;
}

std::string why_no_time(const StepReport& report) {
  if (report.deadlock) return "never finishes: " + *report.deadlock;
  if (!report.memory.fits)
    return fmt::format("does not fit: {} of {} on rank {}", to_text(report.memory.peak),
                       to_text(report.memory.capacity), report.memory.peak_rank);
  if (!report.fits && report.host_memory) {
    const HostMemoryReport& host = *report.host_memory;
    const bool memory =
        host.memory_capacity > Bytes(0) && host.server_memory > host.memory_capacity;
    return fmt::format("does not fit: {} of {} of {} of a server; {}",
                       to_text(memory ? host.server_memory : host.server_nvme),
                       to_text(memory ? host.memory_capacity : host.nvme_capacity),
                       memory ? "host memory" : "NVMe",
                       host.role == "input worker"
                           ? "prepare fewer batches ahead, or with fewer workers"
                       : !host.role.empty() ? "hold the states on the GPUs, as allreduce does"
                       : memory             ? "offload to NVMe, less, or over more servers"
                                            : "offload less, or over more servers");
  }
  return "";
}

}  // namespace trainyard::simulate
