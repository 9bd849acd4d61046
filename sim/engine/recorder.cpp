#include "sim/engine/recorder.h"

#include <algorithm>
#include <numeric>
#include <tuple>

#include "sim/base/check.h"
#include "sim/base/large_pages.h"

namespace trainyard::engine {

Recorder::Recorder(const RunState& state, const RunOptions& options)
    : state_(state),
      kernels_(options.record == Record::kernels),
      only_held_(options.only_kernels_host_may_hold),
      observer_(options.observer),
      tells_(options.record != Record::nothing || options.observer != nullptr),
      told_(options.recorded),
      first_span_(state.actors.size(), kNowhere) {
  TRAINYARD_CHECK(options.recorded.empty() || options.recorded.size() == state.actors.size(),
                  "`recorded` for {} of {} actors", options.recorded.size(), state.actors.size());
  TRAINYARD_CHECK(options.kept.empty() || options.kept.size() == state.actors.size(),
                  "`kept` for {} of {} actors", options.kept.size(), state.actors.size());
  if (options.record == Record::nothing) return;
  std::size_t spans = 0;
  for (std::size_t actor = 0; actor < state.actors.size(); ++actor) {
    if (!tells_of(static_cast<std::uint32_t>(actor))) continue;
    if (!options.kept.empty() && !options.kept[actor]) continue;
    first_span_[actor] = spans;
    for (std::uint32_t ops : state.programs[state.actors[actor].program].stream_ops)
      spans += ops;
  }
  trace_.spans.reserve(spans);
  use_large_pages(trace_.spans);
  trace_.spans.resize(spans);
}

bool Recorder::host_may_hold(const StreamState& stream) const {
  const CompiledOp& op = state_.op(stream);
  if (!op.has_kernels) return false;
  const HostTimes::OfOp host = state_.host_times_of(state_.actors[stream.actor], stream);
  return op.drained ? host.from < host.done : host.done > stream.begin;
}

void Recorder::kernel(const StreamState& stream, std::uint32_t kernel, Duration begin,
                      Duration end) {
  const CompiledProgram& program = state_.program(stream);
  const CompiledOp& op = state_.op(stream);
  const Segment& segment = program.program->segments[program.works[op.subject].segment];
  const KernelSpan span{.actor = ActorId{stream.actor},
                        .call = stream.head.call,
                        .op = op.index,
                        .kernel = segment.first_kernel + kernel,
                        .begin = begin,
                        .end = end};
  if (observer_ != nullptr) observer_->kernel_ended(span);
  if (kernels_) trace_.kernels.push_back(span);
}

void Recorder::record(const StreamState& stream, Duration active, Duration end) {
  std::size_t place = first_span_[stream.actor];
  if (observer_ == nullptr && place == kNowhere) return;
  const CompiledOp& op = state_.op(stream);
  const Span span{.actor = ActorId{stream.actor},
                  .call = stream.head.call,
                  .op = op.index,
                  .issued = state_.host_times_of(state_.actors[stream.actor], stream).issued,
                  .begin = stream.begin,
                  .active = active,
                  .end = end};
  if (observer_ != nullptr) observer_->op_ended(span);
  if (place == kNowhere) return;
  const CompiledProgram& program = state_.program(stream);
  for (std::uint32_t s = 0; s < op.stream; ++s)
    place += program.stream_ops[s];
  trace_.spans[place + stream.ended] = span;
}

void Recorder::memory(const StreamState& stream, const MemoryEffect& effect, Duration at) {
  if (first_span_[stream.actor] == kNowhere) return;
  trace_.memory.push_back({.at = at,
                           .actor = ActorId{stream.actor},
                           .category = effect.category,
                           .owner = effect.owner,
                           .bytes = effect.bytes});
}

// Kernels were recorded in order of time, so those of an actor with one compute stream are in order
// already: they only need to be dealt to their actors.
void Recorder::sort_kernels() {
  std::vector<std::size_t> place(state_.actors.size() + 1, 0);
  for (const KernelSpan& kernel : trace_.kernels)
    ++place[index(kernel.actor) + 1];
  std::partial_sum(place.begin(), place.end(), place.begin());
  const std::vector<std::size_t> first = place;
  std::vector<KernelSpan> dealt(trace_.kernels.size());
  for (const KernelSpan& kernel : trace_.kernels)
    dealt[place[index(kernel.actor)]++] = kernel;
  const auto in_order = [](const KernelSpan& a, const KernelSpan& b) {
    return std::tie(a.call, a.op, a.kernel) < std::tie(b.call, b.op, b.kernel);
  };
  for (std::size_t actor = 0; actor + 1 < first.size(); ++actor) {
    const auto begin = dealt.begin() + static_cast<std::ptrdiff_t>(first[actor]);
    const auto end = dealt.begin() + static_cast<std::ptrdiff_t>(first[actor + 1]);
    if (!std::is_sorted(begin, end, in_order)) std::sort(begin, end, in_order);
  }
  trace_.kernels = std::move(dealt);
}

Trace Recorder::take(std::uint64_t events) {
  std::size_t kept = 0;  // streams that did not finish leave gaps
  for (std::size_t actor = 0; actor < state_.actors.size(); ++actor) {
    const ActorState& owner = state_.actors[actor];
    std::size_t place = first_span_[actor];
    for (std::uint32_t s = 0; s < owner.streams; ++s) {
      const std::uint32_t ended = state_.streams[owner.first_stream + s].ended;
      trace_.ops += ended;
      if (place == kNowhere) continue;
      for (std::uint32_t i = 0; i < ended; ++i)
        trace_.spans[kept++] = trace_.spans[place + i];
      place += state_.programs[owner.program].stream_ops[s];
    }
    trace_.finished.push_back(owner.finished);
    trace_.end = std::max(trace_.end, owner.finished);
  }
  if (kept < trace_.spans.size()) trace_.spans.resize(kept);
  sort_kernels();
  trace_.events = events;
  return std::move(trace_);
}

}  // namespace trainyard::engine
