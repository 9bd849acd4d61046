// Factors of convolutions on the GEMM law of their type, and the table of measured shapes: for
// known networks nothing else is near enough. Source: docs/cost-convolution.md.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "calibrate/fit/fitting.h"

namespace trainyard::fit {
namespace {

constexpr double kShapeDistance = 0.1;  // in the ln of channels, image and kernel: dealt together
constexpr std::size_t kEfficiency = 0, kTiles = 6;  // their places among the constants
constexpr int kFewestForTiles = 40;  // sizes of results that tell them from the efficiency

Coordinates place_of(const models::Convolution& c) {
  const auto ln = [](std::int64_t size) { return std::log(static_cast<double>(size)); };
  return {ln(c.in_channels), ln(c.out_channels), ln(c.out_height), ln(c.kernel_height)};
}

void describe(const Sample& sample, FitRecord& record) {
  const models::Convolution& c = as<ConvolutionCase>(sample).shape;
  const char* pass = c.pass == models::ConvolutionPass::forward         ? "forward"
                     : c.pass == models::ConvolutionPass::data_gradient ? "data gradient"
                                                                        : "weight gradient";
  record.group = fmt::format("convolution {} {}", name(c.dtype), pass);
  record.size_name = "flops";
  record.size = flops(c).count();
  record.shape =
      fmt::format("{}x{}x{}x{} to {}x{}x{}, {}x{}", c.batch, c.in_channels, c.in_height, c.in_width,
                  c.out_channels, c.out_height, c.out_width, c.kernel_height, c.kernel_width);
  if (c.groups > 1) record.shape += fmt::format(" in {} groups", c.groups);
}

// It is in fp32, on CUDA cores.
cost::WinogradUse winograd(const FitGpu& gpu, models::Dtype dtype) {
  return dtype == models::Dtype::fp32 ? gpu.winograd : cost::WinogradUse::none;
}

cost::ConvolutionLaw law_of(const FitGpu& gpu, models::Dtype dtype, const std::vector<bool>& used,
                            const Constants& values) {
  cost::ConvolutionLaw law;
  law.dtype = dtype;
  law.winograd = winograd(gpu, dtype);
  double* const factors[] = {
      &law.efficiency,      &law.kernel_3x3,      &law.few_channels,
      &law.data_gradient,   &law.weight_gradient, &law.strided_data_gradient,
      &law.half_rate_tiles,
  };
  std::size_t next = 0;
  for (std::size_t i = 0; i < used.size(); ++i)
    if (used[i]) *factors[i] = values[next++];
  return law;
}

// Which factors the samples tell apart: each needs cases with and without it.
std::vector<bool> told_apart(const FitGpu& gpu, models::Dtype dtype,
                             const std::vector<const Sample*>& samples) {
  std::vector<int> with(6, 0);
  for (const Sample* sample : samples) {
    const models::Convolution& c = as<ConvolutionCase>(*sample).shape;
    with[1] += c.kernel_height == 3 && c.kernel_width == 3 ? 1 : 0;
    with[2] += c.in_channels / c.groups < 16 ? 1 : 0;
    with[3] += c.pass == models::ConvolutionPass::data_gradient ? 1 : 0;
    with[4] += c.pass == models::ConvolutionPass::weight_gradient ? 1 : 0;
    with[5] += c.pass == models::ConvolutionPass::data_gradient && cost::strided(c) ? 1 : 0;
  }
  std::vector<bool> used;
  for (const int count : with)
    used.push_back(count > 0 && count < static_cast<int>(samples.size()));
  used[0] = true;
  used[1] = used[1] && winograd(gpu, dtype) != cost::WinogradUse::separate;
  used.push_back(static_cast<int>(samples.size()) >= kFewestForTiles);
  return used;
}

std::unique_ptr<cost::ComputeCost> cost_of(const Fitting& f, const cost::ConvolutionLaw& law) {
  cost::Profile laws;
  laws.gemm = f.profile().gemm;
  laws.convolution = {law};
  return fitted_compute_cost(laws, f.gpu.peaks);
}

// The measured shapes; of equal ones (another stride with the same images) the geometric mean.
std::vector<cost::ConvolutionResidual> residuals(const Fitting& f, const cost::ConvolutionLaw& law,
                                                 const LawTask& task,
                                                 const std::vector<std::size_t>& which) {
  const auto cost = cost_of(f, law);
  std::vector<cost::ConvolutionResidual> table;
  std::vector<std::vector<double>> logarithms;
  for (const std::size_t i : which) {
    const models::Convolution shape = as<ConvolutionCase>(*task.samples[i]).shape;
    const double factor = task.samples[i]->time_us * 1e-6 / cost->time(shape).time.count();
    std::size_t at = 0;
    while (at < table.size() && !(table[at].shape == shape))
      ++at;
    if (at == table.size()) {
      table.push_back({shape, 1});
      logarithms.emplace_back();
    }
    logarithms[at].push_back(std::log(factor));
  }
  for (std::size_t i = 0; i < table.size(); ++i) {
    double sum = 0;
    for (const double value : logarithms[i])
      sum += value;
    table[i].factor = six_digits(std::exp(sum / static_cast<double>(logarithms[i].size())));
  }
  table.erase(
      std::remove_if(table.begin(), table.end(),
                     [](const cost::ConvolutionResidual& row) { return !in_a_table(row.factor); }),
      table.end());
  return table;
}

// Tensor cores have no shorter algorithm: what a few tiles lack is no reason for more than products
// reach by much.
Constant searched(std::size_t constant, models::Dtype dtype) {
  constexpr double kMostOfProducts = 1.2;
  if (constant == kTiles) return logarithmic(0.1, 200, 20);
  const bool whole = constant == kEfficiency && dtype != models::Dtype::fp32;
  return logarithmic(0.01, whole ? kMostOfProducts : 4, 0.8);
}

void fit_dtype(const Fitting& f, models::Dtype dtype) {
  LawTask task;
  task.samples = f.choose<ConvolutionCase>(
      [dtype](const ConvolutionCase& c) { return c.shape.dtype == dtype; });
  if (task.samples.empty()) return;
  for (const Sample* sample : task.samples)
    task.places.push_back(place_of(as<ConvolutionCase>(*sample).shape));
  task.distance = kShapeDistance;
  const std::vector<bool> used = told_apart(f.gpu, dtype, task.samples);
  for (std::size_t i = 0; i < used.size(); ++i)
    if (used[i]) task.constants.push_back(searched(i, dtype));
  const auto times = [&](const cost::ComputeCost& cost, const std::vector<std::size_t>& which) {
    std::vector<double> seconds;
    for (const std::size_t i : which)
      seconds.push_back(cost.time(as<ConvolutionCase>(*task.samples[i]).shape).time.count());
    return seconds;
  };
  task.predict = [&](const Constants& values, const std::vector<std::size_t>& which) {
    return times(*cost_of(f, law_of(f.gpu, dtype, used, values)), which);
  };
  if (!f.enough(task.samples, task.samples.size(), task.constants.size() + 2, describe)) return;
  const LawFit fit = fit_law(task);
  cost::ConvolutionLaw law = law_of(f.gpu, dtype, used, fit.values);
  law.residuals = residuals(f, law, task, fit.with(SampleFate::fitted));
  const auto cost = cost_of(f, law);
  const std::size_t first = f.result.records.size();
  f.records(
      task, fit,
      [&](const Sample& s) { return microseconds(cost->time(as<ConvolutionCase>(s).shape).time); },
      describe);
  law.from = f.provenance(
      fmt::format(
          "{} convolutions, {} fitted with a table of their {} shapes; the held-out error is "
          "that of shapes outside the table, to which the held-out ones were added afterwards",
          task.samples.size(), fit.with(SampleFate::fitted).size(), law.residuals.size()),
      first);
  std::vector<std::size_t> kept;
  for (std::size_t i = 0; i < fit.fates.size(); ++i)
    if (fit.fates[i] != SampleFate::rejected) kept.push_back(i);
  law.residuals = residuals(f, law_of(f.gpu, dtype, used, fit.values), task, kept);
  f.profile().convolution.push_back(std::move(law));
}

}  // namespace

void fit_convolution(const Fitting& fitting) {
  const std::vector<const Sample*> all =
      fitting.choose<ConvolutionCase>([](const ConvolutionCase&) { return true; });
  if (all.empty()) return;
  if (fitting.profile().gemm.empty()) {
    fitting.warn("convolutions were measured, but no GEMM: their law stands on that of GEMMs",
                 "add the samples of GEMMs of the same GPU");
    fitting.unused(all, "no GEMM law", describe);
    return;
  }
  for (const models::Dtype dtype : {models::Dtype::fp32, models::Dtype::tf32, models::Dtype::bf16,
                                    models::Dtype::fp16, models::Dtype::fp8})
    fit_dtype(fitting, dtype);
}

}  // namespace trainyard::fit
