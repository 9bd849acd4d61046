#include "calibrate/import/nccl_kinds.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "sim/collective/share.h"

namespace trainyard::imports {
namespace {

constexpr std::array kKinds = {
    NcclKind{"all_reduce", "all-reduce", true, false, false},
    NcclKind{"all_gather", "all-gather", false, false, true},
    NcclKind{"reduce_scatter", "reduce-scatter", true, false, true},
    NcclKind{"alltoall", "all-to-all", false, false, true},
    NcclKind{"broadcast", "broadcast", false, true, false},
    NcclKind{"sendrecv", "send-recv", true, false, false},
    NcclKind{"reduce", "reduce", true, true, false},
    NcclKind{"gather", "gather", false, true, true},
    NcclKind{"scatter", "scatter", false, true, true},
    NcclKind{"hypercube", "hypercube", false, false, true},
};

struct TypeName {
  std::string_view name;
  int bytes;
};
constexpr std::array kTypes = {
    TypeName{"int8", 1},     TypeName{"uint8", 1},    TypeName{"int32", 4},   TypeName{"uint32", 4},
    TypeName{"int64", 8},    TypeName{"uint64", 8},   TypeName{"half", 2},    TypeName{"float", 4},
    TypeName{"double", 8},   TypeName{"bfloat16", 2}, TypeName{"f8e4m3", 1},  TypeName{"f8e5m2", 1},
    TypeName{"fp8_e4m3", 1}, TypeName{"fp8_e5m2", 1}, TypeName{"float16", 2}, TypeName{"char", 1},
    TypeName{"int", 4},
};

constexpr double kRounding = 0.0051;  // half of the last digit, and the noise of reading it
constexpr int kMostPrintedRanks = 1 << 20;

const NcclFigures* figures_of(const NcclRow& row) {
  if (row.out_of_place) return &*row.out_of_place;
  return row.in_place ? &*row.in_place : nullptr;
}

// In double: a damaged count may be of any size, and these products are exact up to 2^53.
double bytes_of_count(const NcclRow& row) {
  return static_cast<double>(row.count) * find_type_bytes(row.type).value_or(0);
}

// n of a row whose count is a share; 0: of no number of ranks.
int ranks_of_share(const NcclRow& row) {
  const double share = bytes_of_count(row);
  const double ranks = share > 0 ? static_cast<double>(row.bytes) / share : 0;
  return ranks >= 2 && ranks <= kMostPrintedRanks && ranks == std::floor(ranks)
             ? static_cast<int>(ranks)
             : 0;
}

// The n of 2(n-1)/n = busbw / algbw that all rows allow, if it is one; 0: several. Nothing: none.
std::optional<int> ranks_of_ratio(std::span<const NcclRow> rows) {
  double least = 2, most = kMostPrintedRanks;
  for (const NcclRow& row : rows) {
    const NcclFigures* figures = figures_of(row);
    if (figures == nullptr || figures->algorithm_bandwidth <= kRounding) continue;
    const double low =
        (figures->bus_bandwidth - kRounding) / (figures->algorithm_bandwidth + kRounding);
    const double high =
        (figures->bus_bandwidth + kRounding) / (figures->algorithm_bandwidth - kRounding);
    if (low >= 2) return std::nullopt;
    least = std::max(least, 2 / (2 - low));
    if (high < 2) most = std::min(most, 2 / (2 - high));
  }
  const double first = std::ceil(least), last = std::floor(most);
  if (first > last) return std::nullopt;
  return first == last ? static_cast<int>(first) : 0;
}

// The ranks of the table if it is of that kind; nothing: it is not.
std::optional<int> ranks_if(const NcclKind& kind, std::span<const NcclRow> rows, int ranks) {
  for (const NcclRow& row : rows) {
    if (row.reduces.value_or(kind.reduces) != kind.reduces ||
        row.rooted.value_or(kind.rooted) != kind.rooted)
      return std::nullopt;
    if (!kind.shares) {
      if (bytes_of_count(row) != static_cast<double>(row.bytes)) return std::nullopt;
      continue;
    }
    const int own = ranks_of_share(row);
    if (own == 0 || (ranks > 0 && own != ranks)) return std::nullopt;
    ranks = own;
  }
  if (ranks == 0 && kind.collective == "all-reduce") {
    const std::optional<int> found = ranks_of_ratio(rows);
    if (!found || *found == 0) return found;
    ranks = *found;
  }
  // The factor of what is neither all-reduce nor in shares is 1 for any number of ranks.
  for (const NcclRow& row : rows)
    if (const NcclFigures* figures = figures_of(row))
      if (!is_bus_bandwidth(*figures, nccl_bus_factor(kind.collective, std::max(ranks, 2))))
        return std::nullopt;
  return ranks;
}

}  // namespace

std::span<const NcclKind> nccl_kinds() {
  return kKinds;
}

std::optional<std::string> find_collective(std::string_view program) {
  program = program.substr(program.rfind('/') + 1);  // npos + 1 is 0
  if (program.ends_with("_mpi")) program.remove_suffix(4);
  const bool is_test = program.ends_with("_perf");
  if (is_test) program.remove_suffix(5);
  for (const NcclKind& kind : kKinds)
    if ((is_test && program == kind.program) || (!is_test && program == kind.collective))
      return std::string(kind.collective);
  return is_test ? std::optional<std::string>("") : std::nullopt;
}

double nccl_bus_factor(std::string_view collective, int ranks) {
  if (const std::optional<CollectiveKind> kind = find_collective_kind(collective))
    return collective::bus_factor(*kind, ranks);
  const auto* known = std::find_if(kKinds.begin(), kKinds.end(), [&](const NcclKind& kind) {
    return kind.collective == collective;
  });
  const bool shares = known != kKinds.end() && known->shares;
  return shares ? static_cast<double>(ranks - 1) / static_cast<double>(ranks) : 1;
}

std::optional<int> find_type_bytes(std::string_view type) {
  for (const TypeName& known : kTypes)
    if (known.name == type) return known.bytes;
  return std::nullopt;
}

bool is_bus_bandwidth(const NcclFigures& figures, double factor) {
  const double expected = factor * figures.algorithm_bandwidth;
  return std::abs(figures.bus_bandwidth - expected) <= kRounding * (1 + factor) + 1e-5 * expected;
}

std::vector<NcclGuess> fitting_kinds(std::span<const NcclRow> rows, std::string_view collective,
                                     int ranks) {
  std::vector<NcclGuess> guesses;
  for (const NcclKind& kind : kKinds) {
    if (!collective.empty() && kind.collective != collective) continue;
    if (const std::optional<int> found = ranks_if(kind, rows, ranks))
      guesses.push_back({kind.collective, *found});
  }
  return guesses;
}

}  // namespace trainyard::imports
