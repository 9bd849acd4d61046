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
  std::array<double, 3> edges;
  std::array<std::string_view, 4> names;
};
// On today's GPUs the smallest class is the start of a kernel, the largest its rate.
constexpr std::array<SizeClasses, 2> kClasses = {
    {{"flops",
      {1e9, 1e11, 1e12},
      {"flops < 1e9", "flops 1e9 to 1e11", "flops 1e11 to 1e12", "flops >= 1e12"}},
     {"bytes",
      {1e5, 1e7, 1e8},
      {"bytes < 1e5", "bytes 1e5 to 1e7", "bytes 1e7 to 1e8", "bytes >= 1e8"}}}};

std::vector<double> relative(const std::vector<const FitRecord*>& records, SampleFate fate) {
  std::vector<double> found;
  for (const FitRecord* r : records)
    if (r->fate == fate) found.push_back(r->fitted_us / r->measured_us - 1);
  return found;
}

int count(const std::vector<const FitRecord*>& records, SampleFate fate) {
  return static_cast<int>(std::count_if(records.begin(), records.end(),
                                        [fate](const FitRecord* r) { return r->fate == fate; }));
}

// On the cases held out by `judges`, or on the fitted ones where none were.
cost::HeldOutError error_of(const std::string& what, const std::string& size,
                            const std::vector<const FitRecord*>& records,
                            SampleFate judges = SampleFate::held_out) {
  cost::HeldOutError row;
  row.what = what;
  row.size = size;
  row.fitted = count(records, SampleFate::fitted);
  row.held_out = count(records, judges);
  row.rejected = count(records, SampleFate::rejected);
  const Errors errors =
      errors_of(relative(records, row.held_out > 0 ? judges : SampleFate::fitted));
  row.mape = six_digits(errors.mape / 100);
  row.median = six_digits(errors.median / 100);
  row.worst = six_digits(errors.worst / 100);
  return row;
}

void add_classes(const std::string& group, const std::vector<const FitRecord*>& records,
                 std::vector<cost::HeldOutError>& rows) {
  for (const SizeClasses& classes : kClasses) {
    if (records.front()->size_name != classes.size_name) continue;
    std::array<std::vector<const FitRecord*>, 4> members;
    for (const FitRecord* r : records) {
      const auto* edge = std::upper_bound(classes.edges.begin(), classes.edges.end(), r->size);
      members[static_cast<std::size_t>(edge - classes.edges.begin())].push_back(r);
    }
    for (std::size_t i = 0; i < members.size(); ++i) {
      const bool all = members[i].size() == records.size();
      if (!all && !members[i].empty())
        rows.push_back(error_of(group, std::string(classes.names[i]), members[i]));
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

bool Fitting::enough(const std::vector<const Sample*>& of, std::size_t cases, std::size_t fewest,
                     const std::function<void(const Sample&, FitRecord&)>& describe) const {
  if (cases >= fewest) return true;
  FitRecord named;
  describe(*of.front(), named);
  warn(fmt::format("{}: {} different case{} too few for a law, which needs {}", named.group, cases,
                   cases == 1 ? " is" : "s are", fewest),
       "measure more, or leave the law to the base (--base)");
  unused(of, fmt::format("too few for a law: {} of {} cases", cases, fewest), describe);
  return false;
}

std::size_t distinct(std::vector<Coordinates> places) {
  std::sort(places.begin(), places.end());
  return static_cast<std::size_t>(std::unique(places.begin(), places.end()) - places.begin());
}

cost::Provenance Fitting::provenance(const std::string& what, std::size_t first_record) const {
  std::vector<const FitRecord*> own;
  for (std::size_t i = first_record; i < result.records.size(); ++i)
    own.push_back(&result.records[i]);
  const cost::HeldOutError error = error_of("", "all", own);
  cost::Provenance from;
  from.source = "trainyard calibrate";
  from.machine = result.device;
  from.date = machine.date.empty() ? "not said" : machine.date;
  from.samples = what;
  const auto text = [](const cost::HeldOutError& e, const std::string& cases) {
    return fmt::format("MAPE {:.1f} % on {}, median {:.1f} %, worst {:.0f} %", 100 * e.mape, cases,
                       100 * e.median, 100 * e.worst);
  };
  if (error.held_out > 0) {
    from.residual = text(error, fmt::format("{} held-out cases", error.held_out));
  } else {
    from.residual =
        text(error, fmt::format("the {} fitted cases", error.fitted)) + "; too few to hold any out";
  }
  const cost::HeldOutError sizes = error_of("", "", own, SampleFate::held_out_size);
  if (sizes.held_out > 0)
    from.residual +=
        fmt::format("; MAPE {:.1f} % on {} other sizes of fitted families, median {:.1f} %",
                    100 * sizes.mape, sizes.held_out, 100 * sizes.median);
  from.basis = Basis::interpolated;
  return from;
}

std::vector<cost::HeldOutError> errors_by_group(const std::vector<FitRecord>& records) {
  std::map<std::string, std::vector<const FitRecord*>> groups;
  for (const FitRecord& r : records)
    if (r.fate != SampleFate::unused) groups[r.group].push_back(&r);
  std::vector<cost::HeldOutError> rows;
  for (const auto& [group, members] : groups) {
    rows.push_back(error_of(group, "all", members));
    if (count(members, SampleFate::held_out_size) > 0)
      rows.push_back(error_of(group, kOtherSizes, members, SampleFate::held_out_size));
    add_classes(group, members, rows);
  }
  return rows;
}

}  // namespace trainyard::fit
