// How far predictions are off measured steps, as text, JSON and a page.
#pragma once

#include <span>
#include <string>

#include "sim/validation/predict.h"

namespace trainyard::report {

// A line of scores per set, and one of all; with `rows` every measured step before them.
std::string validation_text(std::span<const validation::PredictedSet> sets, bool rows);

// validation.json (docs/file-formats.md), with every row.
std::string validation_json(std::span<const validation::PredictedSet> sets);

// validation.html: predicted against measured, a colour per set, and the table. It needs nothing
// else and has no script.
std::string validation_html(std::span<const validation::PredictedSet> sets);

}  // namespace trainyard::report
