#include "sim/engine/compute/compute_runner.h"

#include <algorithm>
#include <bit>

namespace trainyard::engine {
namespace {

constexpr auto kIgnore = [](std::uint32_t, Duration, Duration) {};

}  // namespace

std::int64_t ComputeRunner::taken(std::uint32_t actor) const {
  const std::int64_t units = state_.machine.actors[ActorId{actor}].units;
  return std::min<std::int64_t>(units - 1, state_.actors[actor].taken);
}

void ComputeRunner::push_end(std::uint32_t number, Duration end, std::int64_t taken) {
  StreamState& stream = state_.streams[number];
  stream.is_late = false;
  stream.end_beside = static_cast<std::uint32_t>(taken);
  queue_.push({end, number, ++stream.version, Phase::finish, kind_});
}

void ComputeRunner::begin(std::uint32_t number, StreamState& stream, const ActorState& owner,
                          const CompiledOp& op) {
  if (owner.taken == 0) {
    const WorkTime& time = owner.work[op.subject];
    const Duration launches = op.drained ? stream.begin : state_.host_times_of(owner, stream).from;
    push_end(number, std::max(later(stream.begin, time.total), later(launches, time.host)), 0);
    return;
  }
  const KernelSequence kernels = state_.kernels(stream);
  stream.slot = new_clock();
  clocks_[stream.slot] = KernelClock(kernels, stream.begin, taken(stream.actor));
  push_end(number, KernelClock(clocks_[stream.slot]).finish(kernels, kIgnore), taken(stream.actor));
}

void ComputeRunner::resume(std::uint32_t number, const KernelClock* clock, Duration end) {
  if (clock != nullptr) {
    const std::uint32_t slot = state_.streams[number].slot = new_clock();
    clocks_[slot] = *clock;
  }
  push_end(number, end, clock != nullptr ? clock->taken() : 0);
}

void ComputeRunner::change_rate(std::uint32_t actor) {
  const ActorState& owner = state_.actors[actor];
  const std::int64_t now_taken = taken(actor);
  for (std::uint32_t bits = owner.computing_on; bits != 0; bits &= bits - 1) {
    const std::uint32_t s = owner.first_stream + static_cast<std::uint32_t>(std::countr_zero(bits));
    StreamState& stream = state_.streams[s];
    const KernelSequence kernels = state_.kernels(stream);
    if (stream.slot == kNone) {
      stream.slot = new_clock();
      clocks_[stream.slot] = KernelClock(kernels, stream.begin, 0);
    }
    KernelClock& clock = clocks_[stream.slot];
    if (clock.taken() == now_taken) continue;
    if (recorder_.wants_kernels(stream)) {
      clock.advance(kernels, queue_.now(), [&](std::uint32_t kernel, Duration begin, Duration end) {
        recorder_.kernel(stream, kernel, begin, end);
      });
    } else {
      clock.advance(kernels, queue_.now(), kIgnore);
    }
    clock.set_taken(now_taken);
    stream.is_late = true;
    if (now_taken < stream.end_beside)
      push_end(s, KernelClock(clock).finish(kernels, kIgnore), now_taken);
  }
}

bool ComputeRunner::finish(std::uint32_t number, std::uint32_t version) {
  const StreamState& stream = state_.streams[number];
  if (stream.version != version) return false;
  if (stream.is_late) {
    const KernelClock& clock = clocks_[stream.slot];
    const Duration end = KernelClock(clock).finish(state_.kernels(stream), kIgnore);
    if (end > queue_.now()) {
      push_end(number, end, clock.taken());
      return false;
    }
  }
  if (recorder_.wants_kernels(stream)) {
    const KernelSequence kernels = state_.kernels(stream);
    KernelClock clock =
        stream.slot == kNone ? KernelClock(kernels, stream.begin, 0) : clocks_[stream.slot];
    clock.finish(kernels, [&](std::uint32_t kernel, Duration begin, Duration end) {
      recorder_.kernel(stream, kernel, begin, end);
    });
  }
  if (stream.slot != kNone) free_clocks_.push_back(stream.slot);
  return true;
}

std::uint32_t ComputeRunner::new_clock() {
  if (free_clocks_.empty()) {
    clocks_.emplace_back();
    return static_cast<std::uint32_t>(clocks_.size() - 1);
  }
  const std::uint32_t clock = free_clocks_.back();
  free_clocks_.pop_back();
  return clock;
}

}  // namespace trainyard::engine
