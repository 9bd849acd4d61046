#include "calibrate/fit/samples/samples.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <optional>
#include <set>
#include <system_error>

#include "calibrate/fit/samples/sample_kinds.h"
#include "calibrate/fit/statistics.h"
#include "sim/base/text.h"
#include "sim/json/parse.h"

namespace trainyard::fit {
namespace {

constexpr std::uintmax_t kMostBytes = std::uintmax_t{256} << 20;
constexpr std::size_t kMostDiagnostics = 20;

void complain(std::vector<Diagnostic>& list, Severity severity, Position at, std::string message,
              std::string hint = {}) {
  Diagnostic diagnostic;
  diagnostic.severity = severity;
  diagnostic.at = std::move(at);
  diagnostic.message = std::move(message);
  diagnostic.hint = std::move(hint);
  list.push_back(std::move(diagnostic));
}

std::optional<std::string> read_text(const std::string& path, std::vector<Diagnostic>& mistakes) {
  std::error_code code;
  const auto fail = [&](std::string why, std::string hint = {}) {
    complain(mistakes, Severity::error, {path, 0, 0}, std::move(why), std::move(hint));
    return std::nullopt;
  };
  if (!std::filesystem::exists(path, code)) return fail("there is no such file");
  if (!std::filesystem::is_regular_file(path, code)) return fail("is not a regular file");
  if (std::filesystem::file_size(path, code) > kMostBytes || code)
    return fail(fmt::format("is larger than {} MiB", kMostBytes >> 20), "split it by kind");
  std::ifstream file(path, std::ios::binary);
  std::string text{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  if (!file) return fail("cannot be read");
  return text;
}

// Reads files line by line and keeps count of the kinds that it does not know.
class FileReader {
 public:
  void read(const std::string& path) {
    const std::optional<std::string> text = read_text(path, mistakes_);
    if (!text) return;
    machine_ = false;
    file_ = path;
    objects_ = 0;
    const std::size_t before = mistakes_.size();
    std::string_view rest = *text;
    for (int line = 1; !rest.empty(); ++line) {
      const std::size_t end = rest.find('\n');
      const bool cut_off = end == std::string_view::npos;
      read_line(rest.substr(0, end), {path, line, 1}, cut_off);
      rest.remove_prefix(cut_off ? rest.size() : end + 1);
    }
    if (objects_ == 0 && mistakes_.size() > before + 1) {
      // One word for a file of something else, not one per line.
      mistakes_.resize(before);
      complain(mistakes_, Severity::error, {path, 0, 0}, "no line of it is a JSON object",
               "name files that trainyard calibrate, trainyard-probe or trainyard import has "
               "written (docs/samples.md)");
    }
    for (const auto& [kind, first] : unknown_)
      complain(result_.warnings, Severity::warning, first,
               fmt::format("unknown kind '{}' is left out", escape_control(kind)));
    unknown_.clear();
  }

  Samples finish() {
    if (mistakes_.size() > kMostDiagnostics) {
      const std::size_t more = mistakes_.size() - kMostDiagnostics;
      mistakes_.resize(kMostDiagnostics);
      complain(mistakes_, Severity::error, mistakes_.back().at,
               fmt::format("and {} more mistakes", more));
    }
    if (!mistakes_.empty()) throw ScenarioError(std::move(mistakes_));
    return std::move(result_);
  }

 private:
  void read_line(std::string_view line, const Position& at, bool cut_off) {
    if (line.find_first_not_of(" \t\r") == std::string_view::npos) return;
    std::vector<Diagnostic> found;
    const json::Value object = json::parse_text(line, file_, found);
    if (!found.empty() && cut_off) {
      complain(result_.warnings, Severity::warning, at, "the last line is cut off and left out");
      return;
    }
    for (Diagnostic& diagnostic : found) {
      diagnostic.at.line = at.line;  // the parser saw one line only
      mistakes_.push_back(std::move(diagnostic));
    }
    if (!found.empty()) return;
    if (!object.is(json::Kind::object)) {
      complain(mistakes_, Severity::error, at, "expected one JSON object per line");
      return;
    }
    ++objects_;
    SampleLine fields(object, at, mistakes_);
    const std::string kind = fields.text("kind", SampleLine::required);
    if (kind == "machine") {
      result_.machines.push_back(read_machine(fields));
      machine_ = true;
    } else if (!kind.empty()) {
      add_sample(kind, fields);
    }
  }

  void add_sample(const std::string& kind, SampleLine& fields) {
    const std::size_t before = mistakes_.size();
    std::optional<Sample> sample = read_sample(kind, fields);
    if (!sample) {
      unknown_.try_emplace(kind, fields.at());
      return;
    }
    if (!machine_) {
      fields.error("", "a measurement stands before the machine line of its run",
                   R"(begin the run with {"kind": "machine", "gpus": [{"name": "..."}]})");
      machine_ = true;  // once per file is enough
      result_.machines.emplace_back();
    }
    if (mistakes_.size() != before) return;
    sample->machine = result_.machines.size() - 1;
    const auto gpus = static_cast<int>(result_.machines.back().gpus.size());
    if (sample->gpu >= gpus)
      fields.error("gpu", fmt::format("the run's machine line has {} GPUs", gpus));
    result_.samples.push_back(std::move(*sample));
  }

  Samples result_;
  std::vector<Diagnostic> mistakes_;
  std::map<std::string, Position> unknown_;
  std::string file_;
  std::size_t objects_ = 0;  // lines of this file that are objects
  bool machine_ = false;     // this file has named its machine
};

}  // namespace

Samples read_samples(const std::vector<std::string>& paths) {
  FileReader reader;
  for (const std::string& path : paths)
    reader.read(path);
  return reader.finish();
}

std::vector<Sample> merge_repeats(std::vector<Sample> samples) {
  const auto place = [](const Sample& s) { return std::pair(s.at.file, s.at.line); };
  std::sort(samples.begin(), samples.end(), [&](const Sample& a, const Sample& b) {
    return a.key != b.key ? a.key < b.key : place(a) < place(b);
  });
  std::vector<Sample> merged;
  for (std::size_t i = 0, end = 0; i < samples.size(); i = end) {
    std::set<std::pair<double, double>> distinct;
    for (end = i; end < samples.size() && samples[end].key == samples[i].key; ++end)
      distinct.emplace(samples[end].time_us, samples[end].spread);
    std::vector<double> times, spreads;
    for (const auto& [time, spread] : distinct) {
      times.push_back(time);
      spreads.push_back(spread);
    }
    Sample sample = samples[i];
    sample.time_us = median(std::move(times));
    sample.spread = median(std::move(spreads));
    merged.push_back(std::move(sample));
  }
  return merged;
}

}  // namespace trainyard::fit
