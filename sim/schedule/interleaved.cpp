// 1F1B over v chunks per stage: the bubble shrinks v-fold, the messages grow v-fold.
//
//   time (equal chunks of F and B, no communication, m a multiple of p) = (m v + p - 1)(F + B)
//
// Micro-batches go in groups (of p unless the shape says otherwise); a group visits every chunk of
// a stage before the next group starts, and backward visits the chunks in reverse. The last group
// may be smaller, but not smaller than p: the first stage would come to the group's next chunk
// before the group has passed the last stage, and stages would wait for each other.
//
// Paired, each forward after the warm-up overlaps with the backward after it, for which the warm-up
// has one more. With pairs that take T:
//
//   time (equal chunks, no communication, m a multiple of p) =
//     (p + w - 1)(F + B) + (m v - w) T, w = min((v - 1) p + 1, m v), if T is at least F and B
//
// Source: Narayanan et al., Efficient Large-Scale Language Model Training on GPU Clusters Using
// Megatron-LM, SC 2021, 2.2.2; the pairs are Megatron-LM's (overlap_moe_expert_parallel_comm); the
// rule for the groups is Megatron-LM's
// (microbatch_group_size_per_vp_stage, whose default is p).
#include <fmt/format.h>

#include <algorithm>

#include "sim/schedule/schedule.h"

namespace trainyard::schedule {
namespace {

int group_size(const PipelineShape& shape) {
  return shape.group == 0 ? shape.stages : shape.group;
}

// Micro-batch and chunk of the k-th forward, the same on every stage.
struct Visit {
  int microbatch, chunk;
};
std::vector<Visit> visits(const PipelineShape& shape) {
  const int group = group_size(shape);
  std::vector<Visit> order;
  for (int first = 0; first < shape.microbatches; first += group) {
    const int end = std::min(first + group, shape.microbatches);
    for (int chunk = 0; chunk < shape.chunks; ++chunk)
      for (int i = first; i < end; ++i)
        order.push_back({i, chunk});
  }
  return order;
}

}  // namespace

std::vector<Slot> interleaved_one_f_one_b(const PipelineShape& shape, int stage) {
  const std::vector<Visit> order = visits(shape);
  const std::size_t total = order.size();
  const auto forward = [&](std::size_t k) {
    return Slot{Pass::forward, order[k].microbatch, order[k].chunk};
  };
  const auto backward = [&](std::size_t k) {
    return Slot{Pass::backward, order[k].microbatch, shape.chunks - 1 - order[k].chunk};
  };

  const int ahead = 2 * (shape.stages - stage - 1) + (shape.chunks - 1) * group_size(shape) +
                    (shape.paired ? 1 : 0);
  const std::size_t warmup = std::min(static_cast<std::size_t>(ahead), total);
  std::vector<Slot> slots;
  for (std::size_t k = 0; k < warmup; ++k)
    slots.push_back(forward(k));
  for (std::size_t k = warmup; k < total; ++k) {
    slots.push_back(forward(k));
    slots.back().paired = shape.paired;
    slots.push_back(backward(k - warmup));
  }
  for (std::size_t k = total - warmup; k < total; ++k)
    slots.push_back(backward(k));
  return slots;
}

std::optional<std::string> interleaved_unsupported(const PipelineShape& shape) {
  const int p = shape.stages;
  const int m = shape.microbatches;
  const int group = group_size(shape);
  if (group < p)
    return fmt::format(
        "interleaved_1f1b needs groups of at least {} micro-batches (one per stage), "
        "got groups of {}",
        p, group);
  const int rest = m % group;
  if (m >= group && (rest == 0 || rest >= p)) return std::nullopt;
  if (group == p)
    return fmt::format(
        "interleaved_1f1b needs a number of micro-batches that is a multiple of the "
        "{} stages, got {}",
        p, m);
  if (m < group)
    return fmt::format(
        "interleaved_1f1b needs at least one whole group of {} micro-batches, got {}", group, m);
  return fmt::format(
      "interleaved_1f1b in groups of {} micro-batches needs a last group of at least "
      "{} (one per stage), got {} micro-batches, whose last group has {}",
      group, p, m, rest);
}

}  // namespace trainyard::schedule
