// Runs the orders of all stages against each other, without an engine: to prove that they end, and
// to draw them.
#include <fmt/format.h>

#include <algorithm>

#include "sim/base/check.h"
#include "sim/plan/schedule.h"

namespace trainyard {
namespace {

std::string describe(const PipelineShape& shape, const Slot& slot) {
  std::string text = fmt::format("{}{}", letter(slot.pass), slot.microbatch);
  if (shape.chunks > 1) text += fmt::format(" of chunk {}", slot.chunk);
  return text;
}

bool gives_gradient(Pass pass) {
  return pass == Pass::backward || pass == Pass::backward_input;
}

// How often each pass of one stage occurs, by micro-batch and chunk.
class Tally {
 public:
  explicit Tally(const PipelineShape& shape)
      : microbatches_(shape.microbatches),
        seen_(4 * static_cast<std::size_t>(shape.microbatches) *
              static_cast<std::size_t>(shape.chunks)) {}
  char& at(Pass pass, int microbatch, int chunk) {
    return seen_[4 * static_cast<std::size_t>(chunk * microbatches_ + microbatch) +
                 static_cast<std::size_t>(pass)];
  }

 private:
  int microbatches_;
  std::vector<char> seen_;
};

// Each pass once, and after what it needs of its own stage.
std::optional<std::string> check_stage(const PipelineShape& shape, const std::vector<Slot>& slots) {
  Tally tally(shape);
  const auto seen = [&](Pass pass, const Slot& of) -> char& {
    return tally.at(pass, of.microbatch, of.chunk);
  };
  for (const Slot& slot : slots) {
    if (slot.microbatch < 0 || slot.microbatch >= shape.microbatches)
      return fmt::format("micro-batch {} is not one of {}", slot.microbatch, shape.microbatches);
    if (slot.chunk < 0 || slot.chunk >= shape.chunks)
      return fmt::format("chunk {} is not one of {}", slot.chunk, shape.chunks);
    const std::string what = describe(shape, slot);
    if (seen(slot.pass, slot)) return fmt::format("{} occurs twice", what);
    seen(slot.pass, slot) = 1;
    if (gives_gradient(slot.pass) && !seen(Pass::forward, slot))
      return fmt::format("{} comes before its forward", what);
    if (slot.pass == Pass::backward_weight && !seen(Pass::backward_input, slot))
      return fmt::format("{} comes before the gradient of its input", what);
  }
  for (int chunk = 0; chunk < shape.chunks; ++chunk) {
    for (int i = 0; i < shape.microbatches; ++i) {
      const Slot forward = {Pass::forward, i, chunk};
      const Slot backward = {Pass::backward, i, chunk};
      if (!seen(Pass::forward, forward))
        return fmt::format("{} is missing", describe(shape, forward));
      const int whole = seen(Pass::backward, backward);
      const int input = seen(Pass::backward_input, backward);
      const int weight = seen(Pass::backward_weight, backward);
      if (whole + input == 0) return fmt::format("{} is missing", describe(shape, backward));
      if (whole + input == 2 || input != weight)
        return fmt::format("{} is neither whole nor two halves", describe(shape, backward));
    }
  }
  return std::nullopt;
}

// All stages at work, each in its order. Requires: every stage passes check_stage.
class OrderRun {
 public:
  OrderRun(const PipelineShape& shape, std::span<const std::vector<Slot>> stages,
           const PassTicks& ticks)
      : shape_(shape),
        stages_(stages),
        ticks_(ticks),
        next_(stages.size(), 0),
        starts_(stages.size()),
        clock_(stages.size(), 0),
        forward_end_(places(shape), -1),
        gradient_end_(places(shape), -1) {
    for (bool progress = true; progress;) {
      progress = false;
      for (std::size_t stage = 0; stage < stages_.size(); ++stage) {
        while (next_[stage] < stages_[stage].size() && try_next(stage))
          progress = true;
      }
    }
  }

  bool stuck(std::size_t stage) const { return next_[stage] < stages_[stage].size(); }
  const std::vector<std::int64_t>& starts(std::size_t stage) const { return starts_[stage]; }
  std::int64_t end() const { return *std::max_element(clock_.begin(), clock_.end()); }
  int ticks(Pass pass) const {
    switch (pass) {
      case Pass::forward: return ticks_.forward;
      case Pass::backward: return ticks_.backward;
      case Pass::backward_input: return ticks_.backward_input;
      case Pass::backward_weight: return ticks_.backward_weight;
    }
    return 0;
  }

  // Follows, from a stage that is stuck, who waits for whom until a stage comes again.
  std::string cycle_from(std::size_t stage) const {
    std::vector<std::size_t> path;
    while (std::find(path.begin(), path.end(), stage) == path.end()) {
      path.push_back(stage);
      stage = static_cast<std::size_t>(unmet(stage)->stage);
    }
    std::string text = "the stages wait for each other";
    for (auto at = std::find(path.begin(), path.end(), stage); at != path.end(); ++at) {
      const Need need = *unmet(*at);
      text += fmt::format("; stage {} is at {} and needs {} of stage {}", *at,
                          describe(shape_, head(*at)), describe(shape_, need.slot), need.stage);
    }
    return text;
  }

 private:
  struct Need {
    int stage;
    Slot slot;
    std::int64_t end;  // -1: has not ended
  };

  static std::size_t places(const PipelineShape& shape) {
    return static_cast<std::size_t>(shape.stages) * static_cast<std::size_t>(shape.chunks) *
           static_cast<std::size_t>(shape.microbatches);
  }
  std::size_t place(int virtual_stage, int microbatch) const {
    return static_cast<std::size_t>(virtual_stage) * static_cast<std::size_t>(shape_.microbatches) +
           static_cast<std::size_t>(microbatch);
  }
  int virtual_stage(std::size_t stage, const Slot& slot) const {
    return slot.chunk * shape_.stages + static_cast<int>(stage);
  }
  const Slot& head(std::size_t stage) const { return stages_[stage][next_[stage]]; }

  // What the pass needs of the stage before it (forward) or after it (backward), if there is one.
  std::optional<Need> need_of(std::size_t stage, const Slot& slot) const {
    const int at = virtual_stage(stage, slot);
    if (slot.pass == Pass::forward && at > 0) {
      const Slot from = {Pass::forward, slot.microbatch, (at - 1) / shape_.stages};
      return Need{(at - 1) % shape_.stages, from, forward_end_[place(at - 1, slot.microbatch)]};
    }
    if (gives_gradient(slot.pass) && at + 1 < shape_.stages * shape_.chunks) {
      const Slot from = {Pass::backward, slot.microbatch, (at + 1) / shape_.stages};
      return Need{(at + 1) % shape_.stages, from, gradient_end_[place(at + 1, slot.microbatch)]};
    }
    return std::nullopt;
  }
  std::optional<Need> unmet(std::size_t stage) const {
    const auto need = need_of(stage, head(stage));
    TRAINYARD_CHECK(need && need->end < 0, "stage {} is not stuck", stage);
    return need;
  }

  bool try_next(std::size_t stage) {
    const Slot& slot = head(stage);
    const auto need = need_of(stage, slot);
    if (need && need->end < 0) return false;
    const std::int64_t start = std::max(clock_[stage], need ? need->end : 0);
    clock_[stage] = start + ticks(slot.pass);
    starts_[stage].push_back(start);
    const std::size_t at = place(virtual_stage(stage, slot), slot.microbatch);
    if (slot.pass == Pass::forward) forward_end_[at] = clock_[stage];
    if (gives_gradient(slot.pass)) gradient_end_[at] = clock_[stage];
    ++next_[stage];
    return true;
  }

  const PipelineShape& shape_;
  std::span<const std::vector<Slot>> stages_;
  PassTicks ticks_;
  std::vector<std::size_t> next_;  // position in the order, by stage
  std::vector<std::vector<std::int64_t>> starts_;
  std::vector<std::int64_t> clock_;
  std::vector<std::int64_t> forward_end_, gradient_end_;  // by virtual stage and micro-batch
};

}  // namespace

char letter(Pass pass) {
  switch (pass) {
    case Pass::forward: return 'F';
    case Pass::backward: return 'B';
    case Pass::backward_input: return 'I';
    case Pass::backward_weight: return 'W';
  }
  return '?';
}

std::optional<std::string> check_schedule(const PipelineShape& shape,
                                          std::span<const std::vector<Slot>> stages) {
  if (stages.size() != static_cast<std::size_t>(shape.stages))
    return fmt::format("{} orders for {} stages", stages.size(), shape.stages);
  for (std::size_t stage = 0; stage < stages.size(); ++stage)
    if (auto why = check_stage(shape, stages[stage]))
      return fmt::format("stage {}: {}", stage, *why);
  const OrderRun run(shape, stages, PassTicks{});
  for (std::size_t stage = 0; stage < stages.size(); ++stage)
    if (run.stuck(stage)) return run.cycle_from(stage);
  return std::nullopt;
}

std::string draw(const PipelineShape& shape, std::span<const std::vector<Slot>> stages,
                 const PassTicks& ticks) {
  TRAINYARD_CHECK(shape.chunks <= 26, "{} chunks have no letters", shape.chunks);
  const auto wrong = check_schedule(shape, stages);
  TRAINYARD_CHECK(!wrong, "{}", *wrong);
  const OrderRun run(shape, stages, ticks);
  const std::size_t digits = fmt::formatted_size("{}", shape.microbatches - 1);
  const std::size_t cell = 1 + digits + (shape.chunks > 1 ? 1 : 0);
  const std::size_t margin = fmt::formatted_size("stage {}", shape.stages - 1);

  std::string drawing;
  for (std::size_t stage = 0; stage < stages.size(); ++stage) {
    std::string row(static_cast<std::size_t>(run.end()) * cell, '.');
    for (std::size_t i = 0; i < stages[stage].size(); ++i) {
      const Slot& slot = stages[stage][i];
      std::string label = fmt::format("{}{}", letter(slot.pass), slot.microbatch);
      if (shape.chunks > 1) label += static_cast<char>('a' + slot.chunk);
      const auto from = static_cast<std::size_t>(run.starts(stage)[i]) * cell;
      const auto width = static_cast<std::size_t>(run.ticks(slot.pass)) * cell;
      label.resize(width, '-');
      row.replace(from, width, label);
    }
    drawing += fmt::format("{:<{}} {}\n", fmt::format("stage {}", stage), margin, row);
  }
  return drawing;
}

}  // namespace trainyard
