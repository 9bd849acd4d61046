// report.html: one file that needs nothing else, from one or several simulated variants.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "sim/simulate/report/step_report.h"
#include "sim/simulate/report/timeline.h"

namespace trainyard::report {

// One resolved value of the scenario, as `explain` prints it.
struct Setting {
  std::string pointer;  // "/parallelism/tp"
  std::string value;    // as JSON
};

struct ReportVariant {
  simulate::StepReport report;
  simulate::Timeline timeline;    // empty: the variant has no lanes on the page
  std::string label;              // empty: the report's label, else its name
  std::vector<Setting> settings;  // may be empty; the page then shows no differences
};

struct HtmlOptions {
  std::size_t slice_cap = 400'000;  // over all variants; whole ranks are left out above it
  std::string command;              // how to make the page again, shown as it is
};

// The page carries comparison.json (script element "result") and the lanes (element "page"); it
// opens without a network and runs no script but its own. Requires: baseline < variants.size().
std::string html_report(std::string_view title, std::span<const ReportVariant> variants,
                        std::size_t baseline, const HtmlOptions& options = {});

}  // namespace trainyard::report
