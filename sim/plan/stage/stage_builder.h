// Builds the program of one stage, block by block: the schedule's passes with the layers' work,
// what data parallelism and offload put around it, messages, memory. Private to the room.
#pragma once

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <vector>

#include "sim/plan/activation_offload.h"
#include "sim/plan/branches/branch_messages.h"
#include "sim/plan/input/batches.h"
#include "sim/plan/pass_steps.h"
#include "sim/plan/program_builder.h"
#include "sim/plan/replicas/stage_replicas.h"
#include "sim/plan/split/dealt_layers.h"
#include "sim/plan/split/running_work.h"
#include "sim/plan/stage/block_key.h"
#include "sim/plan/stage/scale_agreement.h"
#include "sim/plan/stage/stage_patterns.h"
#include "sim/plan/step_plan.h"
#include "sim/plan/tied_matrix.h"

namespace trainyard::plan {

class StageBuilder {
 public:
  // References must outlive it.
  StageBuilder(StepPlan& step, const DealtWork& dealt, const recipe::TrainingRecipe& recipe,
               const recipe::ParallelPlan& plan, PipelineMessages& messages,
               StageConnections& connections, StageSide side,
               const schedule::ScheduleEntry* schedule, InputBatches* input)
      : step_(step),
        dealt_(dealt),
        work_(dealt.placed.work),
        running_(step, dealt),
        recipe_(recipe),
        plan_(plan),
        messages_(messages),
        stage_(side.stage),
        updates_(step.rounds.whole     ? schedule::Updates::without_flush
                 : schedule == nullptr ? schedule::Updates::after_all
                                       : schedule->updates),
        versions_(schedule == nullptr ? 1 : weight_versions(*schedule, step.shape, side.stage)),
        builder_(step.cast, connections),
        data_(builder_, step, work_, recipe, plan, side,
              step.rounds.whole || updates_ == schedule::Updates::after_all),
        offload_(builder_, step, work_, recipe.offload),
        branches_(builder_, dealt.crossings, side.stage, plan.pipeline.overlap_p2p),
        scales_(builder_, step, running_, recipe, plan, side.stage),
        input_(input) {}

  // `patterns`: stages with the same layers, of which one may be alike; null: none is.
  Role build(const std::vector<schedule::Slot>& order, StagePatterns* patterns = nullptr);

 private:
  // The blocks of keys. Passes repeat, so that the last one of the same kind on the same part of
  // the stage is looked at first.
  class Blocks {
   public:
    // `part`: schedule::part() of the key's seat.
    template <class Write>
    std::uint32_t find(const BlockKey& key, int part, const Write& write) {
      std::vector<const Block*>& of_part = last_[static_cast<std::size_t>(key.kind)];
      const auto at = static_cast<std::size_t>(part);
      if (at >= of_part.size()) of_part.resize(at + 1, nullptr);
      if (of_part[at] != nullptr && of_part[at]->first == key) return of_part[at]->second;
      auto block = blocks_.find(key);
      if (block == blocks_.end()) block = blocks_.emplace(key, write()).first;
      of_part[at] = &*block;
      return block->second;
    }

   private:
    using Block = std::pair<const BlockKey, std::uint32_t>;

    std::map<BlockKey, std::uint32_t> blocks_;
    std::array<std::vector<const Block*>, kCallKinds> last_;  // by kind and part
  };

  // As the micro-batch runs it that is written.
  const models::LayerWork& layer(int place) const { return running_.layer(place); }
  ChainRange range(const schedule::Seat& seat) const {
    return step_.layers[static_cast<std::size_t>(virtual_stage(step_.shape, seat))];
  }
  schedule::Seat seat_of(const schedule::Slot& slot) const {
    return {stage_, slot.chunk, slot.direction};
  }
  // Parameters of the layer at `place`; a rank has one tied matrix, whichever of its places use it.
  std::int64_t parameters_at(int place) const {
    return layer(place).parameters - tied_with_earlier(step_, work_, place);
  }
  // What earlier places pass on through a stage that begins at `place`.
  Bytes carried_to(int place) const {
    const bool begins = std::any_of(step_.layers.begin(), step_.layers.end(),
                                    [&](const ChainRange& range) { return range.first == place; });
    return begins && place > 0 ? layer(place - 1).passed_on : Bytes(0);
  }

  StageParameters stage_parameters() const;
  void hold_tables(Role& stage);
  std::vector<Act> forward_acts(int place) const;
  // What runs again before the backward pass of a place, and the memory that it takes.
  std::vector<Act> again_acts(CallKind kind, int place) const;
  // `alone`: no other pass is written in between, so that gradients may leave on the way.
  std::vector<Act> backward_acts(CallKind kind, int place, bool alone);
  std::uint32_t write_pass(const BlockKey& key);
  void write_forward(const BlockKey& key);
  void write_backward(const BlockKey& key);
  void start(Role& stage);
  void write_pair(const BlockKey& key);
  void receive(const std::vector<PipelineMessage>& messages);
  void send(const schedule::Seat& seat, schedule::Pass pass);
  // Of the slot at `at`, as if it were none of a pair. What `key` held is gone.
  void find_key(const std::vector<schedule::Slot>& order, std::size_t at, bool completes,
                BlockKey& key);
  std::uint32_t write_step();
  void update(Role& stage);
  void finish(Role& stage, StagePatterns* patterns, const std::optional<StageLikeness>& alike);
  std::vector<bool> completing(const std::vector<schedule::Slot>& order) const;
  std::vector<ChainRange> copies() const;
  std::optional<schedule::Seat> fetches_for(const std::vector<schedule::Slot>& order,
                                            std::size_t at) const;

  StepPlan& step_;
  const DealtWork& dealt_;
  const models::NetworkWork& work_;
  RunningWork running_;  // of the block that is written
  const recipe::TrainingRecipe& recipe_;
  const recipe::ParallelPlan& plan_;
  PipelineMessages& messages_;
  int stage_;
  schedule::Updates updates_;
  int versions_;  // of the weights
  ProgramBuilder builder_;
  StageReplicas data_;
  ActivationOffload offload_;
  BranchMessages branches_;
  ScaleAgreement scales_;
  InputBatches* input_;  // nullptr: none is waited for
  StageParameters parameters_;
  std::optional<std::uint32_t> step_block_;
  StageBlockList blocks_{step_, dealt_, [this](const BlockKey& key) {
                           return key.kind == CallKind::step ? write_step() : write_pass(key);
                         }};
};

}  // namespace trainyard::plan
