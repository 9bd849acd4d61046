// The page of a search: a picture of what was simulated and bounded, the table, why others lose.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "cli/report/assets.h"
#include "cli/report/search.h"
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
.scatter { width: 100%; max-width: 900px; height: auto; display: block; }
.gridline { stroke: var(--line); }
.tick { fill: var(--quiet); font-size: 11px; }
.axis { fill: var(--ink); font-size: 12px; }
.middle { text-anchor: middle; }
.end { text-anchor: end; }
.bound { fill: none; stroke: var(--quiet); stroke-opacity: .55; }
.result { fill: hsl(210 62% 48%); fill-opacity: .75; }
.best { fill: hsl(145 62% 38%); }
.front { fill: none; stroke: hsl(145 62% 38%); stroke-width: 1.4; }
.ranked { border-collapse: collapse; font-variant-numeric: tabular-nums; }
.ranked td, .ranked th { white-space: nowrap; padding: 4px 10px; text-align: right; }
.ranked td, .ranked th { border-top: 1px solid var(--line); }
.ranked td:last-child, .ranked th:last-child { text-align: left; }
.scroll { overflow-x: auto; }
)css";

constexpr double kWidth = 760, kHeight = 430;
constexpr double kLeft = 66, kRight = 14, kTop = 12, kBottom = 48;

// A quantity of a configuration, in the unit that people read.
struct Quantity {
  Objective objective;
  std::size_t at;  // into the objectives; past them: memory

  double unit() const {
    switch (objective) {
      case Objective::training_time: return 86400;
      case Objective::energy: return 3.6e6;
      case Objective::memory: return 0x1p30;
      default: return 1;
    }
  }
  const char* words() const {
    switch (objective) {
      case Objective::step_time: return "time of a step, s";
      case Objective::training_time: return "time of the training, days";
      case Objective::dollars: return "cost of the training, $";
      case Objective::energy: return "energy of a step, kWh";
      case Objective::memory: return "memory of the fullest GPU, GiB";
    }
    return "";
  }
  double of(const Trial& trial) const {
    const std::vector<double>& values = trial.result ? trial.objectives : trial.least;
    if (at < values.size()) return values[at] / unit();
    const Bytes bytes = trial.result ? trial.result->memory : trial.least_memory;
    return static_cast<double>(bytes.count()) / unit();
  }
};

// From a round number to a round number, in round steps.
struct Scale {
  double low = 0, high = 1, step = 1;
  double from = 0, to = 1;  // on the drawing

  double at(double value) const { return from + (value - low) / (high - low) * (to - from); }
};

Scale scale_of(double least, double most, double from, double to) {
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
  return {std::floor(least / step) * step, std::ceil(most / step) * step, step, from, to};
}

std::string grid(const Scale& x, const Scale& y) {
  std::string svg;
  for (int line = 0; x.low + line * x.step <= x.high + x.step / 2; ++line) {
    const double value = x.low + line * x.step;
    svg += fmt::format(R"(<line class="gridline" x1="{0:.1f}" x2="{0:.1f}" y1="{1}" y2="{2}"/>)"
                       R"(<text class="tick middle" x="{0:.1f}" y="{3}">{4:.4g}</text>)",
                       x.at(value), kTop, kHeight - kBottom, kHeight - kBottom + 17, value);
  }
  for (int line = 0; y.low + line * y.step <= y.high + y.step / 2; ++line) {
    const double value = y.low + line * y.step;
    svg += fmt::format(R"(<line class="gridline" x1="{0}" x2="{1}" y1="{2:.1f}" y2="{2:.1f}"/>)"
                       R"(<text class="tick end" x="{3}" y="{4:.1f}">{5:.4g}</text>)",
                       kLeft, kWidth - kRight, y.at(value), kLeft - 8, y.at(value) + 4, value);
  }
  return svg;
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
      if (x_.of(trial) <= kFurthest * best)
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
    const Scale x = scale_of(least_x, most_x, kLeft, kWidth - kRight);
    const Scale y = scale_of(least_y, most_y, kHeight - kBottom, kTop);
    const std::string svg = grid(x, y) + points(x, y) + front(x, y) + titles();
    return fmt::format(
        R"(<section><h2>All that may fit</h2><div class="panel"><svg class="scatter" )"
        R"(viewBox="0 0 {} {}" role="img" aria-label="{} against {}">{}</svg>)"
        R"(<p class="quiet">Green: the best. Blue: simulated. Rings: what no simulation could be )"
        R"(below, which is no better than the best. {}A point names its configuration.</p>)"
        "</div></section>",
        kWidth, kHeight, x_.words(), y_.words(), svg,
        beyond_ > 0 ? fmt::format("{} more are beyond {:g} times the best. ", beyond_, kFurthest)
                    : "");
  }

 private:
  static constexpr double kFurthest = 3;
  static constexpr std::size_t kMostRings = 1500;

  bool is_best(const Trial& trial) const {
    return std::any_of(result_.best.begin(), result_.best.end(), [&](const RankedTrial& ranked) {
      return ranked.trial.number == trial.number;
    });
  }

  std::string points(const Scale& x, const Scale& y) const {
    const std::size_t rings = static_cast<std::size_t>(std::count_if(
        shown_.begin(), shown_.end(), [](const Trial* trial) { return !trial->result; }));
    const std::size_t every = rings / kMostRings + 1;
    std::string back, front;
    std::size_t ring = 0;
    for (const Trial* trial : shown_) {
      if (!trial->result && ring++ % every != 0) continue;
      const char* kind = !trial->result ? "bound" : is_best(*trial) ? "best" : "result";
      (trial->result ? front : back) += fmt::format(
          R"(<circle class="{}" cx="{:.1f}" cy="{:.1f}" r="{}"><title>number {}</title></circle>)",
          kind, x.at(x_.of(*trial)), y.at(y_.of(*trial)), trial->result ? 4 : 3, trial->number);
    }
    return back + front;
  }

  std::string front(const Scale& x, const Scale& y) const {
    if (result_.objectives.size() < 2) return "";
    std::string path;
    for (const RankedTrial& ranked : result_.best)
      path += fmt::format("{}{:.1f},{:.1f}", path.empty() ? "" : " ", x.at(x_.of(ranked.trial)),
                          y.at(y_.of(ranked.trial)));
    return fmt::format(R"(<polyline class="front" points="{}"/>)", path);
  }

  std::string titles() const {
    return fmt::format(R"(<text class="axis middle" x="{:.1f}" y="{}">{}</text>)"
                       R"svg(<text class="axis middle" transform="translate(14 {:.1f}) )svg"
                       R"svg(rotate(-90)">{}</text>)svg",
                       (kLeft + kWidth - kRight) / 2, kHeight - 8, x_.words(),
                       (kTop + kHeight - kBottom) / 2, y_.words());
  }

  const SearchResult& result_;
  Quantity x_{Objective::step_time, 0}, y_{Objective::memory, 1};
  std::vector<const Trial*> shown_;
  std::size_t beyond_ = 0;
};

std::string ranked_table(const SearchResult& result) {
  std::string html =
      R"(<section><h2>The best</h2><div class="panel scroll"><table class="ranked"><thead><tr>)"
      "<th>#</th><th>number</th><th>step time</th><th>MFU</th><th>memory</th>";
  for (const std::string& axis : axis_headings(result.axes))
    html += fmt::format("<th>{}</th>", for_html(axis));
  html += "<th>waits for</th></tr></thead><tbody>\n";
  for (std::size_t at = 0; at < result.best.size(); ++at) {
    const RankedTrial& ranked = result.best[at];
    const search::TrialResult& own = *ranked.trial.result;
    html += fmt::format(
        "<tr><td>{}</td><td>{}</td><td>{:.4g} s</td><td>{:.1f} %</td><td>{:.1f} GiB</td>", at + 1,
        ranked.trial.number, Seconds(own.step).count(), 100 * own.mfu,
        static_cast<double>(own.memory.count()) / 0x1p30);
    for (const std::string& value : ranked.values)
      html += fmt::format("<td>{}</td>", value.empty() ? "-" : for_html(value));
    html += fmt::format("<td>{}</td></tr>\n", for_html(limits(own)));
  }
  return html + "</tbody></table></div></section>";
}

std::string count_item(std::uint64_t count, const std::string& words,
                       const std::vector<Count>& reasons) {
  if (count == 0) return "";
  std::string html = fmt::format("<li>{} {}", count, words);
  if (!reasons.empty()) html += "<ul>";
  for (const Count& reason : reasons)
    html += fmt::format("<li>{} {}</li>", reason.count, for_html(reason.words));
  return html + (reasons.empty() ? "</li>" : "</ul></li>");
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

std::string search_page(const SearchResult& result, const std::vector<Trial>& trials) {
  const std::string picture = result.best.empty() ? "" : Picture(result, trials).html();
  return fmt::format(R"(<!doctype html>
<html lang="en"><head><meta charset="utf-8">
<meta http-equiv="Content-Security-Policy"
  content="default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark"><meta name="generator" content="trainyard">
<title>{0}: search</title><style>{1}{2}</style></head><body>
<header class="top"><div class="wide"><p class="brand">trainyard</p>
<h1>{0}</h1>
<p class="quiet">The best of {3} configurations, trainyard {4}.</p>
</div></header>
<main class="wide">)",
                     for_html(result.name), assets::style, kStyle, result.configurations,
                     kVersion) +
         picture +
         (result.best.empty() ? "<p>None of them can be run.</p>" : ranked_table(result)) +
         why_others_lose(result) + "</main></body></html>\n";
}

}  // namespace trainyard::report
