// What the importers share: diagnostics with line numbers, words and numbers of a line.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "calibrate/import/import.h"

namespace trainyard::imports {

class Notes {
 public:
  Notes(std::string file, Imported& imported) : file_(std::move(file)), imported_(imported) {}
  void error(int line, std::string message, std::string hint = {});
  void warning(int line, std::string message, std::string hint = {});
  void add(json::Value sample) { imported_.samples.push_back(std::move(sample)); }
  // An import without any sample says so, unless something else is wrong.
  void require_samples(std::string_view of_what);

 private:
  // Of each severity the first hundred are kept, and a word that there are more.
  void note(Severity severity, int line, std::string message, std::string hint);

  std::string file_;
  Imported& imported_;
  int errors_ = 0, warnings_ = 0;
};

// Lines without their ends (\n or \r\n) and without the escape sequences of terminals.
std::vector<std::string> lines_of(std::string_view text);
std::vector<std::string> words_of(std::string_view line);

bool is_utf8(std::string_view text);

// A whole word as a number that is finite and not negative.
std::optional<std::int64_t> find_count(std::string_view word);
std::optional<double> find_measure(std::string_view word);

// A word of a diagnostic: quoted, cut to a readable length.
std::string shown(std::string_view word);

// The line with which a run begins.
json::Value machine_sample(std::string_view probe, const std::vector<std::string>& gpus);

}  // namespace trainyard::imports
