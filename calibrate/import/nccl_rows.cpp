#include "calibrate/import/nccl_rows.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <set>

#include "sim/base/text.h"
#include "sim/collective/share.h"

namespace trainyard::imports {
namespace {

struct TestName {
  std::string_view program;  // without _perf
  std::string_view collective;
};
constexpr std::array kTests = {
    TestName{"all_reduce", "all-reduce"},
    TestName{"all_gather", "all-gather"},
    TestName{"reduce_scatter", "reduce-scatter"},
    TestName{"alltoall", "all-to-all"},
    TestName{"broadcast", "broadcast"},
    TestName{"sendrecv", "send-recv"},
    TestName{"reduce", ""},
    TestName{"gather", ""},
    TestName{"scatter", ""},
    TestName{"hypercube", ""},
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

// Bus bandwidth / algorithm bandwidth. What is no collective of many, send-recv, has none.
double bus_factor(std::string_view collective, int ranks) {
  const std::optional<CollectiveKind> kind = find_collective_kind(collective);
  return kind ? collective::bus_factor(*kind, ranks) : 1;
}

// Bandwidths are written with two digits behind the point.
bool agree(double written, double computed, double precision) {
  return std::abs(written - computed) <= 0.006 + precision * computed;
}

std::string join_lines(const std::vector<int>& lines) {
  constexpr std::size_t kMost = 8;
  std::string text;
  for (std::size_t i = 0; i < std::min(lines.size(), kMost); ++i)
    text += (i > 0 ? ", " : "") + std::to_string(lines[i]);
  return lines.size() > kMost ? text + ", ..." : text;
}

}  // namespace

std::optional<std::string> find_collective(std::string_view program) {
  program = program.substr(program.rfind('/') + 1);  // npos + 1 is 0
  if (program.ends_with("_mpi")) program.remove_suffix(4);
  const bool is_test = program.ends_with("_perf");
  if (is_test) program.remove_suffix(5);
  for (const TestName& test : kTests)
    if ((is_test && program == test.program) || (!is_test && program == test.collective))
      return std::string(test.collective);
  return is_test ? std::optional<std::string>("") : std::nullopt;
}

std::optional<int> find_type_bytes(std::string_view type) {
  for (const TypeName& known : kTypes)
    if (known.name == type) return known.bytes;
  return std::nullopt;
}

std::string nccl_version_text(std::int64_t code) {
  // Until 2.8 a version had two digits for minor and patch together (nccl.h).
  if (code < 10000) return fmt::format("{}.{}.{}", code / 1000, code / 100 % 10, code % 100);
  return fmt::format("{}.{}.{}", code / 10000, code / 100 % 100, code % 100);
}

void NcclRows::begin(NcclTest test) {
  finish();
  test_ = std::move(test);
  settled_ = false;
  usable_ = false;
}

// With the first row of a test everything about it has been said.
void NcclRows::settle() {
  settled_ = true;
  std::set<std::string> hosts;
  std::set<int> groups;
  for (const NcclRank& rank : test_.ranks) {
    hosts.insert(rank.host);
    groups.insert(rank.group);
  }
  bool good = true;
  const auto complain = [&](std::string message, std::string hint) {
    notes_.error(test_.line, std::move(message), std::move(hint));
    good = false;
  };
  if (groups.size() > 1) complain("the ranks are split into several groups", "import one group");
  const auto agreed = [&](int logged, int given, std::string_view what) {
    if (logged > 0 && given > 0 && logged != given)
      complain(fmt::format("the log has {} {}, but --{} says {}", logged, what, what, given), "");
    if (logged == 0 && given == 0)
      complain(fmt::format("the log does not say how many {} took part", what),
               fmt::format("add --{} N", what));
    return logged > 0 ? logged : given;
  };
  ranks_ = agreed(static_cast<int>(test_.ranks.size()), options_.ranks, "ranks");
  servers_ = agreed(static_cast<int>(hosts.size()), options_.servers, "servers");
  if (test_.collective.empty()) test_.collective = options_.collective;
  if (test_.collective.empty())
    complain("the log does not say which collective was measured", "add --collective NAME");
  else if (!options_.collective.empty() && options_.collective != test_.collective)
    complain(fmt::format("the log measures {}, but --collective says {}", test_.collective,
                         options_.collective),
             "");
  if (good && (ranks_ < 2 || ranks_ % servers_ != 0))
    complain(fmt::format("{} ranks on {} servers are no group", ranks_, servers_), "");
  std::vector<std::string> gpus;
  for (const NcclRank& rank : test_.ranks)
    if (rank.host == test_.ranks.front().host) gpus.push_back(rank.gpu);
  if (gpus.empty() && good) gpus.assign(static_cast<std::size_t>(ranks_ / servers_), options_.gpu);
  if (good && (gpus.front().empty() || !options_.gpu.empty())) {
    if (options_.gpu.empty()) complain("the log does not name the GPUs", "add --gpu NAME");
    std::fill(gpus.begin(), gpus.end(), options_.gpu);
  }
  for (const std::string& gpu : gpus)
    if (good && !is_utf8(gpu)) complain("the name of a GPU is not UTF-8", "add --gpu NAME");
  usable_ = good;
  if (!good) return;
  json::Value machine =
      machine_sample(test_.version.empty() ? "nccl-tests" : "nccl-tests " + test_.version, gpus);
  if (!test_.nccl_version.empty()) machine.set("nccl", json::Value::of(test_.nccl_version));
  const std::string text = json::to_text(machine, -1);
  if (text == machine_) return;
  machine_ = text;
  notes_.add(std::move(machine));
}

// The size is that of `count` elements: of the buffer, or of one rank's share.
bool NcclRows::check_size(const NcclRow& row) {
  const std::optional<int> element = find_type_bytes(row.type);
  if (!element) {
    notes_.error(row.line, fmt::format("type {} is not known", shown(row.type)));
    return false;
  }
  // In double: a damaged count may be of any size, and these products are exact up to 2^53.
  const double bytes = static_cast<double>(row.count) * *element;
  const auto size = static_cast<double>(row.bytes);
  if (bytes == size || bytes * ranks_ == size) return true;
  notes_.error(row.line,
               fmt::format("{} elements of type {} are not {} bytes, of one rank or of {}",
                           row.count, row.type, row.bytes, ranks_));
  return false;
}

bool NcclRows::check(const NcclRow& row, const NcclFigures& figures) {
  if (figures.wrong > 0) {
    notes_.warning(row.line, fmt::format("left out: {} wrong values", shortest(figures.wrong)));
    return false;
  }
  if (figures.time_us <= 0) {
    notes_.error(row.line, "an operation took no time");
    return false;
  }
  const double algorithm = static_cast<double>(row.bytes) / figures.time_us * 1e-3;
  if (!agree(figures.algorithm_bandwidth, algorithm, figures.precision)) {
    notes_.error(row.line,
                 fmt::format("algbw is {} GB/s, but size / time is {:.2f} GB/s",
                             shortest(figures.algorithm_bandwidth), algorithm),
                 "are the columns size, ..., time, algbw, busbw?");
    return false;
  }
  const double bus = algorithm * bus_factor(test_.collective, ranks_);
  if (!agree(figures.bus_bandwidth, bus, figures.precision)) {
    notes_.error(row.line,
                 fmt::format("busbw is {} GB/s, but {} of {} ranks gives {:.2f} GB/s",
                             shortest(figures.bus_bandwidth), test_.collective, ranks_, bus),
                 "is the number of ranks right, and the collective?");
    return false;
  }
  return true;
}

void NcclRows::add(const NcclRow& row) {
  if (!settled_) settle();
  if (!usable_) return;
  if (row.bytes == 0) return empty_rows_.push_back(row.line);
  if (!check_size(row)) return;
  const std::optional<NcclFigures>& figures = row.out_of_place ? row.out_of_place : row.in_place;
  if (!figures) return notes_.warning(row.line, "left out: the row has no times");
  if (!check(row, *figures)) return;
  if (row.out_of_place && row.in_place && row.in_place->wrong > 0)
    return notes_.warning(
        row.line, fmt::format("left out: {} wrong values in place", shortest(row.in_place->wrong)));
  json::Value sample = json::Value::object();
  sample.set("kind", json::Value::of("collective"));
  sample.set("collective", json::Value::of(test_.collective));
  sample.set("ranks", json::Value::of(ranks_));
  sample.set("servers", json::Value::of(servers_));
  sample.set("bytes", json::Value::of(row.bytes));
  sample.set("backend", json::Value::of("nccl"));
  sample.set("time_us", json::Value::of(figures->time_us));
  notes_.add(std::move(sample));
}

void NcclRows::finish() {
  if (!empty_rows_.empty())
    notes_.warning(empty_rows_.front(),
                   fmt::format("{} rows of 0 bytes are left out, for which NCCL does nothing: "
                               "lines {}",
                               empty_rows_.size(), join_lines(empty_rows_)));
  empty_rows_.clear();
}

}  // namespace trainyard::imports
