#include "calibrate/import/nccl_rows.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <set>
#include <utility>

#include "sim/base/text.h"

namespace trainyard::imports {
namespace {

constexpr std::size_t kMostRows = 100'000;  // of one test; its largest tables have some hundred

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

// Whether the table of ranks holds each of 0 to n-1 once. One that was cut at its end does, too.
bool is_whole(const std::vector<NcclRank>& ranks) {
  std::set<int> seen;
  for (const NcclRank& rank : ranks)
    seen.insert(rank.index);
  return !ranks.empty() && seen.size() == ranks.size() && *seen.begin() == 0 &&
         *seen.rbegin() + 1 == static_cast<int>(ranks.size());
}

std::set<std::string> hosts_of(const std::vector<NcclRank>& ranks) {
  std::set<std::string> hosts;
  for (const NcclRank& rank : ranks)
    hosts.insert(rank.host);
  return hosts;
}

// "all-gather, all-to-all or hypercube".
std::string names_of(const std::vector<NcclGuess>& guesses) {
  std::string text;
  for (std::size_t i = 0; i < guesses.size(); ++i)
    text += fmt::format("{}{}",
                        i == 0                    ? ""
                        : i + 1 == guesses.size() ? " or "
                                                  : ", ",
                        guesses[i].collective);
  return text;
}

// The number of ranks that all guesses agree on; 0: there is none.
int common_ranks(const std::vector<NcclGuess>& guesses) {
  const bool same = std::all_of(guesses.begin(), guesses.end(), [&](const NcclGuess& guess) {
    return guess.ranks == guesses.front().ranks;
  });
  return !guesses.empty() && same ? guesses.front().ranks : 0;
}

}  // namespace

int rank_index(std::int64_t written) {
  return static_cast<int>(std::clamp<std::int64_t>(written, -1, 1 << 24));
}

std::string nccl_version_text(std::int64_t code) {
  // Until 2.8 a version had two digits for minor and patch together (nccl.h).
  if (code < 10000) return fmt::format("{}.{}.{}", code / 1000, code / 100 % 10, code % 100);
  return fmt::format("{}.{}.{}", code / 10000, code / 100 % 100, code % 100);
}

void NcclRows::begin(NcclTest test) {
  finish();
  test_ = std::move(test);
}

void NcclRows::add(NcclRow row) {
  if (row.bytes == 0) return empty_rows_.push_back(row.line);
  if (rows_.size() < kMostRows) return rows_.push_back(std::move(row));
  if (!std::exchange(too_many_, true))
    notes_.error(row.line, fmt::format("the test has more than {} rows", kMostRows));
}

// With the last row of a test everything about it has been said.
void NcclRows::finish() {
  if (!rows_.empty()) {
    // All of them complain where they have to.
    const bool collective = settle_collective(), ranks = settle_ranks();
    const bool servers = settle_servers();
    if (collective && ranks && servers && settle_gpus()) {
      write_machine();
      for (const NcclRow& row : rows_)
        write(row);
    }
  }
  if (!empty_rows_.empty())
    notes_.warning(empty_rows_.front(),
                   fmt::format("{} rows of 0 bytes are left out, for which NCCL does nothing: "
                               "lines {}",
                               empty_rows_.size(), join_lines(empty_rows_)));
  rows_.clear();
  empty_rows_.clear();
  too_many_ = false;
}

void NcclRows::complain(std::string message, std::string hint) {
  notes_.error(test_.line, std::move(message), std::move(hint));
}

bool NcclRows::settle_collective() {
  const std::string& given = options_.collective;
  std::string& logged = test_.collective;
  if (!given.empty() && !logged.empty() && given != logged) {
    const std::string conflict =
        fmt::format("the log measures {}, but --collective says {}", logged, given);
    if (!test_.from_command) return complain(conflict), false;
    notes_.warning(test_.line, conflict,
                   "the name stands in a command line, so the option is taken");
    logged = given;
  }
  if (logged.empty()) logged = given;
  if (!logged.empty()) return true;
  const int ranks = options_.ranks > 0      ? options_.ranks
                    : is_whole(test_.ranks) ? static_cast<int>(test_.ranks.size())
                                            : 0;
  const std::vector<NcclGuess> guesses = fitting_kinds(rows_, "", ranks);
  if (guesses.size() == 1) {
    logged = guesses.front().collective;
    notes_.warning(test_.line,
                   fmt::format("the log does not name its test; columns and bandwidths are those "
                               "of {} alone",
                               logged));
    return true;
  }
  complain("the log does not say which collective was measured",
           guesses.empty()
               ? "add --collective NAME"
               : fmt::format("add --collective NAME; the columns fit {}", names_of(guesses)));
  return false;
}

bool NcclRows::settle_ranks() {
  std::set<int> groups;
  for (const NcclRank& rank : test_.ranks)
    groups.insert(rank.group);
  if (groups.size() > 1)
    return complain("the ranks are split into several groups", "import one group"), false;
  const auto listed = static_cast<int>(test_.ranks.size());
  const bool whole = is_whole(test_.ranks);
  ranks_ = options_.ranks;
  if (ranks_ > 0 && whole && ranks_ < listed)
    return complain(fmt::format("the log has {} ranks, but --ranks says {}", listed, ranks_)),
           false;
  if (ranks_ > 0 && listed > 0 && ranks_ != listed)
    notes_.warning(test_.line,
                   fmt::format("the log lists {} ranks and --ranks says {}: the list is taken as "
                               "cut",
                               listed, ranks_));
  if (ranks_ == 0 && whole) ranks_ = listed;
  if (ranks_ > 0) return true;
  ranks_ = common_ranks(fitting_kinds(rows_, test_.collective, 0));
  const std::string cut = listed == 0
                              ? ""
                              : fmt::format("the list of ranks is cut: {} of them {} listed",
                                            listed, listed == 1 ? "is" : "are");
  const auto last =
      std::max_element(test_.ranks.begin(), test_.ranks.end(),
                       [](const NcclRank& a, const NcclRank& b) { return a.index < b.index; });
  if (ranks_ > 0 && (listed == 0 || last->index < ranks_)) {
    notes_.warning(test_.line,
                   fmt::format("{}; sizes and bandwidths are those of {} ranks alone",
                               listed == 0 ? "the log does not list its ranks" : cut, ranks_));
    return true;
  }
  if (ranks_ > 0)
    complain(fmt::format("{}, up to rank {}, but sizes and bandwidths are those of {} ranks", cut,
                         last->index, ranks_),
             fmt::format("add --ranks {} if the figures are right", ranks_));
  else if (listed == 0)
    complain("the log does not say how many ranks took part", "add --ranks N");
  else
    complain(cut, fmt::format("add --ranks N: {}, if rank {} is the last", last->index + 1,
                              last->index));
  return false;
}

bool NcclRows::settle_servers() {
  const auto hosts = static_cast<int>(hosts_of(test_.ranks).size());
  const bool whole = is_whole(test_.ranks) && ranks_ == static_cast<int>(test_.ranks.size());
  servers_ = options_.servers > 0 ? options_.servers : whole ? hosts : 0;
  if (whole && options_.servers > 0 && options_.servers != hosts)
    return complain(fmt::format("the log has {} servers, but --servers says {}", hosts, servers_)),
           false;
  if (servers_ == 0) {
    complain(hosts == 0 ? "the log does not say how many servers took part"
                        : "the list of ranks is cut, and does not say how many servers took part",
             "add --servers N");
    return false;
  }
  if (ranks_ > 0 && (ranks_ < 2 || ranks_ % servers_ != 0))
    return complain(fmt::format("{} ranks on {} servers are no group", ranks_, servers_)), false;
  return true;
}

bool NcclRows::settle_gpus() {
  gpus_.clear();
  for (const NcclRank& rank : test_.ranks)
    if (rank.host == test_.ranks.front().host) gpus_.push_back(rank.gpu);
  const auto of_a_server = static_cast<std::size_t>(ranks_ / servers_);
  // A list that is cut names one GPU at least.
  if (gpus_.size() != of_a_server && (ranks_ != static_cast<int>(test_.ranks.size())))
    gpus_.assign(of_a_server, gpus_.empty() ? options_.gpu : gpus_.front());
  if (!options_.gpu.empty()) std::fill(gpus_.begin(), gpus_.end(), options_.gpu);
  if (gpus_.front().empty())
    return complain("the log does not name the GPUs", "add --gpu NAME"), false;
  for (const std::string& gpu : gpus_)
    if (!is_utf8(gpu)) return complain("the name of a GPU is not UTF-8", "add --gpu NAME"), false;
  return true;
}

void NcclRows::write_machine() {
  json::Value machine =
      machine_sample(test_.version.empty() ? "nccl-tests" : "nccl-tests " + test_.version, gpus_);
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
  const double factor = nccl_bus_factor(test_.collective, ranks_);
  if (!is_bus_bandwidth(figures, factor)) {
    notes_.error(row.line,
                 fmt::format("busbw is {} GB/s, but {} of {} ranks gives {:.2f} GB/s",
                             shortest(figures.bus_bandwidth), test_.collective, ranks_,
                             factor * figures.algorithm_bandwidth),
                 "is the number of ranks right, and the collective?");
    return false;
  }
  return true;
}

void NcclRows::write(const NcclRow& row) {
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

}  // namespace trainyard::imports
