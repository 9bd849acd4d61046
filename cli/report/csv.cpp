#include "cli/report/csv.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <string_view>
#include <utility>

#include "sim/base/check.h"
#include "sim/base/text.h"
#include "sim/simulate/report/findings.h"
#include "sim/simulate/report/summary.h"

namespace trainyard::report {

using simulate::StepReport;

namespace {

// What begins like a formula would be one in a spreadsheet.
std::string text_cell(std::string_view text) {
  std::string cell = escape_control(text);
  if (!cell.empty() && std::string_view("=+-@").find(cell[0]) != std::string_view::npos)
    cell.insert(cell.begin(), '\'');
  if (cell.find_first_of(",\"") == std::string::npos) return cell;
  std::string quoted = "\"";
  for (const char c : cell)
    quoted.append(c == '"' ? 2 : 1, c);
  return quoted + "\"";
}

std::string number(const std::optional<double>& value) {
  return value ? fmt::format("{}", *value) : "";
}

using Cells = std::vector<std::pair<std::string_view, std::string>>;

// What of a step that cannot run would be no number to compare.
std::string if_runs(const StepReport& report, double value) {
  return report.step_time ? number(value) : "";
}

// Columns and cells of a variant. Its name and label are the user's texts.
Cells cells_of(const StepReport& r, const simulate::Baseline& base) {
  const simulate::TrainingTotal none;
  const simulate::TrainingTotal& total = r.training ? *r.training : none;
  const bool known = r.training && r.step_time;
  return {
      {"name", text_cell(r.name)},
      {"label", text_cell(label_of(r))},
      {"status", r.deadlock ? "deadlock"
                 : r.fits   ? "ok"
                            : "out_of_memory"},
      {"step_time_s", r.step_time ? number(simulate::seconds(*r.step_time)) : ""},
      {"low_s", r.interval ? number(simulate::seconds(r.interval->low)) : ""},
      {"high_s", r.interval ? number(simulate::seconds(r.interval->high)) : ""},
      {"speedup", number(speedup(r, base))},
      {"samples_per_s", if_runs(r, r.samples_per_s)},
      {"tokens_per_s", r.is_language ? if_runs(r, r.tokens_per_s) : ""},
      {"mfu", if_runs(r, r.mfu)},
      {"hfu", if_runs(r, r.hfu)},
      {"full_square_mfu", number(full_square_mfu(r))},
      {"idle", number(r.bubble_fraction)},
      {"peak_bytes", fmt::format("{}", r.memory.peak.count())},
      {"capacity_bytes", fmt::format("{}", r.memory.capacity.count())},
      {"tight", r.memory.is_tight ? "true" : "false"},
      {"gpus", fmt::format("{}", r.world_size)},
      {"steps", r.training ? number(total.steps) : ""},
      {"days", known ? number(total.days) : ""},
      {"gpu_hours", known ? number(total.gpu_hours) : ""},
      {"dollars", number(total.dollars)},
      {"energy_kwh", number(total.kilowatt_hours)},
  };
}

std::string line_of(const Cells& cells, bool names) {
  std::string line;
  bool first = true;
  for (const auto& [name, cell] : cells)
    line += (first ? "" : ",") + (names ? std::string(name) : cell), first = false;
  return line + "\r\n";
}

}  // namespace

std::string compare_csv(std::span<const StepReport> reports, std::size_t baseline) {
  TRAINYARD_CHECK(baseline < reports.size(), "baseline {} of {} variants", baseline,
                  reports.size());
  const simulate::Baseline base = baseline_of(reports, baseline);
  std::string text = line_of(cells_of(reports[0], base), true);
  for (const std::size_t i : simulate::fastest_first(reports))
    text += line_of(cells_of(reports[i], base), false);
  return text;
}

}  // namespace trainyard::report
