// The file into which a search writes each configuration as soon as it is done with it.
#pragma once

#include <string>

#include "sim/search/journal.h"

namespace trainyard::cli {

class SearchLog {
 public:
  // An empty path: nothing is written. With `resume` what the file holds is read, if there is one,
  // and what was written of a last line is cut off; without, the file must not be there. Throws
  // EnvironmentError, ScenarioError where the file is of another space or shard, and UsageError.
  SearchLog(std::string path, const search::JournalHead& head, bool resume);
  ~SearchLog();
  SearchLog(const SearchLog&) = delete;
  SearchLog& operator=(const SearchLog&) = delete;

  std::map<std::uint64_t, search::Trial> take_known() { return std::move(known_); }

  // A whole line, in one call of the kernel. Throws EnvironmentError.
  void write(const std::string& line);

 private:
  void read_known(const search::JournalHead& head);

  std::string path_;
  int file_ = -1;  // none
  std::map<std::uint64_t, search::Trial> known_;
};

// A log, whole or the beginning of one. Throws EnvironmentError and ScenarioError.
search::Journal read_log(const std::string& path);

// Of another space than `head` is: ScenarioError.
void check_space(const search::Journal& journal, const search::JournalHead& head,
                 const std::string& path);

}  // namespace trainyard::cli
