// What starting work costs, and what communication takes from compute.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "calibrate/fit/fitting.h"

namespace trainyard::fit {
namespace {

constexpr std::size_t kFewestLoads = 2;  // of one constant

Seconds rounded(double microseconds) {
  return Seconds(six_digits(microseconds * 1e-6));
}

void describe_overlap(const Sample& sample, FitRecord& record) {
  const OverlapCase& c = as<OverlapCase>(sample);
  record.group = fmt::format("overlap {} beside {}", c.victim, c.load);
  record.shape = fmt::format("{} of {} multiprocessors held", c.channels, c.multiprocessors);
}

// Speed that is left: 1 - w c / SM, at least a twentieth.
double slowed(double alone_us, double weight, const OverlapCase& c) {
  const double share = static_cast<double>(c.channels) / c.multiprocessors;
  return alone_us / std::max(1 - weight * share, 0.05);
}

// w of one victim over all loads; nothing if it was not measured often enough.
std::optional<double> fit_weight(const Fitting& f, const std::string& victim) {
  LawTask task;
  task.samples = f.choose<OverlapCase>([&](const OverlapCase& c) { return c.victim == victim; });
  if (task.samples.empty() ||
      !f.enough(task.samples, task.samples.size(), kFewestLoads, describe_overlap))
    return std::nullopt;
  for (const Sample* sample : task.samples)
    task.places.push_back({std::log(static_cast<double>(as<OverlapCase>(*sample).channels))});
  task.distance = 0.01;  // another number of channels is another case
  task.constants = {{0, 4, 1, false}};
  const auto seconds = [](double weight, const Sample& s) {
    const OverlapCase& c = as<OverlapCase>(s);
    return slowed(c.alone_us, weight, c) * 1e-6;
  };
  task.predict = [&](const Constants& values, const std::vector<std::size_t>& which) {
    std::vector<double> all;
    for (const std::size_t i : which)
      all.push_back(seconds(values[0], *task.samples[i]));
    return all;
  };
  const LawFit fit = fit_law(task);
  f.records(
      task, fit, [&](const Sample& s) { return microseconds(Seconds(seconds(fit.values[0], s))); },
      describe_overlap);
  return fit.values[0];
}

}  // namespace

void fit_launch(const Fitting& f) {
  int count = 0;
  std::string text;
  for (const Sample& sample : f.samples) {
    const auto* c = std::get_if<LaunchCase>(&sample.of);
    if (c == nullptr) continue;
    const Seconds time = rounded(sample.time_us);
    cost::LaunchDetails& details = f.profile().launch_details;
    bool used = true;
    if (c->what == "kernel") {
      f.profile().launch = time;
    } else if (c->what == "graph_node") {
      details.graph_node = time;
    } else if (c->what == "event_record") {
      details.event_record = time;
    } else if (c->what == "stream_wait") {
      details.stream_wait = time;
    } else if (c->what == "empty_kernel") {
      details.empty_kernel = time;
    } else {
      used = false;
    }
    FitRecord& r = f.record(sample, "launch " + c->what, used ? microseconds(time) : 0);
    r.shape = "median";
    r.fate = used ? SampleFate::fitted : SampleFate::unused;
    if (!used) {
      r.reason = "no constant of a profile";
      continue;
    }
    ++count;
    text += (text.empty() ? "" : ", ") + c->what;
  }
  if (count == 0) return;
  f.profile().launch_from =
      f.provenance(fmt::format("Medians of {}", text), f.result.records.size());
  f.profile().launch_from.residual = "medians of repeats, nothing fitted";
  f.profile().launch_from.basis = Basis::measured;
  if (f.profile().launch.count() == 0)
    f.warn("launch times were measured, but not that of a kernel: the profile has none",
           "add a line of kind launch, what kernel");
}

void fit_overlap(const Fitting& f) {
  const std::vector<const Sample*> all =
      f.choose<OverlapCase>([](const OverlapCase&) { return true; });
  if (all.empty()) return;
  const std::size_t first = f.result.records.size();
  cost::OverlapLaw law;
  const std::optional<double> gemm = fit_weight(f, "gemm"), memory = fit_weight(f, "memory");
  if (!gemm && !memory) return;
  // A victim that was not measured loses what is held.
  law.gemm = gemm.value_or(1);
  law.memory_bound = memory.value_or(1);
  std::vector<double> kept;
  for (const Sample* sample : all) {
    const OverlapCase& c = as<OverlapCase>(*sample);
    if (c.load_alone_us > 0 && c.load_us > 0) kept.push_back(c.load_alone_us / c.load_us);
  }
  if (!kept.empty()) law.communication = six_digits(std::clamp(median(kept), 0.01, 1.0));
  law.from = f.provenance(
      fmt::format("{} kernels beside blocks that hold multiprocessors; the share that the load "
                  "keeps is the median of {}",
                  all.size(), kept.size()),
      first);
  f.profile().overlap = std::move(law);
}

}  // namespace trainyard::fit
