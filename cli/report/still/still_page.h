// What pages without a script share: their shell, and a picture of points over two axes.
#pragma once

#include <string>
#include <string_view>

namespace trainyard::report {

// A page whole in itself. `title` and `heading` are text, the others HTML.
struct StillPage {
  std::string title, style, heading, note, main;
};
std::string still_page(const StillPage& page);

// Of the drawing, in its own units.
struct Axis {
  double low = 0, high = 1;  // of what it shows
  double from = 0, to = 1;   // on the drawing

  double at(double value) const { return from + (value - low) / (high - low) * (to - from); }
};

class Scatter {
 public:
  explicit Scatter(double height) : height_(height) {}

  static constexpr const char* kStyle = R"css(
.scatter { width: 100%; max-width: 900px; height: auto; display: block; }
.gridline { stroke: var(--line); }
.tick { fill: var(--quiet); font-size: 11px; }
.axis { fill: var(--ink); font-size: 12px; }
.middle { text-anchor: middle; }
.end { text-anchor: end; }
)css";

  Axis x_axis(double low, double high) const { return {low, high, kLeft, kWidth - kRight}; }
  Axis y_axis(double low, double high) const { return {low, high, height_ - kBottom, kTop}; }
  // A line of the grid with its label below or to the left.
  std::string x_line(const Axis& x, double value, std::string_view label) const;
  std::string y_line(const Axis& y, double value, std::string_view label) const;
  std::string axis_titles(std::string_view x, std::string_view y) const;
  // A section of the page: `label` is read out in place of the picture, `note` stands below it.
  std::string section(std::string_view heading, std::string_view label, std::string_view svg,
                      std::string_view note) const;

 private:
  static constexpr double kWidth = 760, kLeft = 66, kRight = 14, kTop = 12, kBottom = 48;

  double height_;
};

}  // namespace trainyard::report
