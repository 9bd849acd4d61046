#include "tests/fuzz/fold.h"

#include <fmt/format.h>

#include "sim/engine/engine.h"
#include "sim/simulate/report/actor_spans.h"
#include "tests/support/roles.h"

namespace trainyard::fuzz {

using engine::ActorId;
using engine::KernelSpan;
using engine::Span;
using engine::Trace;

namespace {

// Of a run that came to its end, whether or not it had the memory.
const Trace* trace_of(const engine::Outcome& outcome) {
  if (const auto* full = std::get_if<engine::OutOfMemory>(&outcome)) return &full->trace;
  return std::get_if<Trace>(&outcome);
}

std::string rank_difference(const Trace& few, ActorId representative, const Trace& all,
                            ActorId rank) {
  const auto own = simulate::spans_of(all, rank);
  const auto expected = simulate::spans_of(few, representative);
  if (own.size() != expected.size())
    return fmt::format("{} spans, its representative has {}", own.size(), expected.size());
  for (std::size_t i = 0; i < own.size(); ++i) {
    Span span = expected[i];
    span.actor = rank;
    if (!(own[i] == span))
      return fmt::format("span {} is {} to {} ps, its representative's {} to {}", i,
                         own[i].begin.count(), own[i].end.count(), span.begin.count(),
                         span.end.count());
  }
  const auto kernels = simulate::kernels_of(all, rank);
  const auto expected_kernels = simulate::kernels_of(few, representative);
  if (kernels.size() != expected_kernels.size()) return "another number of kernels";
  for (std::size_t i = 0; i < kernels.size(); ++i)
    if (kernels[i].begin != expected_kernels[i].begin || kernels[i].end != expected_kernels[i].end)
      return fmt::format("kernel {} runs at another time", i);
  if (all.peaks[rank].peak != few.peaks[representative].peak ||
      all.peaks[rank].at != few.peaks[representative].at)
    return "another peak of memory";
  if (all.peaks[rank].at_end != all.peaks[rank].resident) return "memory is not given back";
  return {};
}

}  // namespace

std::string fold_difference(const simulate::Job& job) {
  const auto folded = simulate::simulate_step(job, {.unfold = false, .run = false});
  const auto unfolded = simulate::simulate_step(
      job, {.unfold = true, .run = false, .blocks = plan::StageBlocks::written_each});
  if (const std::string other = testing::role_difference(folded->plan, unfolded->plan);
      !other.empty())
    return fmt::format("stages alike differ from those written each in {}", other);
  const engine::Outcome some = run(folded->lowered.machine, {.record = engine::Record::kernels});
  const engine::Outcome whole = run(unfolded->lowered.machine, {.record = engine::Record::kernels});
  const Trace* few = trace_of(some);
  const Trace* all = trace_of(whole);
  if (few == nullptr || all == nullptr || some.index() != whole.index())
    return some.index() == whole.index() ? "" : "one ends otherwise than the other";
  if (few->end != all->end)
    return fmt::format("folded ends at {} ps, unfolded at {}", few->end.count(), all->end.count());
  const std::size_t ranks = unfolded->lowered.class_of_rank.size();
  if (ranks != folded->lowered.class_of_rank.size())
    return fmt::format("{} actors of {} ranks", ranks, folded->lowered.class_of_rank.size());
  for (std::uint32_t rank = 0; rank < ranks; ++rank) {
    const std::string difference =
        rank_difference(*few, ActorId(folded->lowered.class_of_rank[rank]), *all, ActorId(rank));
    if (!difference.empty()) return fmt::format("rank {}: {}", rank, difference);
  }
  return {};
}

}  // namespace trainyard::fuzz
