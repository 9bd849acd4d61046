// What a pass does, piece by piece, before it is written into a program; and how two passes are
// written as one when they overlap.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "models/layer/layer_work.h"
#include "sim/plan/program_builder.h"
#include "sim/plan/step_plan.h"

namespace trainyard::plan {

struct Hold {
  MemoryKind kind;
  Bytes bytes;
  std::string owner;
};
struct Release {
  MemoryKind kind;
  Bytes bytes;
  std::string owner;
};
struct Work {
  std::vector<models::WorkItem> own;
  std::string where;
  PairPart part = PairPart::backward;
  std::span<const models::WorkItem> of_layer{};  // instead of `own`; the layer outlives it

  std::span<const models::WorkItem> items() const { return own.empty() ? of_layer : own; }
};
// What a pass does between its kernels.
struct Between {
  std::function<void()> write;
};
using Act = std::variant<Hold, Release, Work, Between>;

void write(ProgramBuilder& builder, const std::vector<Act>& acts);

// Two passes by turns: while a collective of one is in flight the other computes, so that each
// hides the other's communication. Without collectives they simply follow each other. Source:
// DeepSeek-AI, DeepSeek-V3 Technical Report, 2024, 3.2.1 (overlapped forward and backward).
// Hidden::experts: while an exchange of experts is in flight only, as Megatron-LM has it, whose
// other collectives its compute stream waits for (megatron/core/models/common/
// model_chunk_schedule_plan.py: dispatch and combine are all that the communication stream has).
enum class Hidden : std::uint8_t { all, experts };
void write_overlapped(ProgramBuilder& builder, const std::vector<Act>& first,
                      const std::vector<Act>& second, Hidden hidden);

// The halves of a backward: all but the weight gradients that may be deferred, and those.
std::vector<models::WorkItem> input_half(const std::vector<models::WorkItem>& backward);
std::vector<models::WorkItem> weight_half(const std::vector<models::WorkItem>& backward);

}  // namespace trainyard::plan
