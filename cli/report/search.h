// What a search has found, for a terminal and as a page.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "sim/search/result.h"

namespace trainyard::report {

// The ranked table, why the others lose, and the options of the best. `command`: the program, the
// subcommand and the scenario, to which the options are added, each as `quoted` for a shell.
using Quote = std::function<std::string(std::string_view)>;
std::string search_text(const search::SearchResult& result, const std::string& command,
                        const Quote& quoted);

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
                        const std::vector<search::Trial>& trials);

}  // namespace trainyard::report
