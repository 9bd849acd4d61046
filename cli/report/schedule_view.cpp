#include "cli/report/schedule_view.h"

#include <fmt/format.h>

#include <algorithm>

#include "sim/schedule/chunk_placement.h"
#include "sim/schedule/custom_schedule.h"

namespace trainyard::report {

using schedule::Pass;
using schedule::PassTimes;
using schedule::ScheduleEntry;
using schedule::Slot;

namespace {

// Wider drawings are left to a picture.
constexpr std::int64_t kMostColumns = 4000;
constexpr int kMostLetters = 26;

std::string plural(int count, std::string_view word) {
  return fmt::format("{} {}{}", count, word, count == 1 ? "" : "s");
}

std::string shape_text(const ScheduleView& view) {
  std::string text = fmt::format("{}, {}", plural(view.shape.stages, "stage"),
                                 plural(view.shape.microbatches, "micro-batch"));
  if (view.shape.microbatches != 1) text.insert(text.size() - 1, "e");
  if (view.shape.chunks > 1) text += ", " + plural(view.shape.chunks, "chunk") + " per stage";
  if (directions(view.shape) > 1) text += ", two copies of the network";
  return text;
}

std::string times_text(const PassTimes& times) {
  return fmt::format("F = {}, I = {}, W = {} (B = I + W = {}), message {} ticks",
                     times.forward.count(), times.backward_input.count(),
                     times.backward_weight.count(), times.backward().count(),
                     times.communication.count());
}

std::string in_flight_text(const ScheduleView& view) {
  std::string text;
  for (const Bytes each : view.in_flight)
    text += fmt::format("{}{}", text.empty() ? "" : " ", each.count());
  const Bytes most = *std::max_element(view.in_flight.begin(), view.in_flight.end());
  return fmt::format("at most {} micro-batches{} (by stage: {})", most.count(),
                     view.shape.chunks > 1 ? " of chunks" : "", text);
}

// The picture of single ticks: a line for each, a column for each stage.
std::string at_text(const ScheduleView& view) {
  if (view.at.empty()) return "";
  std::vector<std::vector<std::string>> rows;
  std::size_t width = std::string_view("stage 0").size();
  for (const int tick : view.at) {
    rows.push_back(passes_at(view, tick));
    for (const std::string& pass : rows.back())
      width = std::max(width, pass.size());
  }
  const auto line = [width](std::string text, const std::vector<std::string>& columns) {
    for (const std::string& column : columns)
      text += fmt::format("  {:<{}}", column.empty() ? "." : column, width);
    return text.substr(0, text.find_last_not_of(' ') + 1) + "\n";
  };
  std::vector<std::string> stages;
  for (int stage = 0; stage < view.shape.stages; ++stage)
    stages.push_back(fmt::format("stage {}", stage));
  std::string text = "\n" + line(fmt::format("{:<8}", ""), stages);
  for (std::size_t row = 0; row < rows.size(); ++row)
    text += line(fmt::format("t = {:<4}", view.at[row]), rows[row]);
  return text;
}

std::string time_text(const ScheduleView& view) {
  return fmt::format("{} ticks; the longest stage {} from its first pass to its last",
                     view.run.makespan().count(), view.run.longest_span().count());
}

}  // namespace

ScheduleView view_schedule(const ScheduleEntry& entry, const schedule::PipelineShape& shape,
                           const PassTimes& times, Bytes most_in_flight) {
  ScheduleView view;
  view.entry = &entry;
  view.shape = shape;
  view.times = times;
  const std::vector<PassTimes> all = uniform_times(shape, times);
  const std::vector<Bytes> limits(static_cast<std::size_t>(shape.stages), most_in_flight);
  view.orders = build_stages(entry, shape, {all, limits});
  view.run = run_orders(shape, view.orders, all);
  view.in_flight = peak_activations(shape, view.orders, all);
  return view;
}

double bubble_fraction(const ScheduleView& view) {
  const std::vector<PassTimes> all = uniform_times(view.shape, view.times);
  std::int64_t worked = 0;
  for (int stage = 0; stage < view.shape.stages; ++stage)
    worked += busy(view.shape, view.orders, all, stage).count();
  const std::int64_t whole = view.run.longest_span().count() * view.shape.stages;
  return whole == 0 ? 0 : 1 - static_cast<double>(worked) / static_cast<double>(whole);
}

std::vector<std::string> passes_at(const ScheduleView& view, int tick) {
  std::vector<std::string> passes;
  for (std::size_t stage = 0; stage < view.orders.size(); ++stage) {
    std::string& text = passes.emplace_back();
    for (std::size_t i = 0; i < view.orders[stage].size(); ++i) {
      const bool runs =
          view.run.begins[stage][i].count() < tick && tick <= view.run.ends[stage][i].count();
      if (!runs) continue;
      if (!text.empty()) text += '+';
      text += slot_text(view.orders[stage][i], view.shape);
    }
  }
  return passes;
}

std::string list_text(std::span<const ScheduleEntry> entries) {
  std::size_t names = 0;
  for (const ScheduleEntry& entry : entries)
    names = std::max(names, entry.name.size());
  std::string text;
  for (const ScheduleEntry& entry : entries) {
    text += fmt::format("{:<{}}  {}\n", entry.name, names, entry.summary);
    if (!entry.needs.empty()) text += fmt::format("{:<{}}  needs {}\n", "", names, entry.needs);
    text += fmt::format("{:<{}}  {}\n", "", names, entry.source);
  }
  return text;
}

std::string to_text(const ScheduleView& view) {
  std::string text = fmt::format("{}: {}\n{}; {}\n\n", view.entry->name, view.entry->summary,
                                 shape_text(view), times_text(view.times));
  const std::int64_t cell = 3 + (view.shape.microbatches > 10 ? 1 : 0);
  const bool fits =
      view.run.makespan().count() * cell <= kMostColumns && parts(view.shape) <= kMostLetters;
  text += fits ? draw(view.shape, view.orders, view.times)
               : std::string("(too wide for text: --svg FILE draws it)\n");
  text += fmt::format("\ntime       {}\nbubble     {:.1f} %\nin flight  {}\n", time_text(view),
                      100 * bubble_fraction(view), in_flight_text(view));
  return text + at_text(view);
}

namespace {

// Colours by pass; those of a second part are lighter.
std::string_view colour(const Slot& slot, bool second) {
  switch (slot.pass) {
    case Pass::forward: return second ? "#9ec5f4" : "#3b7dd8";
    case Pass::backward: return second ? "#a8dcb5" : "#3a9d5d";
    case Pass::backward_input: return second ? "#9fdcd8" : "#23928b";
    case Pass::backward_weight: return second ? "#f6d58c" : "#d99a1c";
  }
  return "#888888";
}

class Svg {
 public:
  explicit Svg(const ScheduleView& view)
      : view_(view),
        tick_(std::clamp(
            kWidth / static_cast<double>(std::max<std::int64_t>(1, view.run.makespan().count())),
            0.5, 34.0)) {}

  std::string draw() {
    const double width = kMargin + x(view_.run.makespan()) - kMargin + kRight;
    const double height = kTop + kRow * view_.shape.stages + kBottom;
    out_ = fmt::format(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0:.0f}\" height=\"{1:.0f}\" "
        "viewBox=\"0 0 {0:.0f} {1:.0f}\" font-family=\"sans-serif\">\n"
        "<rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n",
        std::max(width, kLeastWidth), height);
    line(22, 15, "#111111", fmt::format("{}: {}", view_.entry->name, shape_text(view_)));
    line(40, 12, "#444444",
         fmt::format("{}; {:.1f} % bubble; {}", time_text(view_), 100 * bubble_fraction(view_),
                     times_text(view_.times)));
    for (int stage = 0; stage < view_.shape.stages; ++stage)
      add_stage(stage);
    add_legend(height - 18);
    return out_ + "</svg>\n";
  }

 private:
  static constexpr double kWidth = 1400, kLeastWidth = 760, kMargin = 62, kRight = 16;
  static constexpr double kTop = 56, kRow = 30, kBar = 26, kBottom = 44;

  double x(Duration at) const { return kMargin + tick_ * static_cast<double>(at.count()); }
  void line(double y, int size, std::string_view fill, const std::string& text) {
    out_ += fmt::format("<text x=\"10\" y=\"{:.0f}\" font-size=\"{}\" fill=\"{}\">{}</text>\n", y,
                        size, fill, text);
  }

  void add_stage(int stage) {
    const auto at = static_cast<std::size_t>(stage);
    const double y = kTop + kRow * stage;
    out_ += fmt::format(
        "<text x=\"10\" y=\"{:.1f}\" font-size=\"12\" fill=\"#444444\">stage {}</text>\n"
        "<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{:.1f}\" fill=\"#eeeeee\"/>\n",
        y + 17, stage, kMargin, y, x(view_.run.makespan()) - kMargin, kBar);
    const std::vector<Slot>& slots = view_.orders[at];
    for (std::size_t i = 0; i < slots.size(); ++i) {
      const bool second = i > 0 && slots[i - 1].paired;
      // The passes of a pair share their time: one above the other.
      const double half = slots[i].paired || second ? kBar / 2 : kBar;
      add_pass(slots[i], view_.run.begins[at][i], view_.run.ends[at][i], y + (second ? half : 0),
               half);
    }
  }

  void add_pass(const Slot& slot, Duration begin, Duration end, double y, double height) {
    const bool second = part(view_.shape, slot) % 2 == 1;
    const double width = x(end) - x(begin);
    out_ += fmt::format(
        "<g><title>{}, {} to {}</title><rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" "
        "height=\"{:.1f}\" fill=\"{}\" stroke=\"#ffffff\" stroke-width=\"{}\"/>",
        describe(view_.shape, slot), begin.count(), end.count(), x(begin), y, width, height,
        colour(slot, second), width > 4 ? "1" : "0.2");
    if (width >= 12)
      out_ += fmt::format(
          "<text x=\"{:.1f}\" y=\"{:.1f}\" font-size=\"{}\" text-anchor=\"middle\" "
          "fill=\"{}\">{}</text>",
          x(begin) + width / 2, y + height / 2 + 4, height < kBar ? 10 : 11,
          second ? "#111111" : "#ffffff", slot.microbatch);
    out_ += "</g>\n";
  }

  void add_legend(double y) {
    double left = kMargin;
    const auto entry = [&](Pass pass, bool second, std::string_view text) {
      out_ += fmt::format(
          "<rect x=\"{:.0f}\" y=\"{:.0f}\" width=\"12\" height=\"12\" fill=\"{}\"/>"
          "<text x=\"{:.0f}\" y=\"{:.0f}\" font-size=\"12\" fill=\"#444444\">{}</text>\n",
          left, y - 10, colour({pass}, second), left + 17, y, text);
      left += 34 + 6.4 * static_cast<double>(text.size());
    };
    entry(Pass::forward, false, "forward");
    if (uses(Pass::backward)) entry(Pass::backward, false, "backward");
    if (uses(Pass::backward_input)) {
      entry(Pass::backward_input, false, "gradients of inputs");
      entry(Pass::backward_weight, false, "gradients of weights");
    }
    if (parts(view_.shape) > 1)
      entry(Pass::forward, true,
            directions(view_.shape) > 1 ? "lighter: the other copy" : "lighter: odd chunks");
  }

  bool uses(Pass pass) const {
    for (const std::vector<Slot>& slots : view_.orders)
      for (const Slot& slot : slots)
        if (slot.pass == pass) return true;
    return false;
  }

  const ScheduleView& view_;
  double tick_;  // pixels
  std::string out_;
};

}  // namespace

std::string to_svg(const ScheduleView& view) {
  return Svg(view).draw();
}

}  // namespace trainyard::report
