// The page of a validation: SVG, a table and no script.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "cli/report/still/still_page.h"
#include "cli/report/validation.h"
#include "sim/base/html.h"
#include "sim/base/version.h"

namespace trainyard::report {
namespace {

using validation::Pair;
using validation::PredictedRecord;
using validation::PredictedSet;
using validation::SetScore;

constexpr const char* kStyle = R"css(
.equal { stroke: var(--quiet); stroke-width: 1.2; }
.tenth { fill: var(--goodback); }
.legend { display: flex; flex-wrap: wrap; gap: 4px 20px; list-style: none; padding: 0; }
.legend svg { width: 12px; height: 12px; margin-right: 6px; }
.scores { border-collapse: collapse; font-variant-numeric: tabular-nums; }
.scores td, .scores th { padding: 4px 12px; text-align: right; border-top: 1px solid var(--line); }
.scores td:first-child, .scores th:first-child { text-align: left; }
)css";

// The logarithm to base 10 in 20 binary digits, by multiplications alone: the same on every
// machine. Of less than 1e-12 it is that of 1e-12.
double decades(double value) {
  double whole = 0;
  value = std::max(value, 1e-12);
  for (; value >= 10; value /= 10)
    ++whole;
  for (; value < 1; value *= 10)
    --whole;
  double digit = 0.5;
  for (int i = 0; i < 20; ++i, digit /= 2) {
    value *= value;
    if (value < 10) continue;
    value /= 10;
    whole += digit;
  }
  return whole;
}

// digit x 10^power
std::string label_of(int digit, int power) {
  return power >= 0
             ? fmt::format("{}{}", digit, std::string(static_cast<std::size_t>(power), '0'))
             : fmt::format("0.{}{}", std::string(static_cast<std::size_t>(-power - 1), '0'), digit);
}

// What is drawn of a row, in the unit of its name.
struct Quantity {
  std::optional<Pair> (PredictedRecord::*of)() const;
  double unit;
  const char *name, *title;

  std::optional<Pair> in_units(const PredictedRecord& row) const {
    std::optional<Pair> pair = (row.*of)();
    if (pair) *pair = {pair->predicted / unit, pair->measured / unit};
    return pair;
  }
};

// Colours of equal lightness; the golden angle keeps those of neighbours apart.
std::string colour(std::size_t index) {
  return fmt::format("hsl({} 62% 48%)", 1375 * index / 10 % 360);
}

// Powers of ten, and 2 and 5 between them where they are few.
std::string grid(const Scatter& drawing, const Axis& x, const Axis& y, const char* unit) {
  std::string svg;
  for (int power = static_cast<int>(std::floor(x.low)); power <= std::floor(x.high); ++power) {
    for (const int digit : {1, 2, 5}) {
      const double at = power + decades(digit);
      if (at < x.low || at > x.high || (digit > 1 && x.high - x.low > 2)) continue;
      const std::string label = label_of(digit, power) + " " + unit;
      svg += drawing.x_line(x, at, label) + drawing.y_line(y, at, label);
    }
  }
  return svg;
}

// The diagonal, and a tenth to each side of it.
std::string equality(const Axis& x, const Axis& y) {
  const double tenth = decades(1.1);
  return fmt::format(R"(<polygon class="tenth" points="{:.1f},{:.1f} {:.1f},{:.1f} )"
                     R"({:.1f},{:.1f} {:.1f},{:.1f}"/>)",
                     x.at(x.low), y.at(y.low + tenth), x.at(x.high - tenth), y.at(y.high),
                     x.at(x.high), y.at(y.high - tenth), x.at(x.low + tenth), y.at(y.low)) +
         fmt::format(R"(<line class="equal" x1="{:.1f}" y1="{:.1f}" x2="{:.1f}" y2="{:.1f}"/>)",
                     x.at(x.low), y.at(y.low), x.at(x.high), y.at(y.high));
}

std::string points(std::span<const PredictedSet> sets, const Quantity& quantity, const Axis& x,
                   const Axis& y) {
  std::string svg;
  for (std::size_t i = 0; i < sets.size(); ++i) {
    svg += fmt::format(R"(<g fill="{}" fill-opacity=".7">)", colour(i));
    for (const PredictedRecord& row : sets[i].rows) {
      const std::optional<Pair> pair = quantity.in_units(row);
      if (!pair) continue;
      const std::string title =
          fmt::format("{}: {}, measured {:.4g} {unit}, predicted {:.4g} {unit} ({:+.1f} %)",
                      sets[i].name, row.record.name, pair->measured, pair->predicted,
                      100 * error_of(*pair), fmt::arg("unit", quantity.name));
      svg += fmt::format(R"(<circle cx="{:.1f}" cy="{:.1f}" r="3.4"><title>{}</title></circle>)",
                         x.at(decades(pair->measured)), y.at(decades(pair->predicted)),
                         for_html(title));
    }
    svg += "</g>";
  }
  return svg;
}

std::string scatter(std::span<const PredictedSet> sets, const Quantity& quantity) {
  std::vector<double> powers;
  for (const PredictedSet& set : sets)
    for (const PredictedRecord& row : set.rows)
      if (const std::optional<Pair> pair = quantity.in_units(row)) {
        powers.push_back(decades(pair->measured));
        powers.push_back(decades(pair->predicted));
      }
  if (powers.empty()) return "";
  const double low = *std::min_element(powers.begin(), powers.end()) - 0.1;
  const double high = std::max(*std::max_element(powers.begin(), powers.end()) + 0.1, low + 1);
  const Scatter drawing(560);
  const Axis x = drawing.x_axis(low, high), y = drawing.y_axis(low, high);
  const std::string svg = equality(x, y) + grid(drawing, x, y, quantity.name) +
                          points(sets, quantity, x, y) +
                          drawing.axis_titles("measured", "predicted");
  return drawing.section(quantity.title,
                         fmt::format("{}: predicted against measured", quantity.title), svg,
                         "Shaded: a tenth to each side. A point names its row.");
}

std::string legend(std::span<const PredictedSet> sets) {
  std::string html = R"(<ul class="legend">)";
  for (std::size_t i = 0; i < sets.size(); ++i)
    html += fmt::format(
        R"(<li><svg viewBox="0 0 12 12"><circle cx="6" cy="6" r="5" fill="{}"/></svg>{}</li>)",
        colour(i), for_html(sets[i].name));
  return html + "</ul>";
}

std::string score_row(const std::string& name, const SetScore& score) {
  const auto cell = [](bool is_known, double share, const char* format) {
    return fmt::format("<td>{}</td>", is_known ? fmt::format(fmt::runtime(format), share) : "-");
  };
  const validation::ErrorScore time = score.time.value_or(validation::ErrorScore{});
  const bool timed = score.time.has_value();
  const std::optional<double> accuracy = score.verdicts.balanced_accuracy();
  constexpr const char* kPercent = "{:.1f} %";
  return fmt::format("<tr><td>{}</td><td>{}</td>", for_html(name), time.count) +
         cell(timed, 100 * time.mape, kPercent) + cell(timed, 100 * time.median, kPercent) +
         cell(timed, 100 * time.p90, kPercent) + cell(timed, 100 * time.bias, "{:+.1f} %") +
         cell(score.rank_correlation.has_value(), score.rank_correlation.value_or(0), "{:.2f}") +
         cell(score.regret.has_value(), score.regret ? 100 * score.regret->mean : 0, kPercent) +
         cell(score.memory.has_value(), score.memory ? 100 * score.memory->median : 0, kPercent) +
         cell(accuracy.has_value(), accuracy.value_or(0), "{:.2f}") + "</tr>\n";
}

std::string table(std::span<const PredictedSet> sets) {
  std::string html =
      R"(<section><h2>By set</h2><div class="panel"><table class="scores"><thead><tr><th>set</th>)"
      "<th>n</th><th>MAPE</th><th>median</th><th>p90</th><th>bias</th><th>rank correlation</th>"
      "<th>pick regret</th><th>memory, median</th><th>out of memory</th></tr></thead><tbody>\n";
  for (const PredictedSet& set : sets)
    html += score_row(set.name, score_of(set));
  html += score_row("all rows", score_of_all(sets));
  SetScore steps;
  steps.time = score_of_steps(sets);
  html += score_row("all steps, a set as at most 100", steps);
  html += "</tbody></table></div></section><section><h2>Sources</h2><ul>";
  for (const PredictedSet& set : sets)
    html += fmt::format("<li><b>{}</b>: {}{}</li>", for_html(set.name), for_html(set.source),
                        set.license.empty() ? "" : for_html(" (" + set.license + ")"));
  return html + "</ul></section>";
}

}  // namespace

std::string validation_html(std::span<const PredictedSet> sets) {
  std::size_t rows = 0;
  for (const PredictedSet& set : sets)
    rows += set.rows.size();
  return still_page(
      {.title = "validation",
       .style = kStyle,
       .heading = "Predicted against measured",
       .note = fmt::format(
           "{} row{} of {} set{}, trainyard {}. Errors are predicted / measured - 1.", rows,
           rows == 1 ? "" : "s", sets.size(), sets.size() == 1 ? "" : "s", kVersion),
       .main = legend(sets) + scatter(sets, {&PredictedRecord::seconds, 1, "s", "Time of a step"}) +
               scatter(sets, {&PredictedRecord::memory, 0x1p30, "GiB", "Memory at the peak"}) +
               table(sets)});
}

}  // namespace trainyard::report
