// What a log and a JSON file of nccl-tests have in common: a test with its ranks, and rows that are
// checked against it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "calibrate/import/line_diagnostics.h"
#include "calibrate/import/nccl_kinds.h"

namespace trainyard::imports {

struct NcclRank {
  int index = 0;
  int group = 0;
  std::string host;
  std::string gpu;
};

// One call of nccl-tests.
struct NcclTest {
  int line = 0;               // where it begins
  std::string collective;     // as samples spell it; empty: not said
  bool from_command = false;  // a command line before the table says so, not the test itself
  std::string version;        // of nccl-tests
  std::string nccl_version;   // of the library
  std::vector<NcclRank> ranks;
};

// A number of a list of ranks, kept within what can be counted on.
int rank_index(std::int64_t written);

std::string nccl_version_text(std::int64_t code);  // 22705 is "2.27.5"

// Turns the rows of tests into samples. A row's out-of-place time is taken, the in-place time only
// where there is no other: the two differ by less than their noise.
class NcclRows {
 public:
  NcclRows(const ImportOptions& options, Notes& notes) : options_(options), notes_(notes) {}

  void begin(NcclTest test);  // before the test's rows; the ranks may still be unknown
  NcclTest& test() { return test_; }
  void add(NcclRow row);
  void finish();  // after the last row

 private:
  // What the log and the options say of the test together; false after a complaint.
  bool settle_collective();
  bool settle_ranks();
  bool settle_servers();
  bool settle_gpus();
  void complain(std::string message, std::string hint = {});
  void write_machine();
  void write(const NcclRow& row);
  bool check_size(const NcclRow& row);
  bool check(const NcclRow& row, const NcclFigures& figures);

  const ImportOptions& options_;
  Notes& notes_;
  NcclTest test_;
  std::vector<NcclRow> rows_;  // of the test, but those of 0 bytes
  std::vector<int> empty_rows_;
  bool too_many_ = false;
  int ranks_ = 0, servers_ = 0;
  std::vector<std::string> gpus_;  // of one server
  std::string machine_;            // the last one that was written
};

}  // namespace trainyard::imports
