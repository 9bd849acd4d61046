#include <fmt/format.h>

#include <algorithm>

#include "cli/report/validation.h"
#include "sim/base/text.h"
#include "sim/base/version.h"
#include "sim/json/value.h"

namespace trainyard::report {
namespace {

using json::Value;
using validation::ErrorScore;
using validation::Pair;
using validation::PredictedRecord;
using validation::PredictedSet;
using validation::SetScore;

template <class T, class Write>
std::string cell(const std::optional<T>& value, int width, const Write& write) {
  return fmt::format("{:>{}}", value ? write(*value) : std::string("-"), width);
}

std::string percent(double share) {
  return fmt::format("{:.1f} %", 100 * share);
}

std::string score_line(const std::string& name, std::size_t width, const SetScore& score) {
  const auto of_time = [&](double ErrorScore::*value) {
    return cell(score.time, 9, [&](const ErrorScore& of) { return percent(of.*value); });
  };
  const auto two_digits = [](double value) { return fmt::format("{:.2f}", value); };
  std::string line = fmt::format("{:<{}}", name, width);
  line += cell(score.time, 6, [](const ErrorScore& of) { return fmt::format("{}", of.count); });
  line += of_time(&ErrorScore::mape) + of_time(&ErrorScore::median) + of_time(&ErrorScore::p90);
  line += cell(score.time, 9,
               [](const ErrorScore& of) { return fmt::format("{:+.1f} %", 100 * of.bias); });
  line += cell(score.rank_correlation, 7, two_digits);
  line += cell(score.regret, 9, [](const validation::Regret& of) { return percent(of.mean); });
  line += cell(score.memory, 9, [](const ErrorScore& of) { return percent(of.median); });
  line += cell(score.verdicts.balanced_accuracy(), 7, two_digits);
  return line + "\n";
}

std::string seconds_text(double seconds) {
  return fmt::format("{:.3f}s", seconds);
}

std::string gibibytes_text(double bytes) {
  return fmt::format("{:.1f}GiB", bytes / 0x1p30);
}

std::string pair_text(const Pair& pair, std::string (*write)(double)) {
  return fmt::format("{:>11}{:>11}  {:>+6.1f}%", write(pair.measured), write(pair.predicted),
                     100 * error_of(pair));
}

std::string row_text(const PredictedRecord& row, std::size_t width) {
  std::string line = fmt::format("  {:<{}}", escape_control(row.record.name), width);
  if (const std::optional<Pair> time = row.seconds()) line += pair_text(*time, seconds_text);
  if (const std::optional<Pair> memory = row.memory()) line += pair_text(*memory, gibibytes_text);
  if (row.record.fits == false) line += "  out of memory";
  if (row.record.fits && !row.prediction.fits) line += "  said not to fit";
  if (row.prediction.is_tight) line += "  said to be tight";
  if (row.prediction.scenario > 0)
    line += fmt::format("  scenario {}", row.prediction.scenario + 1);
  return line + "\n";
}

std::string rows_text(const PredictedSet& set) {
  std::string text = escape_control(set.name) + "\n";
  std::size_t width = 0;
  for (const PredictedRecord& row : set.rows)
    width = std::max(width, escape_control(row.record.name).size());
  text += fmt::format("  {:<{}}{:>11}{:>11}  {:>7}\n", "", width, "measured", "predicted", "error");
  for (const PredictedRecord& row : set.rows)
    text += row_text(row, width);
  return text + "\n";
}

Value of_score(const ErrorScore& score) {
  Value out = Value::object();
  out.set("rows", Value::of(static_cast<std::int64_t>(score.count)));
  out.set("mape", Value::of(score.mape));
  out.set("median", Value::of(score.median));
  out.set("p90", Value::of(score.p90));
  out.set("max", Value::of(score.most));
  out.set("bias", Value::of(score.bias));
  return out;
}

Value of_verdicts(const validation::Verdicts& verdicts) {
  Value out = Value::object();
  const auto count = [&](const char* name, std::size_t value) {
    out.set(name, Value::of(static_cast<std::int64_t>(value)));
  };
  count("hits", verdicts.foreseen);
  count("misses", verdicts.missed);
  count("false_alarms", verdicts.false_alarms);
  count("fits", verdicts.ran);
  count("tight_misses", verdicts.tight_missed);
  count("tight_fits", verdicts.tight_ran);
  const std::optional<double> accuracy = verdicts.balanced_accuracy();
  out.set("balanced_accuracy", accuracy ? Value::of(*accuracy) : Value::null());
  return out;
}

void set_scores(Value& out, const SetScore& score) {
  out.set("step_time", score.time ? of_score(*score.time) : Value::null());
  out.set("rank_correlation",
          score.rank_correlation ? Value::of(*score.rank_correlation) : Value::null());
  Value regret = Value::null();
  if (score.regret) {
    regret = Value::object();
    regret.set("choices", Value::of(static_cast<std::int64_t>(score.regret->choices)));
    regret.set("mean", Value::of(score.regret->mean));
    regret.set("max", Value::of(score.regret->most));
  }
  out.set("pick_regret", std::move(regret));
  out.set("memory", score.memory ? of_score(*score.memory) : Value::null());
  out.set("out_of_memory", of_verdicts(score.verdicts));
}

Value of_row(const PredictedRecord& row) {
  Value out = Value::object();
  out.set("record", Value::of(row.record.name));
  if (!row.record.group.empty()) out.set("group", Value::of(row.record.group));
  const auto pair = [&](const std::string& what, const std::optional<Pair>& value) {
    if (!value) return;
    out.set("measured_" + what, Value::of(value->measured));
    out.set("predicted_" + what, Value::of(value->predicted));
    out.set("error_" + what, Value::of(error_of(*value)));
  };
  pair("s", row.seconds());
  pair("bytes", row.memory());
  if (row.record.fits) out.set("measured_fits", Value::of(*row.record.fits));
  out.set("predicted_fits", Value::of(row.prediction.fits));
  out.set("predicted_tight", Value::of(row.prediction.is_tight));
  out.set("scenario", Value::of(static_cast<std::int64_t>(row.prediction.scenario)));
  return out;
}

}  // namespace

std::string validation_text(std::span<const PredictedSet> sets, bool rows) {
  std::string text;
  std::size_t width = 9, left_out = 0, unmeasured = 0;
  for (const PredictedSet& set : sets) {
    if (rows) text += rows_text(set);
    width = std::max(width, escape_control(set.name).size());
    left_out += set.left_out;
    unmeasured += set.unmeasured;
  }
  text += fmt::format("{:<{}}{:>6}{:>9}{:>9}{:>9}{:>9}{:>7}{:>9}{:>9}{:>7}\n", "set", width, "n",
                      "MAPE", "median", "p90", "bias", "rank", "regret", "memory", "OOM");
  for (const PredictedSet& set : sets)
    text += score_line(escape_control(set.name), width, score_of(set));
  if (sets.size() > 1) {
    text += score_line("all rows", width, score_of_all(sets));
    SetScore steps;
    steps.time = score_of_steps(sets);
    text += score_line("all steps", width, steps);
  }
  text +=
      "\nn to rank: step times, predicted / measured - 1. regret: what the predicted best of those "
      "in a\ngroup that are predicted to fit takes beyond the measured best. memory: median error. "
      "OOM:\nbalanced accuracy of verdicts.\n";
  if (sets.size() > 1)
    text += "all steps: means of the sets, of which each counts as at most 100 rows.\n";
  if (left_out > 0) text += fmt::format("left out: {} records that are wrong\n", left_out);
  if (unmeasured > 0)
    text += fmt::format("left out: {} records of runs that were not measured\n", unmeasured);
  return text;
}

std::string validation_json(std::span<const PredictedSet> sets) {
  Value out = Value::object();
  out.set("trainyard", Value::of(kVersion));
  Value all = Value::object();
  set_scores(all, score_of_all(sets));
  out.set("all", std::move(all));
  const std::optional<ErrorScore> steps = score_of_steps(sets);
  out.set("all_steps", steps ? of_score(*steps) : Value::null());
  Value list = Value::array();
  for (const PredictedSet& set : sets) {
    Value one = Value::object();
    one.set("set", Value::of(set.name));
    one.set("source", Value::of(set.source));
    if (!set.license.empty()) one.set("license", Value::of(set.license));
    set_scores(one, score_of(set));
    one.set("left_out", Value::of(static_cast<std::int64_t>(set.left_out)));
    one.set("unmeasured", Value::of(static_cast<std::int64_t>(set.unmeasured)));
    Value rows = Value::array();
    for (const PredictedRecord& row : set.rows)
      rows.append(of_row(row));
    one.set("records", std::move(rows));
    list.append(std::move(one));
  }
  out.set("sets", std::move(list));
  return json::to_text(out) + "\n";
}

}  // namespace trainyard::report
