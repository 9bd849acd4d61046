#include "calibrate/fit/page/page_charts.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "sim/base/html.h"

namespace trainyard::fit {
namespace {

// Of the drawing, in its own units.
constexpr double kWidth = 560, kHeight = 400;
constexpr double kLeft = 66, kRight = 26, kTop = 12, kBottom = 48;
constexpr double kMostResidual = 60;  // percent
constexpr double kTenth = 1.1;

struct Axis {
  double low = 0, high = 1;  // of the logarithm to base 10, or of the value
  double from = 0, to = 1;   // on the drawing
  double at(double value) const { return from + (value - low) / (high - low) * (to - from); }
};

Axis decades(std::vector<double> values, double from, double to) {
  const auto [least, most] = std::minmax_element(values.begin(), values.end());
  Axis axis = {std::log10(*least) - 0.1, std::log10(*most) + 0.1, from, to};
  if (axis.high - axis.low < 1) {
    const double middle = (axis.high + axis.low) / 2;
    axis.low = middle - 0.5, axis.high = middle + 0.5;
  }
  return axis;
}

std::string power_label(int power, std::string_view size_name) {
  if (size_name == "us") return time_text(std::pow(10.0, power));
  constexpr std::array<const char*, 7> kPrefix = {"", "k", "M", "G", "T", "P", "E"};
  const int group = std::clamp(power / 3, 0, 6);
  const auto shown = static_cast<int>(std::pow(10.0, power - 3 * group) + 0.5);
  if (size_name == "bytes")
    return fmt::format("{} {}B", shown, kPrefix[static_cast<std::size_t>(group)]);
  return fmt::format("{}{}", shown, kPrefix[static_cast<std::size_t>(group)]);
}

// The powers of ten inside an axis, thinned to at most eight.
std::vector<int> powers(const Axis& axis) {
  const int first = static_cast<int>(std::ceil(axis.low)),
            last = static_cast<int>(std::floor(axis.high));
  const int step = std::max(1, (last - first + 7) / 8);
  std::vector<int> all;
  for (int power = first; power <= last; power += step)
    all.push_back(power);
  return all;
}

std::string vertical_grid(const Axis& x, std::string_view size_name) {
  std::string svg;
  for (const int power : powers(x)) {
    svg += fmt::format(R"(<line class="grid" x1="{0:.1f}" x2="{0:.1f}" y1="{1}" y2="{2}"/>)",
                       x.at(power), kTop, kHeight - kBottom);
    svg += fmt::format(R"(<text class="tick middle" x="{:.1f}" y="{}">{}</text>)", x.at(power),
                       kHeight - kBottom + 17, power_label(power, size_name));
  }
  return svg;
}

std::string horizontal_line(double y, const std::string& label, std::string_view css) {
  return fmt::format(R"(<line class="{0}" x1="{1}" x2="{2}" y1="{3:.1f}" y2="{3:.1f}"/>)"
                     R"(<text class="tick end" x="{4}" y="{5:.1f}">{6}</text>)",
                     css, kLeft, kWidth - kRight, y, kLeft - 8, y + 4, label);
}

std::string axis_titles(std::string_view x, std::string_view y) {
  return fmt::format(R"(<text class="axis middle" x="{:.1f}" y="{}">{}</text>)",
                     (kLeft + kWidth - kRight) / 2, kHeight - 8, x) +
         fmt::format(R"svg(<text class="axis middle" transform="translate(14 {:.1f}) )svg"
                     R"svg(rotate(-90)">{}</text>)svg",
                     (kTop + kHeight - kBottom) / 2, y);
}

// Held-out points are drawn over fitted ones and rejected ones over both.
std::vector<const FitRecord*> drawn(const std::vector<const FitRecord*>& records) {
  std::vector<const FitRecord*> all;
  for (const SampleFate fate :
       {SampleFate::fitted, SampleFate::held_out_size, SampleFate::held_out, SampleFate::rejected})
    for (const FitRecord* r : records)
      if (r->fate == fate && r->fitted_us > 0) all.push_back(r);
  return all;
}

std::string point(double x, double y, const FitRecord& r) {
  const std::string title = fmt::format("{} {}: measured {}, fitted {} ({:+.1f} %)", r.group,
                                        r.shape, time_text(r.measured_us), time_text(r.fitted_us),
                                        100 * (r.fitted_us / r.measured_us - 1));
  if (r.fate == SampleFate::rejected)
    return fmt::format(
        R"(<path class="rejected" d="M{:.1f} {:.1f}l7 7m0 -7l-7 7"><title>{}</title></path>)",
        x - 3.5, y - 3.5, for_html(title));
  return fmt::format(
      R"(<circle class="{}" cx="{:.1f}" cy="{:.1f}" r="{}"><title>{}</title></circle>)",
      fate_class(r.fate), x, y, r.fate == SampleFate::fitted ? 2.6 : 3.2, for_html(title));
}

std::string framed(const std::string& inside, std::string_view label) {
  return fmt::format(
      R"(<svg class="chart" viewBox="0 0 {} {}" role="img" aria-label="{}">{}</svg>)", kWidth,
      kHeight, label, inside);
}

}  // namespace

std::string_view fate_class(SampleFate fate) {
  switch (fate) {
    case SampleFate::fitted: return "fitted";
    case SampleFate::held_out:
    case SampleFate::held_out_size: return "held-out";
    case SampleFate::rejected: return "rejected";
    case SampleFate::unused: return "unused";
  }
  return "";
}

std::string time_text(double microseconds) {
  constexpr std::array<const char*, 5> kUnits = {"ps", "ns", "us", "ms", "s"};
  double value = microseconds * 1e6;
  std::size_t unit = 0;
  while (value >= 999.5 && unit + 1 < kUnits.size()) {
    value /= 1000;
    ++unit;
  }
  return fmt::format("{:.3g} {}", value, kUnits[unit]);
}

std::string scatter_chart(const std::vector<const FitRecord*>& records) {
  const std::vector<const FitRecord*> shown = drawn(records);
  if (shown.empty()) return "";
  std::vector<double> times;
  for (const FitRecord* r : shown) {
    times.push_back(r->measured_us);
    times.push_back(r->fitted_us);
  }
  const Axis x = decades(times, kLeft, kWidth - kRight);
  const Axis y = decades(times, kHeight - kBottom, kTop);
  const double tenth = std::log10(kTenth);
  std::string svg = fmt::format(
      R"(<polygon class="band" points="{:.1f},{:.1f} {:.1f},{:.1f} {:.1f},{:.1f} {:.1f},{:.1f}"/>)",
      x.at(x.low), y.at(y.low + tenth), x.at(x.high - tenth), y.at(y.high), x.at(x.high),
      y.at(y.high - tenth), x.at(x.low + tenth), y.at(y.low));
  svg += vertical_grid(x, "us");
  for (const int power : powers(y))
    svg += horizontal_line(y.at(power), power_label(power, "us"), "grid");
  svg += fmt::format(R"(<line class="equal" x1="{:.1f}" y1="{:.1f}" x2="{:.1f}" y2="{:.1f}"/>)",
                     x.at(x.low), y.at(y.low), x.at(x.high), y.at(y.high));
  for (const FitRecord* r : shown)
    svg += point(x.at(std::log10(r->measured_us)), y.at(std::log10(r->fitted_us)), *r);
  return framed(svg + axis_titles("measured", "fitted"), "measured against fitted time");
}

std::string residual_chart(const std::vector<const FitRecord*>& records) {
  std::vector<const FitRecord*> shown = drawn(records);
  shown.erase(
      std::remove_if(shown.begin(), shown.end(), [](const FitRecord* r) { return !(r->size > 0); }),
      shown.end());
  if (shown.empty()) return "";
  std::vector<double> sizes;
  for (const FitRecord* r : shown)
    sizes.push_back(r->size);
  if (*std::max_element(sizes.begin(), sizes.end()) ==
      *std::min_element(sizes.begin(), sizes.end()))
    return "";
  const std::string& size_name = shown.front()->size_name;
  const Axis x = decades(sizes, kLeft, kWidth - kRight);
  const Axis y = {-kMostResidual, kMostResidual, kHeight - kBottom, kTop};
  std::string svg =
      fmt::format(R"(<rect class="band" x="{}" width="{}" y="{:.1f}" height="{:.1f}"/>)", kLeft,
                  kWidth - kRight - kLeft, y.at(10), y.at(-10) - y.at(10));
  svg += vertical_grid(x, size_name);
  for (int percent = -60; percent <= 60; percent += 20)
    svg += horizontal_line(y.at(percent), percent == 0 ? "0 %" : fmt::format("{:+} %", percent),
                           percent == 0 ? "equal" : "grid");
  for (const FitRecord* r : shown) {
    const double residual = 100 * (r->fitted_us / r->measured_us - 1);
    svg += point(x.at(std::log10(r->size)),
                 y.at(std::clamp(residual, -kMostResidual, kMostResidual)), *r);
  }
  return framed(
      svg + axis_titles(size_name == "flops" ? "FLOPs" : size_name, "fitted / measured - 1"),
      "residual by size");
}

}  // namespace trainyard::fit
