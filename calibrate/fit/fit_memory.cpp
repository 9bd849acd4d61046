// Laws of memory-bound kernels: T = fixed + bytes / (efficiency W), and how much faster what lies
// in the L2 moves.
//
//   All variants of an op share its law, backward ones with an efficiency of their own. Cold
//   variants found the L2 flushed and are priced without it, whatever their size; warm ones found
//   their operands there if they fit, as the operands of a kernel that follows another do. Source:
//   docs/cost-memory-bound.md.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "calibrate/fit/fitting.h"

namespace trainyard::fit {
namespace {

// Sizes nearer than 10 % are dealt together.
constexpr double kSizeDistance = 0.1;
constexpr std::size_t kFewestSizes = 4;  // for two constants

Bytes moved(const MemoryCase& c) {
  return c.read + c.written;
}

bool is_backward(const MemoryCase& c) {
  return c.variant == "backward";
}

// With the L2 for warm cases, without for cold ones.
struct TwoCosts {
  std::unique_ptr<cost::ComputeCost> warm, cold;

  TwoCosts(const FitGpu& gpu, const cost::MemoryLaw& law) {
    cost::Profile alone;
    alone.memory = {law};
    cost::MachinePeaks no_l2 = gpu.peaks;
    no_l2.l2 = Bytes(0);
    warm = fitted_compute_cost(alone, gpu.peaks);
    cold = fitted_compute_cost(alone, no_l2);
  }
  double seconds(const Sample& sample) const {
    const MemoryCase& c = as<MemoryCase>(sample);
    return (c.warm ? warm : cold)
        ->time(models::MemoryBound{c.op, c.read, c.written, is_backward(c)})
        .time.count();
  }
};

void describe(const Sample& sample, FitRecord& record) {
  const MemoryCase& c = as<MemoryCase>(sample);
  record.group = "memory " + spelled(c.op);
  if (!c.variant.empty()) record.group += " " + c.variant;
  if (c.warm) record.group += " warm";
  record.size_name = "bytes";
  record.size = static_cast<double>(moved(c).count());
  record.shape = fmt::format("{} bytes", moved(c).count());
  if (c.rows > 0) record.shape = fmt::format("{}x{} {}", c.rows, c.columns, c.dtype);
}

// Constants that the samples say something about, besides a start and a share of bandwidth.
struct Free {
  bool backward = false, l2 = false;
};

cost::MemoryLaw law_of(models::MemoryOp op, const Constants& values, Free free) {
  cost::MemoryLaw law;
  law.op = op;
  law.fixed = Seconds(values[0]);
  law.efficiency = values[1];
  std::size_t next = 2;
  if (free.backward) law.backward_efficiency = values[next++];
  if (free.l2) law.l2_speedup = values[next++];
  return law;
}

// True if the warm cases say something about the L2: some of them fit into it and move so many
// bytes that time depends on them.
bool shows_l2(const FitGpu& gpu, const std::vector<const Sample*>& samples) {
  int inside = 0;
  for (const Sample* sample : samples) {
    const MemoryCase& c = as<MemoryCase>(*sample);
    const bool large = moved(c) / gpu.peaks.memory_bandwidth > Seconds(1e-6);
    if (c.warm && large && moved(c) <= gpu.peaks.l2) ++inside;
  }
  return inside >= 2;
}

// True if each pass was measured at sizes enough for a law.
bool shows_backward(const std::vector<const Sample*>& samples) {
  const auto backward =
      static_cast<std::size_t>(std::count_if(samples.begin(), samples.end(), [](const Sample* s) {
        return is_backward(as<MemoryCase>(*s));
      }));
  return backward >= kFewestSizes && samples.size() - backward >= kFewestSizes;
}

void fit_op(const Fitting& f, models::MemoryOp op) {
  LawTask task;
  task.samples = f.choose<MemoryCase>([op](const MemoryCase& c) { return c.op == op; });
  if (task.samples.empty()) return;
  for (const Sample* sample : task.samples)
    task.places.push_back({std::log(static_cast<double>(moved(as<MemoryCase>(*sample)).count()))});
  if (!f.enough(task.samples, distinct(task.places), kFewestSizes, describe)) return;
  task.distance = kSizeDistance;
  task.constants = {start_up(2e-6), logarithmic(0.01, 3, 0.8)};
  const Free free{shows_backward(task.samples), shows_l2(f.gpu, task.samples)};
  if (free.backward) task.constants.push_back(logarithmic(0.01, 3, 0.5));
  if (free.l2) task.constants.push_back({1, 10, 2, false});
  task.predict = [&](const Constants& values, const std::vector<std::size_t>& which) {
    const TwoCosts costs(f.gpu, law_of(op, values, free));
    std::vector<double> seconds;
    for (const std::size_t i : which)
      seconds.push_back(costs.seconds(*task.samples[i]));
    return seconds;
  };
  const LawFit fit = fit_law(task);
  cost::MemoryLaw law = law_of(op, fit.values, free);
  for (const std::size_t i : fit.with(SampleFate::fitted)) {
    const Bytes bytes = moved(as<MemoryCase>(*task.samples[i]));
    law.least = law.least.count() == 0 ? bytes : std::min(law.least, bytes);
    law.most = std::max(law.most, bytes);
  }
  if (fit.refused_outliers)
    f.warn(fmt::format("the {} kernels do not follow one law; see their residuals", spelled(op)));
  const TwoCosts costs(f.gpu, law);
  const std::size_t first = f.result.records.size();
  f.records(
      task, fit, [&](const Sample& s) { return microseconds(Seconds(costs.seconds(s))); },
      describe);
  law.from = f.provenance(
      fmt::format("{} kernels, {} fitted; {}", task.samples.size(),
                  fit.with(SampleFate::fitted).size(),
                  free.l2 ? "cold and with operands in the L2" : "none with operands in the L2"),
      first);
  f.profile().memory.push_back(std::move(law));
}

}  // namespace

std::string spelled(models::MemoryOp op) {
  std::string text(name(op));
  std::replace(text.begin(), text.end(), '_', '-');
  return text;
}

void fit_memory(const Fitting& fitting) {
  for (const models::MemoryOp op : models::kAllMemoryOps)
    fit_op(fitting, op);
  // What was measured cold only gains from the L2 what the others do.
  std::vector<double> gains;
  for (const cost::MemoryLaw& law : fitting.profile().memory)
    if (law.l2_speedup > 1) gains.push_back(law.l2_speedup);
  if (gains.empty()) return;
  const double gain = six_digits(median(gains));
  for (cost::MemoryLaw& law : fitting.profile().memory) {
    if (law.l2_speedup > 1 || law.from.samples.find("none with") == std::string::npos) continue;
    law.l2_speedup = gain;
    law.from.samples +=
        fmt::format("; l2_speedup is the median of the {} kinds measured so", gains.size());
  }
}

}  // namespace trainyard::fit
