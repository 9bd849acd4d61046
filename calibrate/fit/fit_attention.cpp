// Fused attention: start-up time and share of the dense peak by type, head size and masking, of
// the forward and of the backward pass. Source: docs/cost-attention.md.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <tuple>

#include "calibrate/fit/fitting.h"

namespace trainyard::fit {
namespace {

constexpr std::size_t kFewestLengths = 3;  // for two constants
constexpr double kLengthDistance = 0.1;    // in ln of length and of FLOPs: dealt together

using Kind = std::tuple<models::Dtype, std::int64_t, bool>;  // type, head size, causal

Kind kind_of(const models::Attention& a) {
  return {a.dtype, a.head_size, a.causal};
}

void describe(const Sample& sample, FitRecord& record) {
  const AttentionCase& c = as<AttentionCase>(sample);
  const models::Attention& a = c.shape;
  record.group = fmt::format("attention {} {} {} {}", name(a.dtype), a.head_size,
                             a.causal ? "causal" : "full", a.backward ? "backward" : "forward");
  record.size_name = "flops";
  record.size = flops(a).count();
  record.shape = fmt::format("{}x{}x{}", a.batch, a.heads, a.query_length);
  if (a.kv_heads != a.heads) record.shape += fmt::format(", {} of keys", a.kv_heads);
  if (a.key_length != a.query_length) record.shape += fmt::format(" on {}", a.key_length);
  if (!c.implementation.empty()) record.shape += " " + c.implementation;
}

// The implementation whose samples are used: the asked one, else cudnn, else what there is.
std::string implementation(const Fitting& f, const Kind& kind) {
  std::set<std::string> names;
  for (const Sample* s :
       f.choose<AttentionCase>([&](const AttentionCase& c) { return kind_of(c.shape) == kind; }))
    names.insert(as<AttentionCase>(*s).implementation);
  if (names.count(f.options.attention) > 0) return f.options.attention;
  if (names.count("cudnn") > 0) return "cudnn";
  return *names.begin();
}

struct Pass {
  LawTask task;
  LawFit fit;
};

// One pass of one kind: start-up and share. Empty if nothing was measured.
void fit_pass(const Fitting& f, cost::AttentionLaw& law, bool backward, Pass& pass) {
  if (pass.task.samples.empty()) return;
  for (const Sample* sample : pass.task.samples) {
    const models::Attention& a = as<AttentionCase>(*sample).shape;
    pass.task.places.push_back(
        {std::log(static_cast<double>(a.query_length)), std::log(flops(a).count())});
  }
  if (!f.enough(pass.task.samples, distinct(pass.task.places), kFewestLengths, describe)) {
    pass.task.samples.clear();
    return;
  }
  pass.task.distance = kLengthDistance;
  pass.task.constants = {start_up(8e-6), logarithmic(0.001, 1, 0.5)};
  const auto set = [backward](cost::AttentionLaw& to, const Constants& values) {
    (backward ? to.backward_fixed : to.forward_fixed) = Seconds(values[0]);
    (backward ? to.backward : to.forward) = values[1];
  };
  pass.task.predict = [&](const Constants& values, const std::vector<std::size_t>& which) {
    cost::Profile laws;
    laws.gemm = f.profile().gemm;
    laws.attention = {law};
    set(laws.attention.front(), values);
    const auto cost = fitted_compute_cost(laws, f.gpu.peaks);
    std::vector<double> seconds;
    for (const std::size_t i : which)
      seconds.push_back(cost->time(as<AttentionCase>(*pass.task.samples[i]).shape).time.count());
    return seconds;
  };
  pass.fit = fit_law(pass.task);
  set(law, pass.fit.values);
  for (const std::size_t i : pass.fit.with(SampleFate::fitted)) {
    const std::int64_t length = as<AttentionCase>(*pass.task.samples[i]).shape.query_length;
    law.length.least = law.length.least == 0 ? length : std::min(law.length.least, length);
    law.length.most = std::max(law.length.most, length);
  }
}

void fit_kind(const Fitting& f, const Kind& kind) {
  const std::string used = implementation(f, kind);
  const auto of_kind = [&](bool backward) {
    return f.choose<AttentionCase>([&](const AttentionCase& c) {
      return kind_of(c.shape) == kind && c.implementation == used && c.shape.backward == backward;
    });
  };
  f.unused(f.choose<AttentionCase>([&](const AttentionCase& c) {
    return kind_of(c.shape) == kind && c.implementation != used;
  }),
           fmt::format("{} is used", used), describe);
  cost::AttentionLaw law;
  std::tie(law.dtype, law.head_size, law.causal) = kind;
  Pass forward, backward;
  forward.task.samples = of_kind(false);
  backward.task.samples = of_kind(true);
  fit_pass(f, law, false, forward);
  fit_pass(f, law, true, backward);
  if (forward.task.samples.empty() && backward.task.samples.empty()) return;
  // A pass that was not measured is as good as the other one.
  if (backward.task.samples.empty()) law.backward = law.forward;
  if (forward.task.samples.empty()) law.forward = law.backward;

  cost::Profile laws;
  laws.gemm = f.profile().gemm;
  laws.attention = {law};
  const auto cost = fitted_compute_cost(laws, f.gpu.peaks);
  const std::size_t first = f.result.records.size();
  for (const Pass* pass : {&forward, &backward}) {
    if (pass->task.samples.empty()) continue;
    f.records(
        pass->task, pass->fit,
        [&](const Sample& s) { return microseconds(cost->time(as<AttentionCase>(s).shape).time); },
        describe);
  }
  std::string text =
      fmt::format("{} forward and {} backward kernels{}{}", forward.task.samples.size(),
                  backward.task.samples.size(), used.empty() ? "" : " of ", used);
  if (forward.task.samples.empty() || backward.task.samples.empty())
    text += "; the pass not measured has the share of the other";
  law.from = f.provenance(text, first);
  f.profile().attention.push_back(std::move(law));
}

}  // namespace

void fit_attention(const Fitting& fitting) {
  const std::vector<const Sample*> all =
      fitting.choose<AttentionCase>([](const AttentionCase&) { return true; });
  if (all.empty()) return;
  if (fitting.profile().gemm.empty()) {
    fitting.warn("attention was measured, but no GEMM: its laws stand on those of GEMMs",
                 "add the samples of GEMMs of the same GPU");
    fitting.unused(all, "no GEMM law", describe);
    return;
  }
  std::set<Kind> kinds;
  for (const Sample* sample : all)
    kinds.insert(kind_of(as<AttentionCase>(*sample).shape));
  for (const Kind& kind : kinds)
    fit_kind(fitting, kind);
}

}  // namespace trainyard::fit
