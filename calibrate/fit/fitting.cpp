#include "calibrate/fit/fitting.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>

#include "sim/base/text.h"

namespace trainyard::fit {
namespace {

struct SizeClasses {
  std::string_view size_name;
  std::array<double, 2> edges;
};
constexpr std::array<SizeClasses, 2> kClasses = {{{"flops", {1e10, 1e12}}, {"bytes", {1e6, 1e8}}}};

// The cases that an error is quoted on: held out, or the fitted ones where none were.
std::vector<double> relative(const std::vector<const FitRecord*>& records) {
  for (const SampleFate fate : {SampleFate::held_out, SampleFate::fitted}) {
    std::vector<double> found;
    for (const FitRecord* r : records)
      if (r->fate == fate) found.push_back(r->fitted_us / r->measured_us - 1);
    if (!found.empty()) return found;
  }
  return {};
}

HeldOutError error_of(const std::string& what, const std::string& size,
                      const std::vector<const FitRecord*>& records) {
  const Errors errors = errors_of(relative(records));
  HeldOutError row;
  row.what = what;
  row.size = size;
  for (const FitRecord* r : records) {
    row.fitted += r->fate == SampleFate::fitted ? 1 : 0;
    row.held_out += r->fate == SampleFate::held_out ? 1 : 0;
    row.rejected += r->fate == SampleFate::rejected ? 1 : 0;
  }
  row.mape = six_digits(errors.mape / 100);
  row.median = six_digits(errors.median / 100);
  row.worst = six_digits(errors.worst / 100);
  return row;
}

void add_classes(const std::string& group, const std::vector<const FitRecord*>& records,
                 std::vector<HeldOutError>& rows) {
  for (const SizeClasses& classes : kClasses) {
    if (records.front()->size_name != classes.size_name) continue;
    const auto [low, high] = classes.edges;
    const std::array<std::string, 3> names = {
        fmt::format("{} < {:.0e}", classes.size_name, low),
        fmt::format("{} {:.0e} to {:.0e}", classes.size_name, low, high),
        fmt::format("{} >= {:.0e}", classes.size_name, high)};
    std::array<std::vector<const FitRecord*>, 3> members;
    for (const FitRecord* r : records)
      members[r->size < low ? 0 : r->size < high ? 1 : 2].push_back(r);
    for (std::size_t i = 0; i < members.size(); ++i) {
      const bool all = members[i].size() == records.size();
      if (!all && !members[i].empty()) rows.push_back(error_of(group, names[i], members[i]));
    }
  }
}

}  // namespace

void Fitting::warn(const std::string& message, const std::string& hint) const {
  Diagnostic diagnostic;
  diagnostic.severity = Severity::warning;
  if (!samples.empty()) diagnostic.at.file = samples.front().at.file;
  diagnostic.message = message;
  diagnostic.hint = hint;
  result.warnings.push_back(std::move(diagnostic));
}

FitRecord& Fitting::record(const Sample& sample, std::string group, double fitted_us) const {
  FitRecord& record = result.records.emplace_back();
  record.group = std::move(group);
  record.measured_us = sample.time_us;
  record.fitted_us = fitted_us;
  record.at = sample.at;
  return record;
}

void Fitting::records(const LawTask& task, const LawFit& fit,
                      const std::function<double(const Sample&)>& fitted_us,
                      const std::function<void(const Sample&, FitRecord&)>& describe) const {
  for (std::size_t i = 0; i < task.samples.size(); ++i) {
    FitRecord& r = record(*task.samples[i], "", fitted_us(*task.samples[i]));
    describe(*task.samples[i], r);
    r.fate = fit.fates[i];
    r.reason = fit.reasons[i];
    if (r.fate == SampleFate::rejected && r.reason == "outlier")
      r.reason = fmt::format("outlier: {:.3g} times the law", r.measured_us / r.fitted_us);
  }
}

void Fitting::unused(const std::vector<const Sample*>& unwanted, const std::string& reason,
                     const std::function<void(const Sample&, FitRecord&)>& describe) const {
  for (const Sample* sample : unwanted) {
    FitRecord& r = record(*sample, "", 0);
    describe(*sample, r);
    r.fate = SampleFate::unused;
    r.reason = reason;
  }
}

Provenance Fitting::provenance(const std::string& what, std::size_t first_record) const {
  std::vector<const FitRecord*> own;
  for (std::size_t i = first_record; i < result.records.size(); ++i)
    own.push_back(&result.records[i]);
  const HeldOutError error = error_of("", "all", own);
  Provenance from;
  from.source = "trainyard calibrate";
  from.machine = result.device;
  from.date = machine.date.empty() ? "not said" : machine.date;
  from.samples = what;
  if (error.held_out > 0) {
    from.residual =
        fmt::format("MAPE {:.1f} % on {} held-out cases, median {:.1f} %, worst {:.0f} %",
                    100 * error.mape, error.held_out, 100 * error.median, 100 * error.worst);
  } else {
    from.residual = fmt::format("MAPE {:.1f} % on the {} fitted cases, too few to hold any out",
                                100 * error.mape, error.fitted);
  }
  from.basis = Basis::interpolated;
  return from;
}

std::vector<HeldOutError> errors_by_group(const std::vector<FitRecord>& records) {
  std::map<std::string, std::vector<const FitRecord*>> groups;
  for (const FitRecord& r : records)
    if (r.fate != SampleFate::unused) groups[r.group].push_back(&r);
  std::vector<HeldOutError> rows;
  for (const auto& [group, members] : groups) {
    rows.push_back(error_of(group, "all", members));
    add_classes(group, members, rows);
  }
  return rows;
}

}  // namespace trainyard::fit
