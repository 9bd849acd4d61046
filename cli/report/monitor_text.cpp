#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "cli/report/text.h"
#include "sim/base/text.h"

namespace trainyard::report {

using simulate::MonitoredRank;
using simulate::MonitorSample;
using trainyard::to_text;

namespace {

// In which the beginnings of samples are written: the largest in which they differ.
struct TimeUnit {
  std::string_view name;
  double seconds;
};
TimeUnit unit_of(Duration interval) {
  const double seconds = Seconds(interval).count();
  for (const TimeUnit unit : {TimeUnit{"s", 1}, TimeUnit{"ms", 1e-3}})
    if (seconds >= unit.seconds) return unit;
  return {"us", 1e-6};
}

std::string whole(const std::optional<double>& value) {
  return value ? fmt::format("{:.0f}", *value) : "-";
}

std::string line(const MonitoredRank& rank, const MonitorSample& sample, const TimeUnit& unit) {
  const double seconds = Seconds(sample.length).count();
  const auto rate = [&](std::int64_t bytes) { return static_cast<double>(bytes) / seconds / 1e6; };
  const auto mebibytes = [](Bytes bytes) { return static_cast<double>(bytes.count()) / 0x1p20; };
  return fmt::format(
      "{:>7.1f} {:>4} {:>4} {:>5} {:>3.0f} {:>4.0f} {:>4.0f} {:>3.0f} {:>6.0f} {:>6.0f} {:>5.0f} "
      "{:>5.0f} {:>5.1f} {:>5.1f}\n",
      Seconds(sample.begin).count() / unit.seconds, rank.rank, whole(sample.watts),
      whole(sample.celsius), 100 * sample.busy, 100 * sample.kernels, 100 * sample.multiprocessors,
      100 * sample.memory_controller, mebibytes(rank.held), mebibytes(sample.memory),
      rate(sample.pcie.in), rate(sample.pcie.out), rate(sample.links.in) / 1e3,
      rate(sample.links.out) / 1e3);
}

// The rank that the step waits for, or else the first.
const MonitoredRank& shown(const simulate::StepReport& report) {
  const std::vector<MonitoredRank>& ranks = report.monitor->ranks;
  const auto slowest = std::find_if(ranks.begin(), ranks.end(), [&](const MonitoredRank& rank) {
    return rank.rank == report.slowest_rank;
  });
  return slowest == ranks.end() ? ranks.front() : *slowest;
}

}  // namespace

std::string monitor_text(const simulate::StepReport& report, std::size_t most_rows) {
  if (!report.monitor || report.monitor->ranks.empty()) return "";
  const MonitoredRank& all = shown(report);
  const MonitoredRank rank = coarser(all, std::max<std::size_t>(most_rows, 1));
  const TimeUnit unit = unit_of(rank.samples.front().length);
  std::string text =
      fmt::format("\nThe {} of rank {} in {} samples of {}\n", report.device, rank.rank,
                  rank.samples.size(), to_text(rank.samples.front().length));
  text += fmt::format(
      "#{:>6} {:>4} {:>4} {:>5} {:>3} {:>4} {:>4} {:>3} {:>6} {:>6} {:>5} {:>5} {:>5} {:>5}\n",
      "time", "gpu", "pwr", "gtemp", "sm", "kern", "smac", "mem", "fb", "live", "rxpci", "txpci",
      "rxnvl", "txnvl");
  text += fmt::format(
      "#{:>6} {:>4} {:>4} {:>5} {:>3} {:>4} {:>4} {:>3} {:>6} {:>6} {:>5} {:>5} {:>5} {:>5}\n",
      unit.name, "Idx", "W", "C", "%", "%", "%", "%", "MiB", "MiB", "MB/s", "MB/s", "GB/s", "GB/s");
  for (const MonitorSample& sample : rank.samples)
    text += line(rank, sample, unit);
  text += "sm: a kernel is there, kern: one computes, smac: multiprocessors; fb: held\n";
  return text;
}

}  // namespace trainyard::report
