// Four small variants of one step, consistent to the picosecond, without the simulator: GPipe,
// 1F1B, tensor parallel with recomputation, and one that does not fit.
#pragma once

#include <string>
#include <vector>

#include "cli/report/html.h"
#include "tests/support/rooms.h"

namespace trainyard::fixture {

struct Shape {
  std::string label;
  std::string schedule = "gpipe";
  int stages = 4, microbatches = 8, tensor = 1, data = 2;
  bool recompute = false;
  std::int64_t activation_bytes = 0;  // of one micro-batch on one stage
};

// Lanes of the first rank of each stage, and a report whose breakdowns are derived from those
// lanes.
ReportVariant make(const Shape& shape);

// GPipe (the baseline), 1F1B, tensor parallel, out of memory.
std::vector<ReportVariant> four_variants();

// Their reports.
std::vector<StepReport> reports();

// One variant with texts that try to leave their place: tags, quotes, escape sequences, U+202E,
// U+2028.
std::vector<ReportVariant> hostile_variants();

// Texts of hostile_variants().
const std::vector<std::string>& hostile_texts();

}  // namespace trainyard::fixture
