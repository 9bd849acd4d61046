#include "cli/report/text.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

#include "cli/report/csv.h"
#include "sim/base/check.h"
#include "sim/base/text.h"
#include "sim/simulate/outlook/published.h"
#include "sim/simulate/outlook/training_text.h"
#include "sim/simulate/outlook/verdict.h"
#include "sim/simulate/report/findings.h"
#include "sim/simulate/report/summary.h"
#include "sim/simulate/report/ways_text.h"

namespace trainyard::report {

using simulate::StepReport;
using trainyard::to_text;

namespace {

constexpr std::size_t kColumns = 80;

// Columns that a UTF-8 text takes, one per code point.
std::size_t width(std::string_view text) {
  return static_cast<std::size_t>(
      std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xC0) != 0x80; }));
}

// Bytes of the longest beginning of `text` that takes at most `columns`.
std::size_t prefix_of(std::string_view text, std::size_t columns) {
  std::size_t taken = 0;
  for (std::size_t i = 0; i < text.size(); ++i)
    if ((text[i] & 0xC0) != 0x80 && ++taken > columns) return i;
  return text.size();
}

// Padded to `columns`, or cut with "..." behind whole code points.
std::string fit(std::string_view text, std::size_t columns) {
  const std::size_t have = width(text);
  if (have <= columns) return std::string(text) + std::string(columns - have, ' ');
  return std::string(text.substr(0, prefix_of(text, columns - 3))) + "...";
}

std::string right(std::string_view text, std::size_t columns) {
  const std::size_t have = width(text);
  return have >= columns ? std::string(text) : std::string(columns - have, ' ') + std::string(text);
}

std::string wrap(std::string_view text, std::size_t indent) {
  std::string out(indent, ' ');
  std::size_t column = indent;
  while (!text.empty()) {
    const std::size_t space = std::min(text.find(' '), text.size());
    std::string_view word = text.substr(0, space);
    const std::size_t room = prefix_of(word, kColumns - indent);
    const bool cut = room < word.size();  // a word longer than a line goes on in the next
    word = word.substr(0, room);
    text.remove_prefix(cut ? room : std::min(space + 1, text.size()));
    if (column > indent && column + 1 + width(word) > kColumns) {
      out += "\n" + std::string(indent, ' ');
      column = indent;
    }
    if (column > indent) {
      out += ' ';
      ++column;
    }
    out += word;
    column += width(word);
  }
  return out + "\n";
}

// "what: text" with what a terminal would obey made visible.
std::string note(std::string_view what, std::string_view text) {
  return wrap(escape_control(fmt::format("{}: {}", what, text)), 0);
}

class Painter {
 public:
  explicit Painter(const TextOptions& options) : options_(options) {}
  std::string bold(std::string_view text) const { return paint("1", text); }
  std::string faint(std::string_view text) const { return paint("2", text); }
  std::string good(std::string_view text) const { return paint("32", text); }
  std::string bad(std::string_view text) const { return paint("31", text); }
  std::string of(simulate::TimeCategory category, std::string_view text) const {
    static constexpr std::array<std::string_view, simulate::kTimeCategories> kCodes = {
        "34", "33", "36", "36", "35", "36", "33", "90", "32", "32", "31", "31"};
    return paint(kCodes[static_cast<std::size_t>(category)], text);
  }
  // A bar of eighths of a column.
  std::string bar(double fraction, int columns) const {
    const int eighths = static_cast<int>(std::lround(std::clamp(fraction, 0.0, 1.0) * columns * 8));
    std::string out;
    for (int i = 0; i < eighths / 8; ++i)
      out += options_.ascii ? "#" : "\u2588";
    static constexpr std::array<std::string_view, 8> kParts = {
        "", "\u258f", "\u258e", "\u258d", "\u258c", "\u258b", "\u258a", "\u2589"};
    if (!options_.ascii) return out + std::string(kParts[static_cast<std::size_t>(eighths % 8)]);
    return eighths % 8 >= 4 ? out + "#" : out;
  }

 private:
  std::string paint(std::string_view code, std::string_view text) const {
    return options_.colour ? fmt::format("\x1b[{}m{}\x1b[0m", code, text) : std::string(text);
  }
  TextOptions options_;
};

std::string row(std::string_view label, std::string_view value) {
  return fmt::format("  {}{}\n", fit(label, 14), value);
}

std::string headline(const StepReport& report, const Painter& paint) {
  std::string text;
  if (!report.step_time) {
    text += row("step time", paint.bad(escape_control(why_no_time(report))));
    if (report.simulated_step > Duration{})
      text += row("", fmt::format("(with enough memory: {})", to_text(report.simulated_step)));
    return text;
  }
  const std::string time =
      paint.bold(to_text(*report.step_time)) + (is_calibrated(report) ? "" : " uncalibrated");
  text += row("step time",
              report.interval
                  ? fmt::format("{} ({})", time, describe(*report.interval, *report.step_time))
                  : time);
  std::string rate = fmt::format("{} samples/s", simulate::count_text(report.samples_per_s));
  if (report.is_language)
    rate += fmt::format(", {} tokens/s ({} per {})", simulate::count_text(report.tokens_per_s),
                        simulate::count_text(report.tokens_per_s_per_gpu), report.device);
  text += row("throughput", rate);
  text +=
      row("MFU", fmt::format("{} (HFU {}), {} model TFLOP/s per {}",
                             simulate::percent_text(report.mfu), simulate::percent_text(report.hfu),
                             simulate::count_text(report.model_tflops_per_gpu), report.device));
  if (const std::string square = describe_full_square(report); !square.empty())
    text += row("", fmt::format("as PaLM and Megatron-LM count: {}", square));
  return text;
}

// The whole training, its price and its energy.
std::string training_rows(const StepReport& report) {
  const std::string length = describe_training(report), price = describe_price(report);
  std::string text = length.empty() ? "" : row("training", length);
  if (!price.empty()) text += row("", price);
  if (report.energy) text += row("energy", describe_energy(*report.energy));
  if (report.cloud_or_own) {
    std::string_view label = "cloud or own";
    for (const std::string& line : describe_cloud_or_own(*report.cloud_or_own)) {
      text += row(label, line);
      label = "";
    }
  }
  return text;
}

std::string memory_row(const StepReport& report, const Painter& paint) {
  const simulate::MemoryReport& m = report.memory;
  const std::string verdict =
      m.is_tight ? paint.bad(fmt::format("tight, {} wanted", to_text(m.wanted)))
      : m.fits
          ? paint.good("fits")
          : paint.bad(fmt::format("{} too much", to_text(std::max(m.peak - m.capacity, Bytes(0)))));
  const double used = m.capacity.count() > 0 ? static_cast<double>(m.peak.count()) /
                                                   static_cast<double>(m.capacity.count())
                                             : 0;
  std::string text = row(
      "memory", fmt::format("{} of {} ({}) on rank {}: {}", to_text(m.peak), to_text(m.capacity),
                            simulate::percent_text(used), m.peak_rank, verdict));
  const auto least = std::min_element(
      report.ranks.begin(), report.ranks.end(),
      [](const auto& one, const auto& other) { return one.memory < other.memory; });
  constexpr double kAlike = 0.95;
  if (least != report.ranks.end() &&
      static_cast<double>(least->memory.count()) < kAlike * static_cast<double>(m.peak.count()) &&
      least->memory > Bytes(0))
    text +=
        row("", fmt::format("the least is {}, on rank {}", to_text(least->memory), least->rank));
  return text;
}

// The three sums of the peak, its categories and its largest owners.
std::string memory_rows(const StepReport& report, const Painter& paint) {
  const simulate::MemoryReport& m = report.memory;
  if (m.peak <= Bytes(0)) return "";
  constexpr std::size_t kOwnersShown = 5;
  const auto share = [&](Bytes bytes) {
    return static_cast<double>(bytes.count()) / static_cast<double>(m.peak.count());
  };
  std::string text =
      fmt::format("\nWhat the device of rank {} holds at its peak, {} into the step\n", m.peak_rank,
                  to_text(m.peak_at));
  for (std::size_t i = 0; i < plan::kMemoryKinds; ++i) {
    if (m.by_category[i] == Bytes(0)) continue;
    const std::string bar = paint.bar(share(m.by_category[i]), 30);
    text +=
        fmt::format("  {} {}{} {} {}\n", fit(simulate::title(static_cast<plan::MemoryKind>(i)), 26),
                    bar, std::string(30 - std::min<std::size_t>(30, width(bar)), ' '),
                    right(simulate::percent_text(share(m.by_category[i])), 8),
                    right(to_text(m.by_category[i]), 9));
  }
  text += wrap(fmt::format("allocated {}, reserved {}, on the device {}", to_text(m.allocated),
                           to_text(m.reserved), to_text(m.peak)),
               2);
  std::string owners;
  for (std::size_t i = 0; i < std::min(kOwnersShown, m.owners.size()); ++i)
    owners += fmt::format("{}{} ({}) {}", i == 0 ? "" : ", ", escape_control(m.owners[i].name),
                          name(m.owners[i].category), to_text(m.owners[i].bytes));
  return owners.empty() ? text : text + wrap("largest: " + owners, 2);
}

// What the rank that holds most has in host memory, and its server where that is known.
std::string host_memory_rows(const StepReport& report, const Painter& paint) {
  if (!report.host_memory) return "";
  const simulate::HostMemoryReport& m = *report.host_memory;
  const auto of = [](Bytes used, Bytes capacity) {
    return capacity > Bytes(0) ? fmt::format("{} of {}", to_text(used), to_text(capacity))
                               : to_text(used);
  };
  const std::string verdict = m.fits ? paint.good("fits") : paint.bad("does not fit");
  const std::string holder = m.role.empty() ? fmt::format("rank {}", m.rank) : "the " + m.role;
  std::string text = row("host memory", fmt::format("{} of a server's, {} of {}: {}",
                                                    of(m.server_memory, m.memory_capacity),
                                                    to_text(m.memory), holder, verdict));
  if (m.server_nvme > Bytes(0))
    text += row("NVMe", fmt::format("{} of a server's, {} of {}",
                                    of(m.server_nvme, m.nvme_capacity), to_text(m.nvme), holder));
  return text;
}

std::string gpu_rows(const StepReport& report) {
  std::string text;
  for (const simulate::GpuShare& share : report.gpu_shares) {
    if (text.empty()) text = "\nWhat each kind of GPU does\n";
    text += wrap(escape_control(fmt::format("{}: {}", share.name, describe(share))), 2);
  }
  return text;
}

std::string job_rows(const StepReport& report) {
  std::string text;
  for (const simulate::JobShare& share : report.jobs) {
    if (text.empty()) text = "\nJobs that share the cluster\n";
    text += wrap(escape_control(fmt::format("{}: {}", share.name, describe(share))), 2);
  }
  return text;
}

std::string server_updates_row(const StepReport& report) {
  if (!report.server_updates) return "";
  const simulate::UpdateReport& updates = *report.server_updates;
  return row("updates", fmt::format("{} per second; gradients are {:.1f} updates old, {} at most",
                                    simulate::count_text(updates.per_s), updates.mean_staleness(),
                                    updates.most_stale()));
}

std::string input_row(const StepReport& report) {
  if (!report.input) return "";
  const simulate::InputReport& input = *report.input;
  return row("input",
             fmt::format("{} worker{} per GPU: a batch every {}, the GPU takes one every {}",
                         input.workers, input.workers == 1 ? "" : "s", to_text(input.between),
                         to_text(input.taken)));
}

std::string breakdown_rows(const StepReport& report, const Painter& paint) {
  const double step = simulate::seconds(report.simulated_step);
  if (step <= 0) return "";
  std::string text = fmt::format("\nWhere the step of rank {} goes\n", report.slowest_rank);
  for (std::size_t i = 0; i < simulate::kTimeCategories; ++i) {
    const auto category = static_cast<simulate::TimeCategory>(i);
    if (report.breakdown[i] == Duration{}) continue;
    const double share = simulate::seconds(report.breakdown[i]) / step;
    const std::string bar = paint.bar(share, 30);
    text += fmt::format(
        "  {} {}{} {} {}\n", fit(simulate::title(category, report), 26), paint.of(category, bar),
        std::string(30 - std::min<std::size_t>(30, width(bar)), ' '),
        right(simulate::percent_text(share), 8), right(to_text(report.breakdown[i]), 9));
  }
  return text;
}

// Which steps the interval is from, and what they say of this one.
std::string interval_note(const StepReport& report) {
  const simulate::Interval& found = *report.interval;
  if (!found.is_of_kind)
    return fmt::format(
        "8 of 10 of all {} published steps were so far off what is predicted for them; too few are "
        "of {}, so that says little",
        found.steps, report.estimate_class.network);
  return fmt::format(
      "8 of 10 of the {} published steps like it were so far off what is predicted for them ({})",
      found.steps, found.of);
}

std::string notes(const StepReport& report, const Painter& paint) {
  std::string text = "\n";
  if (report.interval) text += note("Interval", interval_note(report));
  text += note("Basis", describe_basis(report));
  for (const simulate::Published& number : report.published)
    text += note("Published", describe(number));
  if (!report.fidelity.empty()) text += note("Communication", report.fidelity);
  text +=
      paint.faint(fmt::format("{} events, {} ranks in {} class{}", report.events, report.world_size,
                              report.classes, report.classes == 1 ? "" : "es")) +
      "\n";
  for (const std::string& warning : all_warnings(report))
    text += note("warning", warning);
  return text;
}

struct Table {
  std::vector<std::vector<std::string>> rows;  // the first is the header; the first column is text
  std::vector<std::string> names;  // shorter, by row: in place of a first column that does not fit
};

// Columns as wide as their widest cell; the first is cut so that the row fits the screen.
std::string lay_out(Table table) {
  std::vector<std::size_t> widths(table.rows[0].size());
  for (const auto& cells : table.rows)
    for (std::size_t c = 0; c < cells.size(); ++c)
      widths[c] = std::max(widths[c], width(cells[c]));
  std::size_t rest = 0;
  for (std::size_t c = 1; c < widths.size(); ++c)
    rest += widths[c] + 2;
  const std::size_t space = kColumns > rest + 12 ? kColumns - rest : 12;
  if (widths[0] > space)
    for (std::size_t r = 0; r < table.names.size(); ++r)
      table.rows[r][0] = table.names[r];
  widths[0] = std::min(widths[0], space);
  std::string text;
  for (const auto& cells : table.rows) {
    text += fit(cells[0], widths[0]);
    for (std::size_t c = 1; c < cells.size(); ++c)
      text += "  " + right(cells[c], widths[c]);
    text += '\n';
  }
  return text;
}

// One line for all variants; which parts they are is too much beside a table.
std::string extrapolated_row(std::span<const StepReport> reports) {
  std::vector<double> shares;
  for (const StepReport& report : reports)
    for (const simulate::BasisShare& share : report.basis)
      if (share.basis == Basis::extrapolated && share.fraction > 0)
        shares.push_back(share.fraction);
  if (shares.empty()) return "";
  const std::string most = simulate::percent_text(*std::max_element(shares.begin(), shares.end()));
  return note("Extrapolated",
              fmt::format("up to {} of a variant's predicted time; 'run --variant NAME' says which "
                          "parts and why",
                          most));
}

// What each variant's training takes, below the table; empty if no length is known.
std::string trainings(std::span<const StepReport> reports, std::span<const std::size_t> order) {
  Table table;
  table.rows.push_back({"training", "steps", "days", "GPU-hours", "dollars", "energy"});
  table.names.push_back(table.rows[0][0]);
  for (const std::size_t i : order) {
    const StepReport& report = reports[i];
    if (!report.training || !report.step_time) continue;
    const simulate::TrainingTotal& total = *report.training;
    table.rows.push_back(
        {escape_control(label_of(report)), simulate::count_text(total.steps),
         simulate::count_text(total.days), simulate::count_text(total.gpu_hours),
         total.dollars ? simulate::dollars_text(*total.dollars) : "-",
         total.kilowatt_hours ? simulate::energy_text(*total.kilowatt_hours) : "-"});
    table.names.push_back(escape_control(report.name));
  }
  if (table.rows.size() == 1) return "";
  return lay_out(table) + wrap("Energy is that of the GPUs, analytic.", 0) + "\n";
}

// Who wins, by how much, and what it still loses.
std::string winner_text(std::span<const StepReport> reports, std::size_t winner,
                        std::size_t baseline, const Painter& paint) {
  const StepReport& report = reports[winner];
  if (!report.step_time) return paint.bold("No variant runs.") + "\n";
  const std::optional<double> factor = speedup(report, baseline_of(reports, baseline));
  std::string text = fmt::format("* {} is the fastest", label_of(report));
  if (factor && winner != baseline)
    text += fmt::format(", {:.2f}x the speed of {}", *factor, label_of(reports[baseline]));
  text = paint.bold(wrap(escape_control(fmt::format("{}. {}", text, verdict(report))), 0));
  const std::string most = costliest(report);
  return most.empty() ? text : text + wrap("Costs it most: " + escape_control(most), 0);
}

// What the variants leave out, each way of taking it once.
std::string assumed_rows(std::span<const StepReport> reports) {
  std::vector<std::string> said;
  std::string text;
  for (const StepReport& report : reports) {
    const std::string assumed = describe_assumed(report);
    if (assumed.empty() || std::find(said.begin(), said.end(), assumed) != said.end()) continue;
    said.push_back(assumed);
    text += note(fmt::format("Assumed in {}, as the scenario does not say it", label_of(report)),
                 assumed);
  }
  return text;
}

// What the columns are whose heads do not say it, where a variant has a value.
std::string legend(std::span<const StepReport> reports) {
  const bool has_stages = std::any_of(reports.begin(), reports.end(),
                                      [](const StepReport& r) { return r.pipeline > 1; });
  const bool has_tight = std::any_of(reports.begin(), reports.end(),
                                     [](const StepReport& r) { return r.memory.is_tight; });
  return wrap(fmt::format("idle: share of the compute streams' time{}{}.",
                          has_stages ? "; p2p: what stages send each other" : "",
                          has_tight ? "; ~: tight, fits as its allocator gives blocks back" : ""),
              0);
}

// `tokens`: and not samples a second.
std::vector<std::string> table_row(const StepReport& report, const simulate::Baseline& base,
                                   bool tokens) {
  const bool runs = report.step_time.has_value();
  const std::optional<double> factor = speedup(report, base);
  const std::string_view mark = report.memory.is_tight ? " ~" : report.memory.fits ? "" : " !";
  const std::string memory = fmt::format("{}{}", to_text(report.memory.peak), mark);
  const std::string none = report.deadlock ? "stuck" : "OOM";
  return {escape_control(label_of(report)),
          runs ? to_text(*report.step_time) + (is_calibrated(report) ? "" : " uncalibrated") : none,
          factor ? fmt::format("{:.2f}x", *factor) : "-",
          runs ? simulate::count_text(tokens ? report.tokens_per_s : report.samples_per_s) : "-",
          runs ? simulate::percent_text(report.mfu) : "-",
          simulate::percent_text(report.bubble_fraction),
          report.pipeline > 1 ? to_text(report.pipeline_bytes) : "-",
          memory};
}

}  // namespace

std::string to_text(const StepReport& report, const TextOptions& options) {
  const Painter paint(options);
  std::string text = paint.bold(wrap(escape_control(label_of(report)), 0));
  text += wrap(escape_control(describe(report)), 0);
  const std::string assumed = describe_assumed(report);
  if (!assumed.empty()) text += note("Assumed, as the scenario does not say it", assumed);
  if (!report.software.empty()) text += note("Software", describe_software(report));
  text += "\n" + headline(report, paint) + training_rows(report) + memory_row(report, paint) +
          host_memory_rows(report, paint) + server_updates_row(report) + input_row(report) +
          ways_to_fit_text(report);
  text += breakdown_rows(report, paint) + gpu_rows(report) + job_rows(report) +
          memory_rows(report, paint);
  text += cloud_or_own_text(report) + notes(report, paint);
  text += "\n" + paint.bold(wrap(escape_control(verdict(report)), 0));
  const std::string most = costliest(report);
  return most.empty() ? text : text + wrap("Costs most: " + escape_control(most), 0);
}

std::string compare_text(std::string_view heading, std::span<const StepReport> reports,
                         std::size_t baseline, const TextOptions& options) {
  TRAINYARD_CHECK(baseline < reports.size(), "baseline {} of {} variants", baseline,
                  reports.size());
  const Painter paint(options);
  const simulate::Baseline base = baseline_of(reports, baseline);
  const bool language = simulate::compares_tokens(reports);
  Table table;
  table.rows.push_back({"variant", "step", "speed-up", language ? "tokens/s" : "samples/s", "MFU",
                        "idle", "p2p", "memory"});
  table.names.push_back(table.rows[0][0]);
  const std::vector<std::size_t> order = simulate::fastest_first(reports);
  for (const std::size_t i : order) {
    const std::string mark = i == order.front() && reports[i].step_time ? "* " : "  ";
    table.rows.push_back(table_row(reports[i], base, language));
    table.rows.back()[0].insert(0, mark);
    table.names.push_back(mark + escape_control(reports[i].name));
  }
  std::string text =
      paint.bold(wrap(escape_control(heading), 0)) + "\n" + lay_out(table) + legend(reports) + "\n";
  text += trainings(reports, order);
  text += wrap(fmt::format("Speed-up over {}.", escape_control(base.name)), 0);
  for (const StepReport& report : reports) {
    if (report.step_time) continue;
    const std::string why = fmt::format("{}: {}", label_of(report), why_no_time(report));
    text += paint.bad(wrap(escape_control(why), 0)) + short_ways_to_fit_text(report);
  }
  const bool any_uncalibrated = !std::all_of(reports.begin(), reports.end(),
                                             [](const StepReport& r) { return is_calibrated(r); });
  for (const StepReport& report : reports) {
    if (any_uncalibrated != is_calibrated(report)) {
      text += note(fmt::format("Basis of {}", label_of(report)), describe_basis(report));
      break;
    }
  }
  return text + extrapolated_row(reports) + assumed_rows(reports) + "\n" +
         winner_text(reports, order.front(), baseline, paint);
}

}  // namespace trainyard::report
