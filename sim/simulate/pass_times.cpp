#include "sim/simulate/pass_times.h"

#include <algorithm>

#include "sim/base/check.h"
#include "sim/schedule/chunk_placement.h"

namespace trainyard::simulate {

using engine::Actor;
using engine::OpKind;
using lower::Lowered;
using plan::CallKind;
using plan::OpGroup;
using plan::StepPlan;

namespace {

Duration alone(const engine::Transfer& transfer) {
  if (transfer.bytes == Bytes(0)) return transfer.latency;
  return transfer.latency +
         to_duration(transfer.bytes / BytesPerSecond(static_cast<double>(transfer.rate)));
}

// Else it goes on beside the passes.
bool belongs_to_layer(const engine::Op& op) {
  const auto group = static_cast<OpGroup>(op.group);
  return group == OpGroup::tensor || group == OpGroup::context || group == OpGroup::expert;
}

// One pass of a stage: its ops by themselves.
struct BlockSums {
  Duration work{}, sends{};
  Bytes taken{};   // and not given back
  Bytes beside{};  // the most that it takes for a while, beyond that
};

// The passes of a part, and the most that one of them takes for a while: workspaces, logits.
struct PartSums {
  schedule::PassTimes times;
  Bytes beside;
};

class Estimator {
 public:
  Estimator(const StepPlan& plan, const Lowered& lowered) : plan_(plan), lowered_(lowered) {}

  PipelineEstimate run() const {
    PipelineEstimate estimate;
    for (int stage = 0; stage < plan_.shape.stages; ++stage) {
      const Actor& actor = actor_of(stage);
      Bytes resident{}, one_of_each{}, beside{};
      for (const engine::MemoryEffect& effect : actor.program->resident)
        resident = resident + Bytes(effect.bytes);
      for (int at = 0; at < parts(plan_.shape); ++at) {
        const PartSums part = sums_of(stage, at);
        estimate.times.push_back(part.times);
        beside = std::max(beside, part.beside);
        one_of_each = one_of_each + estimate.times.back().activations;
      }
      const Bytes left = actor.memory_capacity > Bytes(0)
                             ? actor.memory_capacity - resident - beside
                             : schedule::kNoMemoryLimit;
      estimate.memory_limits.push_back(std::max(left, one_of_each));
    }
    return estimate;
  }

 private:
  const Actor& actor_of(int stage) const {
    for (const lower::RankClass& each : lowered_.classes)
      if (each.stage == stage) return lowered_.machine.actors[each.actor];
    TRAINYARD_CHECK(false, "no rank is on stage {}", stage);
    return lowered_.machine.actors[engine::ActorId(0)];
  }

  // The block of the first call of a kind on a part.
  const engine::Block& block_of(int stage, CallKind kind, int at) const {
    const plan::Role& program = plan_.cast.roles[static_cast<std::size_t>(stage)];
    for (std::size_t c = 0; c < program.calls.size(); ++c) {
      if (program.calls[c].kind == kind && program.calls[c].chunk == at)
        return program.program.blocks[program.program.calls[c].block];
    }
    TRAINYARD_CHECK(false, "stage {} has no such pass", stage);
    return program.program.blocks[0];
  }

  BlockSums sums(int stage, CallKind kind, int at) const {
    const Actor& actor = actor_of(stage);
    const engine::Program& program = *actor.program;
    BlockSums sums;
    Bytes most{};
    for (const engine::Op& op : block_of(stage, kind, at).ops) {
      const std::uint32_t end = op.first_effect + op.effects;
      Bytes running = sums.taken;
      for (std::uint32_t e = op.first_effect; e < end; ++e) {
        const Bytes bytes(program.effects[e].bytes);
        sums.taken = sums.taken + bytes;
        running = running + std::max(bytes, Bytes(0));
      }
      most = std::max(most, running);
      if (op.kind == OpKind::compute) {
        const engine::Segment& segment = program.segments[op.subject];
        for (std::uint32_t k = 0; k < segment.kernels; ++k)
          sums.work += actor.times->kernel[program.kernels[segment.first_kernel + k]];
      } else if (op.kind == OpKind::send) {
        const engine::Channel& channel = lowered_.machine.channels[actor.channels[op.port]];
        sums.sends += alone(lowered_.machine.transfers[channel.transfers][op.subject]);
      } else if (op.kind == OpKind::collective && belongs_to_layer(op)) {
        const engine::Communicator& group =
            lowered_.machine.communicators[actor.communicators[op.port]];
        sums.work += alone(lowered_.machine.transfers[group.transfers][op.subject]);
      }
    }
    sums.beside = most - std::max(sums.taken, Bytes(0));
    return sums;
  }

  PartSums sums_of(int stage, int at) const {
    const BlockSums forward = sums(stage, CallKind::forward, at);
    const BlockSums input = sums(stage, CallKind::backward_input, at);
    const BlockSums weight = sums(stage, CallKind::backward_weight, at);
    return {{.forward = forward.work,
             .backward_input = input.work,
             .backward_weight = weight.work,
             .communication = std::max(forward.sends, input.sends),
             .activations = forward.taken + std::max(input.taken, Bytes(0))},
            std::max({forward.beside, input.beside, weight.beside})};
  }

  const StepPlan& plan_;
  const Lowered& lowered_;
};

}  // namespace

PipelineEstimate estimate_passes(const StepPlan& plan, const Lowered& lowered) {
  return Estimator(plan, lowered).run();
}

}  // namespace trainyard::simulate
