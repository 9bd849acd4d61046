// The page of a search: a picture of what was simulated and bounded, the table, why others lose.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "cli/report/search.h"
#include "cli/report/still/still_page.h"
#include "sim/base/html.h"
#include "sim/base/version.h"

namespace trainyard::report {
namespace {

using scenario::Objective;
using search::Count;
using search::RankedTrial;
using search::SearchResult;
using search::Trial;
using search::Verdict;

constexpr const char* kStyle = R"css(
.bound { fill: none; stroke: var(--quiet); stroke-opacity: .55; }
.result { fill: hsl(210 62% 48%); fill-opacity: .75; }
.best { fill: hsl(145 62% 38%); }
.front { fill: none; stroke: hsl(145 62% 38%); stroke-width: 1.4; }
.ranked { border-collapse: collapse; font-variant-numeric: tabular-nums; }
.ranked td, .ranked th { white-space: nowrap; padding: 4px 10px; text-align: right; }
.ranked td, .ranked th { border-top: 1px solid var(--line); }
.ranked td:last-child, .ranked th:last-child { text-align: left; }
.scroll { overflow-x: auto; }
pre { white-space: pre-wrap; overflow-wrap: anywhere; }
)css";

// A quantity of a configuration, in the unit that people read.
struct Quantity {
  Objective objective;
  std::size_t at;  // into the objectives; past them: memory

  std::string words() const {
    const ReadUnit unit = read_unit(objective);
    return fmt::format("{}, {}", unit.quantity, unit.name);
  }
  double of(const Trial& trial) const {
    const std::vector<double>& values = trial.result ? trial.objectives : trial.least;
    if (at < values.size()) return values[at] / read_unit(objective).size;
    const Bytes bytes = trial.result ? trial.result->memory : trial.least_memory;
    return static_cast<double>(bytes.count()) / read_unit(objective).size;
  }
};

// From a round number to a round number, in round steps.
struct Scale {
  double low = 0, high = 1, step = 1;

  double line(int number) const { return low + number * step; }
  bool has(int number) const { return line(number) <= high + step / 2; }
};

Scale scale_of(double least, double most) {
  constexpr double kLines = 6;
  const double wanted = std::max(most - least, std::max(most, 1e-9) * 1e-3) / kLines;
  double step = 1;
  for (; step > wanted; step /= 10) {
  }
  for (; step * 10 <= wanted; step *= 10) {
  }
  for (const double digit : {2.0, 5.0, 10.0})
    if (step < wanted && step * digit >= wanted) {
      step *= digit;
      break;
    }
  return {std::floor(least / step) * step, std::ceil(most / step) * step, step};
}

class Picture {
 public:
  Picture(const SearchResult& result, const std::vector<Trial>& trials) : result_(result) {
    x_.objective = result.objectives.front();
    y_ = {result.objectives.size() > 1 ? result.objectives[1] : Objective::memory, 1};
    const double best = x_.of(result.best.front().trial);
    for (const Trial& trial : trials) {
      const bool shown = trial.verdict == Verdict::slower || trial.verdict == Verdict::simulated;
      if (!shown) continue;
      if (x_.of(trial) <= kFurthest * best || is_best(trial))
        shown_.push_back(&trial);
      else
        ++beyond_;
    }
  }

  std::string html() const {
    double least_x = 1e300, most_x = 0, least_y = 1e300, most_y = 0;
    for (const Trial* trial : shown_) {
      least_x = std::min(least_x, x_.of(*trial));
      most_x = std::max(most_x, x_.of(*trial));
      least_y = std::min(least_y, y_.of(*trial));
      most_y = std::max(most_y, y_.of(*trial));
    }
    const Scale across = scale_of(least_x, most_x), up = scale_of(least_y, most_y);
    const Axis x = drawing_.x_axis(across.low, across.high), y = drawing_.y_axis(up.low, up.high);
    std::string svg;
    for (int line = 0; across.has(line); ++line)
      svg += drawing_.x_line(x, across.line(line), fmt::format("{:.4g}", across.line(line)));
    for (int line = 0; up.has(line); ++line)
      svg += drawing_.y_line(y, up.line(line), fmt::format("{:.4g}", up.line(line)));
    svg += points(x, y) + front(x, y) + drawing_.axis_titles(x_.words(), y_.words());
    const std::string beyond =
        beyond_ > 0 ? fmt::format("{} more are beyond {:g} times the best. ", beyond_, kFurthest)
                    : "";
    return drawing_.section(
        "All that may fit", fmt::format("{} against {}", x_.words(), y_.words()), svg,
        "Green: the best. Blue: simulated. Rings: what no simulation could be below, which is no "
        "better than the best. " +
            beyond + "A point names its line of configurations.jsonl.");
  }

 private:
  static constexpr double kFurthest = 3;
  static constexpr std::size_t kMostRings = 1500;

  bool is_best(const Trial& trial) const {
    return std::any_of(result_.best.begin(), result_.best.end(), [&](const RankedTrial& ranked) {
      return ranked.trial.number == trial.number;
    });
  }

  std::string points(const Axis& x, const Axis& y) const {
    const std::size_t rings = static_cast<std::size_t>(std::count_if(
        shown_.begin(), shown_.end(), [](const Trial* trial) { return !trial->result; }));
    const std::size_t every = rings / kMostRings + 1;
    std::string bounds, results, best;
    std::size_t ring = 0;
    const auto point = [&](const Trial& trial, const char* kind, int radius) {
      return fmt::format(
          R"(<circle class="{}" cx="{:.1f}" cy="{:.1f}" r="{}"><title>number {}</title></circle>)",
          kind, x.at(x_.of(trial)), y.at(y_.of(trial)), radius, trial.number);
    };
    for (const Trial* trial : shown_) {
      if (!trial->result && ring++ % every != 0) continue;
      if (!trial->result)
        bounds += point(*trial, "bound", 3);
      else if (is_best(*trial))
        best += point(*trial, "best", 5);
      else
        results += point(*trial, "result", 4);
    }
    return bounds + results + best;
  }

  std::string front(const Axis& x, const Axis& y) const {
    if (result_.objectives.size() < 2) return "";
    std::string path;
    for (const RankedTrial& ranked : result_.best)
      path += fmt::format("{}{:.1f},{:.1f}", path.empty() ? "" : " ", x.at(x_.of(ranked.trial)),
                          y.at(y_.of(ranked.trial)));
    return fmt::format(R"(<polyline class="front" points="{}"/>)", path);
  }

  const Scatter drawing_{430};
  const SearchResult& result_;
  Quantity x_{Objective::step_time, 0}, y_{Objective::memory, 1};
  std::vector<const Trial*> shown_;
  std::size_t beyond_ = 0;
};

std::string ranked_table(const SearchResult& result) {
  std::string html =
      R"(<section><h2>The best</h2><div class="panel scroll"><table class="ranked"><thead>)";
  const char* cell = "th";
  for (const std::vector<std::string>& row : ranked_rows(result)) {
    html += "<tr>";
    for (const std::string& text : row)
      html += fmt::format("<{0}>{1}</{0}>", cell, for_html(text));
    html += std::string_view(cell) == "th" ? "</tr></thead><tbody>\n" : "</tr>\n";
    cell = "td";
  }
  return html + "</tbody></table></div></section>";
}

std::string count_item(std::uint64_t count, const std::string& words,
                       const std::vector<Count>& reasons) {
  if (count == 0) return "";
  std::string html = fmt::format("<li>{} {}", grouped(count), words);
  if (!reasons.empty()) html += "<ul>";
  for (const Count& reason : reasons)
    html += fmt::format("<li>{} {}</li>", grouped(reason.count), for_html(reason.words));
  return html + (reasons.empty() ? "</li>" : "</ul></li>");
}

std::string none_runs(const SearchResult& result, const RunCommand& run) {
  std::string html = "<p>None of them can be run.</p>";
  if (result.nearest)
    html += fmt::format("<section><h2>Nearest</h2><p>{}</p><pre>{}</pre><p>{}</p></section>",
                        for_html(result.nearest->why), for_html(run(result.nearest->sets)),
                        for_html(advice(*result.nearest)));
  return html;
}

std::string how_to_run(const SearchResult& result, const RunCommand& run) {
  std::string html = "<section><h2>To run them</h2><ol>";
  for (const std::string& command : run_commands(result, run))
    html += fmt::format("<li><pre>{}</pre></li>", for_html(command));
  return html + "</ol></section>";
}

std::string why_others_lose(const SearchResult& result) {
  const std::uint64_t slower = result.beaten + result.simulated - result.best.size();
  return R"(<section><h2>Why the others lose</h2><div class="panel"><ul>)" +
         count_item(result.does_not_fit, "do not fit in memory", {}) +
         count_item(slower, "are no better, most of all for", result.why_slower) +
         count_item(result.unwanted, "are left out by the constraints", result.why_unwanted) +
         count_item(result.never_ends, "never end", {}) +
         count_item(result.same, "are the same as another", {}) +
         count_item(result.invalid, "are no valid scenario", result.why_invalid) +
         "</ul></div></section>";
}

}  // namespace

std::string search_page(const SearchResult& result, const std::vector<Trial>& trials,
                        const RunCommand& run) {
  const std::string found =
      result.best.empty()
          ? none_runs(result, run)
          : Picture(result, trials).html() + ranked_table(result) + how_to_run(result, run);
  return still_page({.title = result.name + ": search",
                     .style = kStyle,
                     .heading = result.name,
                     .note = fmt::format("The best of {} configurations, trainyard {}.",
                                         grouped(result.configurations), kVersion),
                     .main = found + why_others_lose(result)});
}

}  // namespace trainyard::report
