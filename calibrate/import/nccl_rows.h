// What a log and a JSON file of nccl-tests have in common: a test with its ranks, and rows that are
// checked against it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "calibrate/import/line_diagnostics.h"

namespace trainyard::imports {

struct NcclRank {
  int group = 0;
  std::string host;
  std::string gpu;
};

// One call of nccl-tests.
struct NcclTest {
  int line = 0;              // where it begins
  std::string collective;    // as samples spell it; empty: not said
  std::string version;       // of nccl-tests
  std::string nccl_version;  // of the library
  std::vector<NcclRank> ranks;
};

// The four columns of a direction. Bandwidths are GB/s (1e9).
struct NcclFigures {
  double time_us = 0;
  double algorithm_bandwidth = 0;
  double bus_bandwidth = 0;
  double wrong = 0;
  double precision = 0.01;  // relative, of the time as it was written
};

struct NcclRow {
  int line = 0;
  std::int64_t bytes = 0;
  std::int64_t count = 0;  // elements of a rank, or of all
  std::string type;        // "float"
  std::optional<NcclFigures> out_of_place, in_place;
};

// "all_reduce_perf", "./build/alltoall_perf_mpi" or "all-reduce": the collective as samples spell
// it. Nothing for another program's name; empty for a test of nccl-tests that samples do not know.
std::optional<std::string> find_collective(std::string_view program);

std::string nccl_version_text(std::int64_t code);  // 22705 is "2.27.5"

// Bytes of an element by NCCL's name of its type.
std::optional<int> find_type_bytes(std::string_view type);

// Turns the rows of tests into samples. A row's out-of-place time is taken, the in-place time only
// where there is no other: the two differ by less than their noise.
class NcclRows {
 public:
  NcclRows(const ImportOptions& options, Notes& notes) : options_(options), notes_(notes) {}

  void begin(NcclTest test);  // before the test's rows; the ranks may still be unknown
  NcclTest& test() { return test_; }
  void add(const NcclRow& row);
  void finish();  // after the last row

 private:
  void settle();
  bool check_size(const NcclRow& row);
  bool check(const NcclRow& row, const NcclFigures& figures);

  const ImportOptions& options_;
  Notes& notes_;
  NcclTest test_;
  bool settled_ = false;  // the test's ranks are known, and its machine is written
  bool usable_ = false;
  int ranks_ = 0, servers_ = 0;
  std::vector<int> empty_rows_;
  std::string machine_;  // the last one that was written
};

}  // namespace trainyard::imports
