// The tests of nccl-tests: what their tables look like, and which of them a table can be of.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace trainyard::imports {

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
  std::int64_t count = 0;               // elements of a rank, or of all
  std::string type;                     // "float"
  std::optional<bool> reduces, rooted;  // what the columns redop and root say, if they are known
  std::optional<NcclFigures> out_of_place, in_place;
};

// Source: the files of nccl-tests' src/, one per test: GetCollByteCount and GetBw.
struct NcclKind {
  std::string_view program;     // without _perf
  std::string_view collective;  // as samples spell it
  bool reduces, rooted;         // redop is not none, root is not -1
  bool shares;                  // count is that of one rank's share, not of the whole buffer
};
std::span<const NcclKind> nccl_kinds();

// "all_reduce_perf", "./build/alltoall_perf_mpi" or "all-reduce": the collective as samples spell
// it. Nothing for another program's name; empty for a test that nccl-tests did not have when this
// was written.
std::optional<std::string> find_collective(std::string_view program);

// busbw / algbw. Requires: a collective of nccl_kinds().
double nccl_bus_factor(std::string_view collective, int ranks);

// Bytes of an element by NCCL's name of its type.
std::optional<int> find_type_bytes(std::string_view type);

// Whether both bandwidths, each rounded to two digits behind the point, can be those of one
// operation.
bool is_bus_bandwidth(const NcclFigures& figures, double factor);

// What a table can be of. `ranks` is 0 where its rows do not tell.
struct NcclGuess {
  std::string_view collective;
  int ranks = 0;
};
// All that agree with every row. A given collective or number of ranks (0: none) is kept. The
// number of ranks follows from size and count where count is a share, and from the ratio of the
// bandwidths 2(n-1)/n if only one n gives all of them.
std::vector<NcclGuess> fitting_kinds(std::span<const NcclRow> rows, std::string_view collective,
                                     int ranks);

}  // namespace trainyard::imports
