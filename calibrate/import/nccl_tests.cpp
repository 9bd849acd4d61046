// Logs of nccl-tests: a table between lines of comments, in a stream that launchers and NCCL write
// into as well.
#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <utility>

#include "calibrate/import/nccl_json.h"
#include "calibrate/import/nccl_rows.h"

namespace trainyard::imports {
namespace {

constexpr std::size_t kMostRanks = std::size_t{1} << 20;

bool is_digits(std::string_view text) {
  return !text.empty() &&
         std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
}

bool is_name(std::string_view word) {
  return word != "N/A" && !word.empty() && std::isalpha(static_cast<unsigned char>(word[0])) != 0 &&
         word != "nan" && word != "inf";
}

std::string_view without_blanks(std::string_view line) {
  const std::size_t first = line.find_first_not_of(" \t");
  return first == std::string_view::npos ? "" : line.substr(first);
}

// What launchers write before a line: "[1,0]<stdout>:" (mpirun --tag-output), "[pod/name/main] "
// (kubectl logs --prefix), "0: " (srun --label), and "host: " (pdsh) before what is surely a line
// of the table. Standard error is not the table. Blanks may stand before it: a log may be indented.
std::string_view without_label(std::string_view line) {
  line = without_blanks(line);
  const std::size_t tag = line.starts_with('[') ? line.find("]<stdout>") : std::string_view::npos;
  if (tag != std::string_view::npos) {
    line.remove_prefix(tag + 9);
    if (line.starts_with(':')) line.remove_prefix(1);
    return line;
  }
  if (line.starts_with("[pod/"))
    return line.find("] ") == std::string_view::npos ? line : line.substr(line.find("] ") + 2);
  const std::size_t colon = line.find(": ");
  if (colon == std::string_view::npos) return line;
  const std::vector<std::string> before = words_of(line.substr(0, colon));
  const std::string_view rest = without_blanks(line.substr(colon + 2));
  const bool is_table = !rest.empty() && (rest[0] == '#' || is_digits(rest.substr(0, 1)));
  return before.size() == 1 && before[0][0] != '#' && (is_digits(before[0]) || is_table) ? rest
                                                                                         : line;
}

// A comment of nccl-tests whose first '#' was lost on the way, as when a log was pasted.
bool is_bare_comment(const std::vector<std::string>& words) {
  if (words.size() < 3) return false;
  if (words[0] == "nThread" || words[0] == "Rank") return is_digits(words[1]);
  return words[0] == "size" && words[1] == "count" && words[2] == "type";
}

// "`all_gather_perf`:" is all_gather_perf.
std::string without_quotes(std::string_view word) {
  constexpr std::string_view kMarks = "`'\"()[],;:.";
  const std::size_t first = word.find_first_not_of(kMarks);
  if (first == std::string_view::npos) return "";
  // A path may begin with dots.
  const std::size_t begin = word.find_first_not_of("`'\"([");
  return std::string(word.substr(begin, word.find_last_not_of(kMarks) + 1 - begin));
}

// Somebody has hidden a figure behind letters: "xx.xx".
bool is_masked(std::string_view word) {
  return word.size() > 1 && word.find_first_not_of("Xx.") == std::string_view::npos &&
         word.find_first_of("Xx") != std::string_view::npos;
}

// "2025-07-01 12:00:00", the last two words of a row with option -S.
bool is_time_stamp(std::string_view date, std::string_view time) {
  return date.size() == 10 && date[4] == '-' && date[7] == '-' && time.size() == 8 &&
         time[2] == ':' && time[5] == ':';
}

// The column after which the figures of a direction end.
enum class LastColumn { wrong, error };

class NcclLog {
 public:
  NcclLog(const ImportOptions& options, Notes& notes) : notes_(notes), rows_(options, notes) {}

  void read(std::string_view text) {
    rows_.begin({});
    for (const std::string& whole : lines_of(text)) {
      ++line_;
      const std::string_view line = without_label(whole);
      std::vector<std::string> words = words_of(line);
      if (words.empty()) continue;
      if (is_bare_comment(words)) words.insert(words.begin(), "#");
      if (words[0].starts_with('#'))
        comment(line, words);
      else if (is_digits(words[0]) &&
               (in_table_ || (words.size() > 2 && find_type_bytes(words[2]))))
        row(words);
      else if (in_table_ && words.size() == 1 &&
               words[0].find_first_not_of('.') == std::string::npos)
        notes_.warning(line_, "here somebody has left out rows");
      else
        other(words);
    }
    rows_.finish();
  }

 private:
  // A test begins with up to three lines; the first of them after ranks or rows is a new test.
  void start() {
    if (fresh_) return;
    rows_.begin({});
    rows_.test().line = line_;
    in_table_ = false;
    cpu_time_ = false;
    fresh_ = true;
  }

  void comment(std::string_view line, const std::vector<std::string>& words) {
    const auto has = [&](std::size_t i, std::string_view word) {
      return i < words.size() && words[i] == word;
    };
    if (has(1, "nccl-tests") && has(2, "version")) {
      start();
      for (std::size_t i = 3; i < words.size(); ++i)
        version(words[i], i == 3);
    } else if (has(1, "Collective") && has(2, "test") && words.size() > 4) {
      start();
      program(words[4]);
    } else if (has(1, "nThread")) {
      start();
      if (rows_.test().line == 0) rows_.test().line = line_;
    } else if (has(1, "Rank")) {
      rank(line, words);
    } else if (line.find("algbw") != std::string_view::npos &&
               line.find("size") != std::string_view::npos) {
      header(words);
    } else if (has(1, "Out") && has(2, "of")) {
      in_table_ = false;
      if (words.back() == "FAILED" && last_ == LastColumn::error)
        notes_.error(line_, "the run says that values were wrong, and the table not which");
    }
  }

  void version(const std::string& word, bool own) {
    constexpr std::string_view kLibrary = "nccl-library=";
    if (own) rows_.test().version = is_utf8(word) ? word : "";
    if (!word.starts_with(kLibrary)) return;
    if (const auto code = find_count(word.substr(kLibrary.size())))
      rows_.test().nccl_version = nccl_version_text(*code);
  }

  void program(const std::string& name) {
    const std::optional<std::string> collective = find_collective(name);
    if (!collective || collective->empty())
      return notes_.error(line_, fmt::format("samples have no collective for {}", shown(name)));
    rows_.test().collective = *collective;
    named_.clear();
  }

  // A command line names the test that begins after it.
  void take_name() {
    if (named_.empty()) return;
    if (rows_.test().collective.empty()) {
      rows_.test().collective = named_;
      rows_.test().from_command = true;
    }
    named_.clear();
  }

  // "#  Rank  0 Group  0 Pid 1 on  host device  0 [0x17] NVIDIA H100 80GB HBM3"; older ones have no
  // group.
  void rank(std::string_view line, const std::vector<std::string>& words) {
    const auto after = [&](std::string_view word) -> std::string {
      const auto found = std::find(words.begin(), words.end(), word);
      return found == words.end() || found + 1 == words.end() ? "" : *(found + 1);
    };
    take_name();
    NcclRank rank;
    rank.host = after("on");
    if (const auto group = find_count(after("Group"))) rank.group = static_cast<int>(*group);
    const std::size_t open = line.find('['), close = line.find("] ");
    const auto index = find_count(after("Rank"));
    if (rank.host.empty() || !index || close == std::string_view::npos || open > close)
      return notes_.error(line_, "the line of a rank is damaged");
    if (rows_.test().ranks.size() == kMostRanks)
      return notes_.error(line_, fmt::format("the list has more than {} ranks", kMostRanks));
    rank.index = rank_index(*index);
    const std::vector<std::string> name = words_of(line.substr(close + 2));
    rank.gpu = fmt::format("{}", fmt::join(name, " "));
    rows_.test().ranks.push_back(std::move(rank));
    fresh_ = false;
  }

  // The columns must be those that row() expects.
  void header(const std::vector<std::string>& words) {
    take_name();
    std::size_t i = 1;
    const auto take = [&](std::string_view word) {
      if (i >= words.size() || words[i] != word) return false;
      ++i;
      return true;
    };
    bool good = take("size") && take("count") && take("type");
    take("redop");
    take("root");
    int directions = 0;
    last_ = LastColumn::wrong;
    while (good && i < words.size()) {
      if (take("timestamp") || take("Timestamp")) break;
      const bool cpu = take("cputime");
      cpu_time_ = cpu_time_ || cpu;
      good = (cpu || take("time")) && take("algbw") && take("busbw");
      if (good && take("error"))
        last_ = LastColumn::error;
      else
        good = good && (take("#wrong") || take("wrong"));
      ++directions;
    }
    in_table_ = true;
    if (!good || directions == 0 || directions > 2 || i < words.size())
      notes_.error(line_, "the columns of this table are not known",
                   "expected size, count, type, redop, root, time, algbw, busbw, #wrong");
    if (cpu_time_)
      notes_.error(line_, "the table has the host's time, not that of the operation",
                   "run nccl-tests without --report_cputime");
  }

  void row(std::vector<std::string> words) {
    fresh_ = false;
    if (words.size() > 2 && is_time_stamp(words[words.size() - 2], words.back()))
      words.resize(words.size() - 2);
    NcclRow row;
    row.line = line_;
    const auto bytes = find_count(words[0]);
    const auto count = words.size() > 1 ? find_count(words[1]) : std::nullopt;
    if (!bytes || !count || words.size() < 3)
      return notes_.error(line_, "the row is damaged: size, count and type were expected");
    row.bytes = *bytes;
    row.count = *count;
    row.type = words[2];
    if (std::any_of(words.begin() + 3, words.end(), is_masked)) return masked();
    std::size_t at = 3;
    if (at < words.size() && is_name(words[at])) row.reduces = words[at++] != "none";
    const std::size_t left = words.size() - at;
    if (left == 9 || left == 5) {  // root: a rank, or -1
      const std::string_view root = words[at];
      if (!is_digits(root.substr(root.starts_with('-') ? 1 : 0)))
        return notes_.error(line_, fmt::format("{} is no root", shown(root)));
      row.rooted = root[0] != '-';
      ++at;
    } else if (left != 8 && left != 4) {
      return notes_.error(
          line_,
          fmt::format("the row has {} columns behind the type; is it cut off?", words.size() - 3));
    }
    // With one set of figures the columns of the other direction are blank: it was in place.
    bool good = true;
    if (left >= 8) row.out_of_place = figures(words, at, good);
    if (good) row.in_place = figures(words, left >= 8 ? at + 4 : at, good);
    // Where the table has no such column, or a blank one, the test has no such thing.
    if (in_table_ && !row.reduces) row.reduces = false;
    if (in_table_ && !row.rooted) row.rooted = false;
    if (good) rows_.add(std::move(row));
  }

  void masked() {
    if (std::exchange(masked_, true)) return;
    notes_.error(line_, "the figures are written over with X: this is an example, no measurement");
  }

  // Four columns from `at` on; nothing if all times are N/A.
  std::optional<NcclFigures> figures(const std::vector<std::string>& words, std::size_t at,
                                     bool& good) {
    if (words[at] == "N/A" && words[at + 1] == "N/A" && words[at + 2] == "N/A") return std::nullopt;
    NcclFigures result;
    const auto take = [&](std::size_t i, double& value) {
      const std::optional<double> read = find_measure(words[at + i]);
      if (!read && good) {
        notes_.error(line_, fmt::format("{} is no measurement", shown(words[at + i])));
        good = false;
      }
      value = read.value_or(0);
    };
    take(0, result.time_us);
    take(1, result.algorithm_bandwidth);
    take(2, result.bus_bandwidth);
    if (words[at + 3] != "N/A") take(3, result.wrong);
    if (last_ == LastColumn::error) result.wrong = 0;  // the greatest difference, not a count
    // "1.2e+07" has two digits.
    if (words[at].find('e') != std::string::npos) result.precision = 0.06;
    return result;
  }

  // A line of the launcher, the shell or NCCL.
  void other(const std::vector<std::string>& words) {
    for (std::size_t i = 0; i < words.size(); ++i) {
      const std::string word = without_quotes(words[i]);
      if (word.ends_with("_perf") || word.ends_with("_perf_mpi"))
        if (const auto collective = find_collective(word)) named_ = *collective;
      if (word == "NCCL" && i + 2 < words.size() && words[i + 1] == "version") {
        const std::string version = words[i + 2].substr(0, words[i + 2].find('+'));
        if (is_utf8(version)) rows_.test().nccl_version = version;
      }
    }
  }

  Notes& notes_;
  NcclRows rows_;
  int line_ = 0;
  bool fresh_ = true;      // nothing of the test but its beginning was read
  bool in_table_ = false;  // behind a header: a line that begins with a number is a row
  bool cpu_time_ = false;
  bool masked_ = false;  // was said
  LastColumn last_ = LastColumn::wrong;
  std::string named_;  // by a command line in the log, for the next test
};

}  // namespace

Imported import_nccl_tests(std::string_view text, const std::string& file,
                           const ImportOptions& options) {
  Imported imported;
  const std::size_t first = text.find_first_not_of(" \t\r\n");
  if (first != std::string_view::npos && text[first] == '{') {
    read_nccl_json(text, file, options, imported);
    return imported;
  }
  Notes notes(file, imported);
  NcclLog(options, notes).read(text);
  notes.require_samples("rows of nccl-tests");
  return imported;
}

}  // namespace trainyard::imports
