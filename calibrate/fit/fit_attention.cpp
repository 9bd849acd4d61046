// Attention: start-up time, share of the dense peak and keys' worth of time per query by kernel,
// type and head size, of the forward and of the backward pass. Source: docs/cost-attention.md.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <set>
#include <tuple>

#include "calibrate/fit/fitting.h"

namespace trainyard::fit {

using models::AttentionKernel;

namespace {

constexpr std::size_t kFewestCases = 3;  // for two constants
constexpr std::size_t kFewestKeys = 3;   // to tell what a query costs beside its keys
constexpr double kLengthDistance = 0.1;  // in ln of length and of FLOPs: dealt together
constexpr double kHeldOut = 0.5;
// A few launches. What is more, in cases that all have as many tokens, is of their queries.
constexpr double kNoTime = 1e-9, kMostStart = 5e-5;

// Kernel, type, head size and masking; empty: both, which a kernel that skips masked scores has in
// one law.
using Kind =
    std::tuple<std::optional<AttentionKernel>, models::Dtype, std::int64_t, std::optional<bool>>;

std::optional<AttentionKernel> kernel_of(const AttentionCase& c) {
  for (const AttentionKernel kernel :
       {AttentionKernel::sdpa_math, AttentionKernel::fa1, AttentionKernel::triton,
        AttentionKernel::fa2, AttentionKernel::fa3, AttentionKernel::cudnn})
    if (c.implementation == name(kernel)) return kernel;
  return std::nullopt;
}

Kind kind_of(const AttentionCase& c) {
  const std::optional<AttentionKernel> kernel = kernel_of(c);
  const bool skips = kernel && *kernel != AttentionKernel::sdpa_math;
  return {kernel, c.shape.dtype, c.shape.head_size,
          skips ? std::nullopt : std::optional(c.shape.causal)};
}

void describe(const Sample& sample, FitRecord& record) {
  const AttentionCase& c = as<AttentionCase>(sample);
  const models::Attention& a = c.shape;
  const std::optional<AttentionKernel> kernel = kernel_of(c);
  record.group = fmt::format("attention{}{} {} {}{} {}", kernel ? " " : "",
                             kernel ? name(*kernel) : "", name(a.dtype), a.head_size,
                             std::get<3>(kind_of(c)) ? (a.causal ? " causal" : " full") : "",
                             a.backward ? "backward" : "forward");
  record.size_name = "flops";
  record.size = flops(a).count();
  record.shape =
      fmt::format("{}x{}x{}{}", a.batch, a.heads, a.query_length, a.causal ? " causal" : " full");
  if (a.kv_heads != a.heads) record.shape += fmt::format(", {} of keys", a.kv_heads);
  if (a.key_length != a.query_length) record.shape += fmt::format(" on {}", a.key_length);
  if (!c.implementation.empty()) record.shape += " " + c.implementation;
}

struct Pass {
  LawTask task;
  LawFit fit;
};

// Seconds of the pass's cases under a law.
std::vector<double> seconds_of(const Fitting& f, const Pass& pass, const cost::AttentionLaw& law,
                               const std::vector<std::size_t>& which) {
  cost::Profile laws;
  laws.gemm = f.profile().gemm;
  laws.attention = {law};
  const auto cost = fitted_compute_cost(laws, f.gpu.peaks);
  std::vector<double> seconds;
  for (const std::size_t i : which)
    seconds.push_back(cost->time(as<AttentionCase>(*pass.task.samples[i]).shape).time.count());
  return seconds;
}

void set_constants(cost::AttentionLaw& law, bool backward, const Constants& values) {
  (backward ? law.backward_fixed : law.forward_fixed) = Seconds(values[0]);
  (backward ? law.backward : law.forward) = values[1];
  if (values.size() > 2) (backward ? law.backward_keys : law.forward_keys) = values[2];
}

// Whether the cases tell the cost of a query from that of its keys.
bool tells_keys(const Pass& pass) {
  std::set<double> keys;
  for (const Sample* sample : pass.task.samples)
    keys.insert(visible_keys(as<AttentionCase>(*sample).shape));
  return keys.size() >= kFewestKeys;
}

// One pass of one kind. Empty if nothing was measured.
void fit_pass(const Fitting& f, cost::AttentionLaw& law, bool backward, Pass& pass) {
  if (pass.task.samples.empty()) return;
  for (const Sample* sample : pass.task.samples) {
    const models::Attention& a = as<AttentionCase>(*sample).shape;
    pass.task.places.push_back(
        {std::log(static_cast<double>(a.query_length)), std::log(flops(a).count())});
  }
  if (!f.enough(pass.task.samples, distinct(pass.task.places), kFewestCases, describe)) {
    pass.task.samples.clear();
    return;
  }
  pass.task.distance = kLengthDistance;
  pass.task.held_out = kHeldOut;
  pass.task.constants = {logarithmic(kNoTime, kMostStart, 8e-6), logarithmic(0.001, 1, 0.5)};
  pass.task.predict = [&](const Constants& values, const std::vector<std::size_t>& which) {
    cost::AttentionLaw tried = law;
    set_constants(tried, backward, values);
    return seconds_of(f, pass, tried, which);
  };
  if (tells_keys(pass)) pass.task.constants.push_back(logarithmic(1, 5000, 100));
  pass.fit = fit_law(pass.task);
  set_constants(law, backward, pass.fit.values);
  for (const std::size_t i : pass.fit.with(SampleFate::fitted)) {
    const std::int64_t length = as<AttentionCase>(*pass.task.samples[i]).shape.query_length;
    law.length.least = law.length.least == 0 ? length : std::min(law.length.least, length);
    law.length.most = std::max(law.length.most, length);
  }
}

// The implementation whose samples are used where none is a kernel with a name: the asked one, else
// what there is.
std::string implementation(const Fitting& f, const Kind& kind) {
  std::set<std::string> names;
  for (const Sample* s :
       f.choose<AttentionCase>([&](const AttentionCase& c) { return kind_of(c) == kind; }))
    names.insert(as<AttentionCase>(*s).implementation);
  return names.count(f.options.attention) > 0 ? f.options.attention : *names.begin();
}

// Whether another implementation of the same shapes is taken instead.
bool is_passed_over(const Fitting& f, const Kind& kind) {
  const auto& [kernel, dtype, head_size, causal] = kind;
  const auto of_others = f.choose<AttentionCase>(
      [&, kernel = kernel, dtype = dtype, head_size = head_size](const AttentionCase& c) {
        return c.shape.dtype == dtype && c.shape.head_size == head_size && kernel_of(c) != kernel &&
               (f.options.attention.empty() ? kernel_of(c).has_value()
                                            : c.implementation == f.options.attention);
      });
  if (of_others.empty()) return false;
  return f.options.attention.empty() ? !kernel.has_value()
                                     : !kernel || name(*kernel) != f.options.attention;
}

std::string counted(const Pass& forward, const Pass& backward, const std::string& used) {
  std::string text =
      fmt::format("{} forward and {} backward kernels{}{}", forward.task.samples.size(),
                  backward.task.samples.size(), used.empty() ? "" : " of ", used);
  if (forward.task.samples.empty() || backward.task.samples.empty())
    text += "; the pass not measured has the share of the other";
  return text;
}

// The masking that all cases have.
std::optional<bool> only_masking(const Pass& forward, const Pass& backward) {
  std::set<bool> found;
  for (const Pass* pass : {&forward, &backward})
    for (const Sample* sample : pass->task.samples)
      found.insert(as<AttentionCase>(*sample).shape.causal);
  return found.size() == 1 ? std::optional(*found.begin()) : std::nullopt;
}

void fit_kind(const Fitting& f, const Kind& kind) {
  const std::string used = implementation(f, kind);
  const auto of_kind = [&](std::optional<bool> backward, bool is_used) {
    return f.choose<AttentionCase>([&, backward, is_used](const AttentionCase& c) {
      return kind_of(c) == kind && (c.implementation == used) == is_used &&
             c.shape.backward == backward.value_or(c.shape.backward);
    });
  };
  f.unused(of_kind({}, false), fmt::format("{} is used", used), describe);
  cost::AttentionLaw law;
  std::tie(law.kernel, law.dtype, law.head_size, law.causal) = kind;
  Pass forward, backward;
  forward.task.samples = of_kind(false, true);
  backward.task.samples = of_kind(true, true);
  if (is_passed_over(f, kind)) {
    f.unused(of_kind({}, true), "another implementation is used", describe);
    return;
  }
  fit_pass(f, law, false, forward);
  law.backward_keys = law.forward_keys;  // until its own cases tell them
  fit_pass(f, law, true, backward);
  if (forward.task.samples.empty() && backward.task.samples.empty()) return;
  // A pass that was not measured is as good as the other one.
  if (backward.task.samples.empty()) law.backward = law.forward;
  if (forward.task.samples.empty()) law.forward = law.backward;
  law.causal = only_masking(forward, backward);

  const std::size_t first = f.result.records.size();
  cost::Profile laws;
  laws.gemm = f.profile().gemm;
  laws.attention = {law};
  const auto cost = fitted_compute_cost(laws, f.gpu.peaks);
  for (const Pass* pass : {&forward, &backward}) {
    if (pass->task.samples.empty()) continue;
    f.records(
        pass->task, pass->fit,
        [&](const Sample& s) { return microseconds(cost->time(as<AttentionCase>(s).shape).time); },
        describe);
  }
  law.from = f.provenance(counted(forward, backward, used), first);
  f.profile().attention.push_back(std::move(law));
}

}  // namespace

void fit_attention(const Fitting& fitting) {
  std::set<Kind> kinds;
  for (const Sample* sample :
       fitting.choose<AttentionCase>([](const AttentionCase&) { return true; }))
    kinds.insert(kind_of(as<AttentionCase>(*sample)));
  for (const Kind& kind : kinds)
    fit_kind(fitting, kind);
}

}  // namespace trainyard::fit
