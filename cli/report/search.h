// What a search has found, for a terminal and as a page.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "sim/search/result.h"

namespace trainyard::report {

// The command that runs a configuration, with its --set options as a shell reads them.
using RunCommand = std::function<std::string(const std::vector<std::string>& sets)>;
// The ranked table, why the others lose, and how to run the best.
std::string search_text(const search::SearchResult& result, const RunCommand& run);

// How many of the best are said how to run, and are variants of a report.
inline constexpr std::size_t kReported = 5;
// The command of each of these, best first.
std::vector<std::string> run_commands(const search::SearchResult& result, const RunCommand& run);

// What to do where nothing is as it should be, in a sentence.
std::string_view advice(const search::SearchResult::Nearest& nearest);

// The unit in which people read an objective, whose values are in seconds, dollars, joules, bytes.
struct ReadUnit {
  double size;
  const char *name, *quantity;
};
ReadUnit read_unit(scenario::Objective objective);

// "20,412"
std::string grouped(std::uint64_t count);

// Short names of keys: the last word, or the last two where one would not tell.
std::vector<std::string> axis_headings(const std::vector<std::string>& keys);

// The ranked table: its heads, then a row for each of the best. Not escaped.
std::vector<std::vector<std::string>> ranked_rows(const search::SearchResult& result);

// A page that stands alone: the picture of all simulated and bounded configurations, and the same.
std::string search_page(const search::SearchResult& result,
                        const std::vector<search::Trial>& trials, const RunCommand& run);

}  // namespace trainyard::report
