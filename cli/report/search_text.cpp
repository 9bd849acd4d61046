#include <fmt/format.h>

#include <algorithm>

#include "cli/report/search.h"
#include "sim/base/text.h"
#include "sim/simulate/outlook/training_text.h"

namespace trainyard::report {
namespace {

using scenario::Objective;
using search::Count;
using search::RankedTrial;
using search::SearchResult;

std::string value_text(Objective objective, double value) {
  const ReadUnit unit = read_unit(objective);
  if (objective == Objective::dollars) return simulate::dollars_text(value);
  if (objective == Objective::memory) return fmt::format("{:.1f} {}", value / unit.size, unit.name);
  return fmt::format("{:.4g} {}", value / unit.size, unit.name);
}

// Columns as wide as what stands in them.
class Table {
 public:
  void add(std::vector<std::string> row) { rows_.push_back(std::move(row)); }
  std::string text() const {
    std::vector<std::size_t> widths(rows_.front().size());
    for (const std::vector<std::string>& row : rows_)
      for (std::size_t i = 0; i < row.size(); ++i)
        widths[i] = std::max(widths[i], row[i].size());
    std::string text;
    for (const std::vector<std::string>& row : rows_) {
      std::string line;
      for (std::size_t i = 0; i < row.size(); ++i) {
        const bool last = i + 1 == row.size();  // words, which stand at the left
        line += last ? fmt::format("  {}", row[i])
                     : fmt::format("{:>{}}", row[i], widths[i] + (i > 0 ? 2 : 1));
      }
      text += line + "\n";
    }
    return text;
  }

 private:
  std::vector<std::vector<std::string>> rows_;
};

std::string ranked_table(const SearchResult& result) {
  Table table;
  for (std::vector<std::string>& row : ranked_rows(result)) {
    for (std::string& cell : row)
      cell = escape_control(cell);
    table.add(std::move(row));
  }
  return table.text();
}

std::string count_line(std::uint64_t count, const std::string& words) {
  return count == 0 ? "" : fmt::format("{:>11}  {}\n", grouped(count), words);
}

std::string reasons(const std::vector<Count>& counts, const char* of) {
  constexpr std::size_t kMost = 4;
  std::string text;
  for (std::size_t at = 0; at < std::min(counts.size(), kMost); ++at)
    text += fmt::format("{:>21}  {}{}\n", grouped(counts[at].count), of,
                        escape_control(counts[at].words));
  if (counts.size() > kMost) {
    std::uint64_t rest = 0;
    for (std::size_t at = kMost; at < counts.size(); ++at)
      rest += counts[at].count;
    text += fmt::format("{:>21}  for other reasons\n", grouped(rest));
  }
  return text;
}

std::string why_others_lose(const SearchResult& result) {
  const std::uint64_t slower = result.beaten + result.simulated - result.best.size();
  std::string text = "why the others lose\n";
  text += count_line(result.does_not_fit, "do not fit in memory, or only tightly");
  text += count_line(
      slower, fmt::format("are no better ({} simulated, {} by what no step can be "
                          "shorter than), most of all for",
                          grouped(result.simulated - result.best.size()), grouped(result.beaten)));
  text += reasons(result.why_slower, "");
  text += count_line(result.unwanted, "are left out by the constraints");
  text += reasons(result.why_unwanted, "");
  text += count_line(result.never_ends, "never end");
  text += count_line(result.same, "are the same as another");
  text += count_line(result.invalid, "are no valid scenario");
  text += reasons(result.why_invalid, "");
  return text;
}

}  // namespace

ReadUnit read_unit(Objective objective) {
  switch (objective) {
    case Objective::step_time: return {1, "s", "time of a step"};
    case Objective::training_time: return {86400, "days", "time of the training"};
    case Objective::dollars: return {1, "$", "cost of the training"};
    case Objective::energy: return {3.6e6, "kWh", "energy of a step"};
    case Objective::memory: return {0x1p30, "GiB", "memory of the fullest GPU"};
  }
  return {1, "", ""};
}

std::string grouped(std::uint64_t count) {
  const std::string digits = fmt::format("{}", count);
  std::string text;
  for (std::size_t i = 0; i < digits.size(); ++i) {
    if (i > 0 && (digits.size() - i) % 3 == 0) text += ',';
    text += digits[i];
  }
  return text;
}

std::vector<std::string> axis_headings(const std::vector<std::string>& keys) {
  const auto last = [](const std::string& key, int words) {
    std::size_t at = std::string::npos;
    for (int word = 0; word < words && at != 0; ++word) {
      at = key.find_last_of("./", at == std::string::npos ? at : at - 1);
      if (at == std::string::npos) return key;
    }
    return key.substr(at + 1);
  };
  std::vector<std::string> names;
  for (const std::string& key : keys) {
    const std::string own = last(key, 1);
    const auto alike = std::count_if(
        keys.begin(), keys.end(), [&](const std::string& other) { return last(other, 1) == own; });
    names.push_back(alike > 1 || own == "kind" ? last(key, 2) : own);
  }
  return names;
}

std::vector<std::vector<std::string>> ranked_rows(const SearchResult& result) {
  std::vector<std::vector<std::string>> rows(1);
  std::vector<std::string>& head = rows.front();
  head.emplace_back("#");
  for (const Objective objective : result.objectives) {
    std::string words(name(objective));
    std::replace(words.begin(), words.end(), '_', ' ');
    head.push_back(std::move(words));
  }
  const auto shows = [&](Objective objective) {
    return std::count(result.objectives.begin(), result.objectives.end(), objective) > 0;
  };
  if (!shows(Objective::step_time)) head.emplace_back("step time");
  head.emplace_back("MFU");
  if (!shows(Objective::memory)) head.emplace_back("memory");
  for (std::string& heading : axis_headings(result.axes))
    head.push_back(std::move(heading));
  head.emplace_back("waits for");
  for (std::size_t at = 0; at < result.best.size(); ++at) {
    const RankedTrial& ranked = result.best[at];
    const search::TrialResult& own = *ranked.trial.result;
    std::vector<std::string>& row = rows.emplace_back();
    row.push_back(fmt::format("{}", at + 1));
    for (std::size_t i = 0; i < result.objectives.size(); ++i)
      row.push_back(value_text(result.objectives[i], ranked.trial.objectives[i]));
    if (!shows(Objective::step_time))
      row.push_back(value_text(Objective::step_time, Seconds(own.step).count()));
    row.push_back(fmt::format("{:.1f} %", 100 * own.mfu));
    if (!shows(Objective::memory))
      row.push_back(value_text(Objective::memory, static_cast<double>(own.memory.count())));
    for (const std::string& value : ranked.values)
      row.push_back(value.empty() ? "-" : value);
    row.push_back(limits(own));
  }
  return rows;
}

std::vector<std::string> run_commands(const SearchResult& result, const RunCommand& run) {
  std::vector<std::string> commands;
  for (std::size_t at = 0; at < std::min(result.best.size(), kReported); ++at)
    commands.push_back(run(result.best[at].sets));
  return commands;
}

std::string_view advice(const SearchResult::Nearest& nearest) {
  switch (nearest.need) {
    case SearchResult::Need::simulated_time:
      return "It is the shortest that was simulated and fits; run says what its step waits for.";
    case SearchResult::Need::time:
      return "No step is shorter, of what may fit; run says whether it does and what it waits for.";
    case SearchResult::Need::memory: break;
  }
  return "Its ways to fit are what run says; axes of recomputation, sharding and degrees take less "
         "memory.";
}

std::string search_text(const SearchResult& result, const RunCommand& run) {
  std::string objectives;
  for (const Objective objective : result.objectives) {
    std::string words(name(objective));
    std::replace(words.begin(), words.end(), '_', ' ');
    objectives += (objectives.empty() ? "" : " and ") + words;
  }
  std::string text =
      fmt::format("{}: {} configurations, the least {}\n\n", escape_control(result.name),
                  grouped(result.configurations), objectives);
  if (result.best.empty())
    text += "none of them can be run\n\n";
  else
    text += ranked_table(result) + "\n";
  text += why_others_lose(result);
  if (result.exhaustive)
    text += fmt::format(
        "\nall that may fit were simulated: bounds would have left out {}, and lost "
        "{} of the best\n",
        grouped(result.would_leave_out), grouped(result.would_lose));
  if (result.nearest)
    text += fmt::format("\nnearest: {}\n  {}\n  {}\n", escape_control(result.nearest->why),
                        run(result.nearest->sets), advice(*result.nearest));
  if (!result.best.empty())
    text += fmt::format("\nto run the best\n  {}\n", run(result.best.front().sets));
  return text;
}

}  // namespace trainyard::report
