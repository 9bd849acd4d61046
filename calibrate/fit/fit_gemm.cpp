// GEMM laws per type, their tables of residuals, and the factor of batches.
//
//   Families of shapes are (n, k): a weight matrix of a network. A family and its neighbours are
//   either fitted or held out, so that the held-out error is that of a network not measured yet.
//   Of fitted families with many m some are held out too: an own row, of other batch sizes.
//   Products whose rows begin at no multiples of 16 bytes have shares of the law of all others.
//   Source: docs/cost-gemm.md.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <tuple>

#include "calibrate/fit/fitting.h"

namespace trainyard::fit {
namespace {

// Families nearer than this in both ln n and ln k are dealt together: 16 %.
constexpr double kFamilyDistance = 0.15;
// A law of four constants; with fewer shapes it would follow their noise.
constexpr std::size_t kFewestShapes = 8;
constexpr std::size_t kFewestBatches = 3;
constexpr std::size_t kFewestUnaligned = 3;  // of one alignment
constexpr std::int64_t kAligned = 16;
constexpr std::array<std::int64_t, 3> kUnaligned = {8, 4, 2};

Coordinates family(const models::Gemm& shape) {
  return {std::log(static_cast<double>(shape.n)), std::log(static_cast<double>(shape.k))};
}

// CUDA cores do not mind where rows begin.
std::int64_t alignment_of(const models::Gemm& shape) {
  if (shape.dtype == models::Dtype::fp32) return kAligned;
  return std::max(models::row_alignment(shape), kUnaligned.back());
}

LawTask task_of(std::vector<const Sample*> samples) {
  LawTask task;
  task.samples = std::move(samples);
  for (const Sample* sample : task.samples) {
    const models::Gemm& shape = as<GemmCase>(*sample).shape;
    task.places.push_back(family(shape));
    if (shape.batch == 1) task.inner.push_back(std::log(static_cast<double>(shape.m)));
  }
  task.distance = kFamilyDistance;
  return task;
}

std::vector<double> times(const cost::ComputeCost& cost, const std::vector<const Sample*>& samples,
                          const std::vector<std::size_t>& which) {
  std::vector<double> seconds;
  for (const std::size_t i : which)
    seconds.push_back(cost.time(as<GemmCase>(*samples[i]).shape).time.count());
  return seconds;
}

// Four constants, or seven with tiles.
cost::GemmLaw law_of(const FitGpu& gpu, models::Dtype dtype, const Constants& values) {
  cost::GemmLaw law;
  law.dtype = dtype;
  law.fixed = Seconds(values[0]);
  law.compute_efficiency = values[1];
  law.memory_efficiency = values[2];
  law.exponent = values[3];
  if (values.size() > 4)
    law.tiles = cost::GemmTiles{gpu.multiprocessors, values[4], values[5], values[6]};
  return law;
}

void widen(cost::SizeRange& range, std::int64_t size) {
  range.least = range.least == 0 ? size : std::min(range.least, size);
  range.most = std::max(range.most, size);
}

// Measured over law of the given samples, layouts of a shape joined by their geometric mean.
std::vector<cost::GemmResidual> residuals(const FitGpu& gpu, const cost::GemmLaw& law,
                                          const std::vector<const Sample*>& samples,
                                          const std::vector<std::size_t>& which) {
  cost::Profile alone;
  alone.gemm = {law};
  alone.gemm.front().residuals.clear();
  const auto cost = fitted_compute_cost(alone, gpu.peaks);
  using Shape = std::tuple<std::int64_t, std::int64_t, std::int64_t>;
  std::map<Shape, std::vector<double>> logarithms;
  for (const std::size_t i : which) {
    const models::Gemm& s = as<GemmCase>(*samples[i]).shape;
    logarithms[{s.n, s.k, s.m}].push_back(
        std::log(samples[i]->time_us * 1e-6 / cost->time(s).time.count()));
  }
  std::vector<cost::GemmResidual> table;
  for (const auto& [shape, values] : logarithms) {
    double sum = 0;
    for (const double value : values)
      sum += value;
    const auto& [n, k, m] = shape;
    const double factor = six_digits(std::exp(sum / static_cast<double>(values.size())));
    if (in_a_table(factor)) table.push_back({m, n, k, 1, factor});
  }
  return table;
}

double mean_error(const FitGpu& gpu, const cost::GemmLaw& law,
                  const std::vector<const Sample*>& samples,
                  const std::vector<std::size_t>& which) {
  cost::Profile alone;
  alone.gemm = {law};
  const std::vector<double> seconds = times(*fitted_compute_cost(alone, gpu.peaks), samples, which);
  double sum = 0;
  for (std::size_t i = 0; i < which.size(); ++i)
    sum += std::abs(seconds[i] / (samples[which[i]]->time_us * 1e-6) - 1);
  return sum;
}

// Does a table of some clusters' residuals improve the law on other clusters? Asked of the fitted
// cases only: the held-out ones judge the answer.
bool table_helps(const FitGpu& gpu, const cost::GemmLaw& law, const LawTask& task,
                 const LawFit& fit) {
  constexpr int kFolds = 4;
  double alone = 0, corrected = 0;
  for (int fold = 0; fold < kFolds; ++fold) {
    std::vector<std::size_t> inside, outside;
    for (const std::size_t i : fit.with(SampleFate::fitted))
      (fit.split.cluster[i] % kFolds == fold ? outside : inside).push_back(i);
    cost::GemmLaw with_table = law;
    with_table.residuals = residuals(gpu, law, task.samples, inside);
    alone += mean_error(gpu, law, task.samples, outside);
    corrected += mean_error(gpu, with_table, task.samples, outside);
  }
  return corrected < alone;
}

void describe(const Sample& sample, FitRecord& record) {
  const GemmCase& c = as<GemmCase>(sample);
  record.group = fmt::format("gemm {}{}", name(c.shape.dtype), c.shape.batch > 1 ? " batched" : "");
  record.size_name = "flops";
  record.size = flops(c.shape).count();
  record.shape = fmt::format("{}x{}x{}", c.shape.m, c.shape.n, c.shape.k);
  if (c.shape.batch > 1) record.shape = fmt::format("{} of {}", c.shape.batch, record.shape);
  if (const std::int64_t rows = alignment_of(c.shape); rows < kAligned)
    record.group += fmt::format(", rows at {} bytes", rows);
  if (!c.layout.empty()) record.shape += " " + c.layout;
}

void record_products(const Fitting& f, const LawTask& task, const LawFit& fit,
                     const cost::ComputeCost& cost) {
  f.records(
      task, fit,
      [&](const Sample& s) { return microseconds(cost.time(as<GemmCase>(s).shape).time); },
      describe);
}

std::string samples_text(const LawTask& task, const LawFit& fit, const cost::GemmLaw& law) {
  std::string text = fmt::format(
      "{} GEMMs in {} clusters of (n, k) further than {:.3g} in ln n or ln k apart; {} "
      "fitted, {} held out with their (n, k), {} with another m of a fitted one",
      task.samples.size(), fit.split.clusters, fit.split.distance,
      fit.with(SampleFate::fitted).size(), fit.with(SampleFate::held_out).size(),
      fit.with(SampleFate::held_out_size).size());
  if (law.tiles) text += "; with tiles, which were better on left-out clusters of the fitted";
  if (!law.residuals.empty())
    text += fmt::format("; the fitted ones are the table of {} residuals", law.residuals.size());
  return text;
}

// The law without or with tiles, whichever is better on clusters left out of the fitted cases; the
// held-out ones are not asked. Three constants more have to earn their place.
constexpr double kGain = 0.97;
constexpr std::size_t kFewestForTiles = 40;

std::pair<LawFit, cost::GemmLaw> best_law(const Fitting& f, models::Dtype dtype, LawTask& task) {
  task.predict = [&f, dtype, &task](const Constants& values,
                                    const std::vector<std::size_t>& which) {
    cost::Profile alone;
    alone.gemm = {law_of(f.gpu, dtype, values)};
    return times(*fitted_compute_cost(alone, f.gpu.peaks), task.samples, which);
  };
  const std::vector<Constant> plain = {
      start_up(4e-6), logarithmic(0.01, 1, 0.7), logarithmic(0.01, 3, 0.8), {1, 8, 1.5, false}};
  std::vector<Constant> tiles = plain;
  tiles.push_back({0.3, 1, 0.9, false});
  tiles.push_back({0.3, 1, 0.9, false});
  tiles.push_back({0, 1000, 100, false});
  task.constants = plain;
  LawFit fit = fit_law(task);
  const std::vector<std::size_t> fitted = fit.with(SampleFate::fitted);
  if (fitted.size() < kFewestForTiles || f.gpu.multiprocessors < 2)
    return {fit, law_of(f.gpu, dtype, fit.values)};
  const double without = left_out_error(task, fit);
  task.constants = tiles;
  const double with = left_out_error(task, fit);
  if (with < kGain * without) fit = fit_law(task);
  return {fit, law_of(f.gpu, dtype, fit.values)};
}

std::vector<const Sample*> single_products(const Fitting& f, models::Dtype dtype,
                                           std::int64_t alignment) {
  return f.choose<GemmCase>([&](const GemmCase& c) {
    return c.shape.dtype == dtype && c.shape.batch == 1 && alignment_of(c.shape) == alignment;
  });
}

double& share_of(cost::GemmUnaligned& unaligned, std::int64_t alignment) {
  if (alignment == 8) return unaligned.bytes_8;
  return alignment == 4 ? unaligned.bytes_4 : unaligned.bytes_2;
}

// The share of the law that products of one alignment reach; nothing where too few were measured.
std::optional<double> fit_alignment(const Fitting& f, const cost::GemmLaw& law,
                                    std::int64_t alignment) {
  LawTask task = task_of(single_products(f, law.dtype, alignment));
  if (task.samples.empty() ||
      !f.enough(task.samples, task.samples.size(), kFewestUnaligned, describe))
    return std::nullopt;
  task.constants = {logarithmic(0.01, 1, 0.3)};
  cost::Profile alone;
  alone.gemm = {law};
  const auto cost_at = [&](double share) {
    alone.gemm.front().unaligned = cost::GemmUnaligned{share, share, share};
    return fitted_compute_cost(alone, f.gpu.peaks);
  };
  task.predict = [&](const Constants& values, const std::vector<std::size_t>& which) {
    return times(*cost_at(values[0]), task.samples, which);
  };
  const LawFit fit = fit_law(task);
  const auto cost = cost_at(fit.values[0]);
  record_products(f, task, fit, *cost);
  return fit.values[0];
}

// An alignment that was not measured reaches what the next better one does.
void fit_unaligned(const Fitting& f, cost::GemmLaw& law) {
  std::optional<cost::GemmUnaligned> found;
  const std::size_t first = f.result.records.size();
  double better = 1;
  for (const std::int64_t alignment : kUnaligned) {
    const std::optional<double> share = fit_alignment(f, law, alignment);
    better = share.value_or(better);
    if (share && !found) found.emplace();
    if (found) share_of(*found, alignment) = better;
  }
  if (found)
    found->from = f.provenance(
        fmt::format("{} GEMMs whose rows begin at 2, 4 or 8 bytes, beside the law of the others",
                    f.result.records.size() - first),
        first);
  law.unaligned = found;
}

void fit_dtype(const Fitting& f, models::Dtype dtype) {
  LawTask task = task_of(single_products(f, dtype, kAligned));
  std::vector<Coordinates> shapes = task.places;
  for (std::size_t i = 0; i < shapes.size(); ++i)
    shapes[i].push_back(task.inner[i]);
  if (task.samples.empty() || !f.enough(task.samples, distinct(shapes), kFewestShapes, describe)) {
    for (const std::int64_t alignment : kUnaligned)
      f.unused(single_products(f, dtype, alignment),
               "too few for a law: no law of products with aligned rows", describe);
    return;
  }
  const auto [fit, law_alone] = best_law(f, dtype, task);
  cost::GemmLaw law = law_alone;
  for (const std::size_t i : fit.with(SampleFate::fitted)) {
    const models::Gemm& shape = as<GemmCase>(*task.samples[i]).shape;
    widen(law.m, shape.m), widen(law.n, shape.n), widen(law.k, shape.k);
  }
  if (table_helps(f.gpu, law, task, fit))
    law.residuals = residuals(f.gpu, law, task.samples, fit.with(SampleFate::fitted));
  if (fit.refused_outliers)
    f.warn(fmt::format("the {} GEMMs do not follow the law; see their residuals", name(dtype)));

  cost::Profile alone;
  alone.gemm = {law};
  const auto cost = fitted_compute_cost(alone, f.gpu.peaks);
  const std::size_t first = f.result.records.size();
  record_products(f, task, fit, *cost);
  law.from = f.provenance(samples_text(task, fit, law), first);
  fit_unaligned(f, law);
  f.profile().gemm.push_back(std::move(law));
}

void fit_batches(const Fitting& f) {
  LawTask task = task_of(f.choose<GemmCase>([&f](const GemmCase& c) {
    const auto own = [&c](const cost::GemmLaw& law) { return law.dtype == c.shape.dtype; };
    return c.shape.batch > 1 && std::any_of(f.profile().gemm.begin(), f.profile().gemm.end(), own);
  }));
  f.unused(f.choose<GemmCase>([&f](const GemmCase& c) {
    const auto own = [&c](const cost::GemmLaw& law) { return law.dtype == c.shape.dtype; };
    return c.shape.batch > 1 && std::none_of(f.profile().gemm.begin(), f.profile().gemm.end(), own);
  }),
           "no law of single GEMMs of this type", describe);
  if (task.samples.empty() ||
      !f.enough(task.samples, task.samples.size(), kFewestBatches, describe))
    return;
  task.constants = {logarithmic(0.01, 1, 0.7)};
  cost::Profile laws;
  laws.gemm = f.profile().gemm;
  const auto cost_at = [&](double efficiency) {
    laws.batched_gemm_efficiency = efficiency;
    return fitted_compute_cost(laws, f.gpu.peaks);
  };
  task.predict = [&](const Constants& values, const std::vector<std::size_t>& which) {
    return times(*cost_at(values[0]), task.samples, which);
  };
  const LawFit fit = fit_law(task);
  f.profile().batched_gemm_efficiency = fit.values[0];
  const auto cost = cost_at(fit.values[0]);
  const std::size_t first = f.result.records.size();
  record_products(f, task, fit, *cost);
  f.profile().batched_gemm_from = f.provenance(
      fmt::format("{} batches of GEMMs, one factor for all types", task.samples.size()), first);
}

}  // namespace

void fit_gemm(const Fitting& fitting) {
  for (const models::Dtype dtype : {models::Dtype::fp32, models::Dtype::tf32, models::Dtype::bf16,
                                    models::Dtype::fp16, models::Dtype::fp8})
    fit_dtype(fitting, dtype);
  fit_batches(fitting);
}

}  // namespace trainyard::fit
