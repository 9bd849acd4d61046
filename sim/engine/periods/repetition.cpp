#include "sim/engine/periods/repetition.h"

#include <algorithm>
#include <limits>
#include <map>
#include <tuple>

namespace trainyard::engine {
namespace {

constexpr std::int64_t kForever = std::numeric_limits<std::int64_t>::max();

// The calls among which the heads of an actor's streams were and are; a step of 0: none moved.
struct Region {
  std::uint32_t low = std::numeric_limits<std::uint32_t>::max(), high = 0;
  std::uint32_t step = 0;
};

// How often `step` fits between two calls; 0 if there is nothing between them.
std::int64_t steps_between(std::uint32_t from, std::uint32_t until, std::uint32_t step) {
  return from < until ? (until - from) / step : 0;
}

bool moments_agree(const StateImage& before, const StateImage& after) {
  const Duration length = after.now - before.now;
  for (std::size_t i = 0; i < before.moments.size(); ++i) {
    const Duration grown = after.moments[i] - before.moments[i];
    if (grown != Duration::zero() && grown != length) return false;
  }
  return true;
}

class Finder {
 public:
  Finder(const RunState& state, const StateImage& before, const StateImage& after)
      : state_(state), before_(before), after_(after) {}

  std::int64_t times() {
    if (before_.same != after_.same || before_.moments.size() != after_.moments.size() ||
        before_.sums.size() != after_.sums.size() || before_.calls.size() != after_.calls.size())
      return 0;
    if (!moments_agree(before_, after_)) return 0;
    std::int64_t times = kForever;
    regions_.resize(state_.actors.size());
    for (std::uint32_t actor = 0; actor < regions_.size(); ++actor) {
      if (!find_region(actor)) return 0;
      if (regions_[actor].step == 0) continue;
      if (before_.oldest[actor] < before_.counts_from) return 0;
      if (!is_repeated_whole(actor) || !is_ahead(actor)) return 0;
      times = std::min(times, calls_left(actor));
      if (times == 0) return 0;
    }
    if (times == kForever || !calls_agree()) return 0;
    return std::min({times, levels_left(), marks_left()});
  }

 private:
  bool find_region(std::uint32_t actor) {
    const ActorState& owner = state_.actors[actor];
    Region& region = regions_[actor];
    for (std::uint32_t s = owner.first_stream; s < owner.first_stream + owner.streams; ++s) {
      const StateImage::Stream &was = before_.streams[s], &is = after_.streams[s];
      if (was.at != is.at || was.state != is.state) return false;
      if (was.call == is.call) continue;
      const std::uint32_t step = is.call - was.call;
      if (region.step != 0 && region.step != step) return false;
      region.step = step;
      region.low = std::min(region.low, was.call);
      region.high = std::max(region.high, is.call);
    }
    return true;
  }

  // Streams that stand still have no ops there.
  bool is_repeated_whole(std::uint32_t actor) const {
    const ActorState& owner = state_.actors[actor];
    const CompiledProgram& program = state_.programs[owner.program];
    const Region& region = regions_[actor];
    for (std::uint32_t s = 0; s < owner.streams; ++s) {
      const std::uint32_t number = owner.first_stream + s;
      if (before_.streams[number].call != after_.streams[number].call) continue;
      if (program.ops_before(region.low, s) != program.ops_before(region.high + 1, s)) return false;
    }
    return true;
  }

  // The host.
  bool is_ahead(std::uint32_t actor) const {
    const CompiledProgram& program = state_.programs[state_.actors[actor].program];
    const Duration launch = state_.machine.actors[ActorId{actor}].launch;
    const Region& region = regions_[actor];
    const Duration enqueued = program.enqueued_before(region.high + 1, launch);
    const Duration takes =
        enqueued - program.enqueued_before(region.high + 1 - region.step, launch);
    const Duration length = after_.now - before_.now;
    return takes == length || (takes < length && enqueued <= before_.oldest[actor]);
  }

  std::int64_t calls_left(std::uint32_t actor) {
    const std::uint32_t program = state_.actors[actor].program;
    const Region& region = regions_[actor];
    const auto [known, added] = unlike_.try_emplace({program, region.low, region.step}, 0);
    if (added) known->second = first_unlike(*state_.programs[program].program, region);
    return known->second > region.high
               ? 1 + steps_between(region.high, known->second - 1, region.step)
               : 0;
  }

  // The first call from `low` on that is not followed by its like.
  static std::uint32_t first_unlike(const Program& program, const Region& region) {
    std::size_t call = region.low;
    while (call + region.step < program.calls.size() &&
           program.calls[call].block == program.calls[call + region.step].block)
      ++call;
    return static_cast<std::uint32_t>(call);
  }

  bool calls_agree() const {
    for (std::size_t i = 0; i < before_.calls.size(); ++i) {
      const auto &was = before_.calls[i], &is = after_.calls[i];
      if (was.actor != is.actor) return false;
      if (was.call != is.call && is.call - was.call != regions_[is.actor].step) return false;
    }
    return true;
  }

  std::int64_t levels_left() const {
    std::int64_t times = kForever;
    for (std::size_t i = 0; i < before_.levels.size(); ++i) {
      const StateImage::Level &was = before_.levels[i], &is = after_.levels[i];
      const std::int64_t grown = is.now - was.now;
      if (grown <= 0) continue;
      if (is.most <= was.most || is.most > is.limit) return 0;
      times = std::min(times, (is.limit - is.most) / grown);
    }
    return times;
  }

  std::int64_t marks_left() const {
    std::int64_t times = kForever;
    for (const StateImage::Marks& marks : after_.marks) {
      const Region& region = regions_[marks.actor];
      if (region.step == 0) continue;
      const auto next = std::upper_bound(marks.calls->begin(), marks.calls->end(),
                                         static_cast<std::size_t>(region.low));
      if (next == marks.calls->end()) continue;
      const auto until = static_cast<std::uint32_t>(*next);
      times = std::min(
          times, until > region.high ? steps_between(region.high, until - 1, region.step) : 0);
    }
    return times;
  }

  const RunState& state_;
  const StateImage& before_;
  const StateImage& after_;
  std::vector<Region> regions_;  // by actor
  // By program, lowest call and step: first_unlike().
  std::map<std::tuple<std::uint32_t, std::uint32_t, std::uint32_t>, std::uint32_t> unlike_;
};

}  // namespace

std::optional<Period> find_repetition(const RunState& state, const StateImage& before,
                                      const StateImage& after) {
  const std::int64_t times = Finder(state, before, after).times();
  if (times == 0) return std::nullopt;
  return Period{&before, &after, times};
}

}  // namespace trainyard::engine
