// The table of errors, for a terminal and as JSON.
#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "calibrate/fit/fitting.h"
#include "sim/base/text.h"
#include "sim/json/value.h"

namespace trainyard::fit {
namespace {

const std::vector<cost::HeldOutError>& held_out_errors(const FitResult& result) {
  static const std::vector<cost::HeldOutError> kNone;
  return result.profile.calibration ? result.profile.calibration->errors : kNone;
}

int count(const FitResult& result, SampleFate fate) {
  return static_cast<int>(std::count_if(result.records.begin(), result.records.end(),
                                        [fate](const FitRecord& r) { return r.fate == fate; }));
}

std::string line(std::size_t width, const std::string& what, const cost::HeldOutError& e) {
  return fmt::format("{:<{}}  {:>6}  {:>8}  {:>8}  {:>7.1f}  {:>8.1f}  {:>7.1f}{}\n",
                     escape_control(what), width, e.fitted, e.held_out, e.rejected, 100 * e.mape,
                     100 * e.median, 100 * e.worst, e.held_out == 0 ? "  of the fit" : "");
}

// The one number that reports repeat: over all held-out cases.
std::string whole_error(const FitResult& result) {
  double sum = 0;
  int cases = 0;
  for (const cost::HeldOutError& e : held_out_errors(result)) {
    if (e.size != "all") continue;
    sum += e.mape * e.held_out;
    cases += e.held_out;
  }
  if (cases == 0) return "no case was held out\n";
  return fmt::format("held-out error: {:.1f} %, the mean of {} cases\n", 100 * sum / cases, cases);
}

std::string unused(const FitResult& result) {
  std::map<std::string, int> counts;
  for (const FitRecord& r : result.records)
    if (r.fate == SampleFate::unused) ++counts[r.reason];
  std::string text;
  for (const auto& [reason, cases] : counts)
    text += fmt::format("not used: {} cases, {}\n", cases, escape_control(reason));
  return text;
}

// What was not measured here.
std::string carried_text(const FitResult& result) {
  std::string text;
  if (!result.carried.empty()) {
    text += "\nNot measured here:\n";
    std::size_t width = 0;
    for (const CarriedLaw& law : result.carried)
      width = std::max(width, law.what.size());
    for (const CarriedLaw& law : result.carried)
      text += fmt::format("  {:<{}}  {}, {}\n", law.what, width, name(law.from.basis),
                          escape_control(fit::origin(law.from)));
  }
  if (!result.missing.empty()) text += "\nNot in the profile:\n";
  for (const std::string& what : result.missing)
    text += "  " + what + "\n";
  return text;
}

}  // namespace

std::string fit_text(const FitResult& result) {
  std::size_t width = 4;
  for (const cost::HeldOutError& e : held_out_errors(result))
    width = std::max(
        width, e.size == fit::kOtherSizes ? e.size.size() + 2 : escape_control(e.what).size());
  std::string text =
      fmt::format("{}: {} cases of {}, {} fitted, {} held out, {} rejected, {} not used\n\n",
                  escape_control(result.profile.name), result.records.size(),
                  escape_control(result.device), count(result, SampleFate::fitted),
                  count(result, SampleFate::held_out) + count(result, SampleFate::held_out_size),
                  count(result, SampleFate::rejected), count(result, SampleFate::unused));
  text += fmt::format("{:<{}}  {:>6}  {:>8}  {:>8}  {:>7}  {:>8}  {:>7}\n", "what", width, "fitted",
                      "held out", "rejected", "MAPE %", "median %", "worst %");
  for (const cost::HeldOutError& e : held_out_errors(result)) {
    if (e.size == "all") text += line(width, e.what, e);
    if (e.size == fit::kOtherSizes) text += line(width, std::string("  ") + e.size, e);
  }
  text += "\n" + whole_error(result) + unused(result);
  text +=
      "\nHeld out are whole families: products of an (n, k), and sizes or lengths, that nothing "
      "near to them was fitted on.\n";
  return text + carried_text(result);
}

std::string fit_json(const FitResult& result) {
  using json::Value;
  Value root = Value::object();
  root.set("profile", Value::of(result.profile.name));
  root.set("gpu", Value::of(result.profile.gpu));
  root.set("device", Value::of(result.device));
  Value errors = Value::array();
  for (const cost::HeldOutError& e : held_out_errors(result)) {
    Value row = Value::object();
    row.set("what", Value::of(e.what));
    row.set("size", Value::of(e.size));
    row.set("fitted", Value::of(e.fitted));
    row.set("held_out", Value::of(e.held_out));
    row.set("rejected", Value::of(e.rejected));
    row.set("mape", Value::of(e.mape));
    row.set("median", Value::of(e.median));
    row.set("worst", Value::of(e.worst));
    errors.append(std::move(row));
  }
  root.set("errors", std::move(errors));
  Value rejected = Value::array();
  for (const FitRecord& r : result.records) {
    if (r.fate != SampleFate::rejected) continue;
    Value row = Value::object();
    row.set("what", Value::of(r.group));
    row.set("shape", Value::of(r.shape));
    row.set("measured_us", Value::of(r.measured_us));
    row.set("fitted_us", Value::of(fit::six_digits(r.fitted_us)));
    row.set("reason", Value::of(r.reason));
    rejected.append(std::move(row));
  }
  root.set("rejected", std::move(rejected));
  root.set("base", Value::of(result.base));
  Value carried = Value::array();
  for (const CarriedLaw& law : result.carried) {
    Value row = Value::object();
    row.set("what", Value::of(law.what));
    row.set("basis", Value::of(std::string(name(law.from.basis))));
    row.set("source", Value::of(law.from.source));
    carried.append(std::move(row));
  }
  root.set("not_measured", std::move(carried));
  Value missing = Value::array();
  for (const std::string& what : result.missing)
    missing.append(Value::of(what));
  root.set("missing", std::move(missing));
  return json::to_text(root) + "\n";
}

}  // namespace trainyard::fit
