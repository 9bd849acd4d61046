#include "cli/report/still/still_page.h"

#include <fmt/format.h>

#include "cli/report/assets.h"
#include "sim/base/html.h"

namespace trainyard::report {

std::string still_page(const StillPage& page) {
  return fmt::format(R"(<!doctype html>
<html lang="en"><head><meta charset="utf-8">
<meta http-equiv="Content-Security-Policy"
  content="default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark"><meta name="generator" content="trainyard">
<title>{}</title><style>{}{}{}</style></head><body>
<header class="top"><div class="wide"><p class="brand">trainyard</p>
<h1>{}</h1>
<p class="quiet">{}</p>
</div></header>
<main class="wide">)",
                     for_html(page.title), assets::style, Scatter::kStyle, page.style,
                     for_html(page.heading), page.note) +
         page.main + "</main></body></html>\n";
}

std::string Scatter::x_line(const Axis& x, double value, std::string_view label) const {
  return fmt::format(R"(<line class="gridline" x1="{0:.1f}" x2="{0:.1f}" y1="{1}" y2="{2}"/>)"
                     R"(<text class="tick middle" x="{0:.1f}" y="{3}">{4}</text>)",
                     x.at(value), kTop, height_ - kBottom, height_ - kBottom + 17, label);
}

std::string Scatter::y_line(const Axis& y, double value, std::string_view label) const {
  return fmt::format(R"(<line class="gridline" x1="{0}" x2="{1}" y1="{2:.1f}" y2="{2:.1f}"/>)"
                     R"(<text class="tick end" x="{3}" y="{4:.1f}">{5}</text>)",
                     kLeft, kWidth - kRight, y.at(value), kLeft - 8, y.at(value) + 4, label);
}

std::string Scatter::axis_titles(std::string_view x, std::string_view y) const {
  return fmt::format(R"(<text class="axis middle" x="{:.1f}" y="{}">{}</text>)"
                     R"svg(<text class="axis middle" transform="translate(14 {:.1f}) )svg"
                     R"svg(rotate(-90)">{}</text>)svg",
                     (kLeft + kWidth - kRight) / 2, height_ - 8, x, (kTop + height_ - kBottom) / 2,
                     y);
}

std::string Scatter::section(std::string_view heading, std::string_view label, std::string_view svg,
                             std::string_view note) const {
  return fmt::format(R"(<section><h2>{}</h2><div class="panel"><svg class="scatter" )"
                     R"(viewBox="0 0 {} {}" role="img" aria-label="{}">{}</svg>)"
                     R"(<p class="quiet">{}</p></div></section>)",
                     heading, kWidth, height_, label, svg, note);
}

}  // namespace trainyard::report
