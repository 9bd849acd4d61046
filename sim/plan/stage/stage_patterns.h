// Stages whose programs differ in names and in the order of calls alone: all but the first and the
// last of a pipeline, as a rule. Their blocks are written once.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "sim/plan/pipeline_messages.h"
#include "sim/plan/split/dealt_layers.h"
#include "sim/plan/stage/block_key.h"
#include "sim/plan/step_plan.h"

namespace trainyard::plan {

// All of a stage that its blocks depend on, beside the passes for which they are written.
struct StageLikeness {
  // Of the network, as micro-batches run it and as those do that do not run again.
  struct Layer {
    int kind = -1;
    int again_first = 0, again_last = 0;  // RecomputePlaces::again, from the place on
    friend bool operator==(const Layer&, const Layer&) = default;
  };
  struct Place {
    Layer layer, whole;
    bool divisible = false;
    friend bool operator==(const Place&, const Place&) = default;
  };
  struct Part {
    std::vector<Place> places;
    int kind_before = -1, whole_before = -1;  // of the place before them
    // What forward passes and backward passes send: on which lane, the output of which kind.
    std::array<std::optional<std::pair<Lane, int>>, 2> sent;
    friend bool operator==(const Part&, const Part&) = default;
  };
  int versions = 1;
  std::vector<Part> parts;
  friend bool operator==(const StageLikeness&, const StageLikeness&) = default;
};

// The parts of a stage, in their order.
std::vector<schedule::Seat> seats_of(const schedule::PipelineShape& shape, int stage);

// Nothing where a place shares a matrix with another, or is the network's first.
std::optional<StageLikeness> likeness(const StepPlan& step, const DealtWork& dealt,
                                      const PipelineMessages& messages, int stage, int versions);

// The key without what stages alike do not share.
BlockKey without_stage(BlockKey key, const StepPlan& step, const DealtWork& dealt);

// A stage that has been written.
struct StagePattern {
  std::size_t role = 0;          // into Cast::roles
  std::vector<BlockKey> blocks;  // without_stage(), by Program::blocks
  std::vector<int> places;       // that it holds, part by part
  engine::Labels labels;         // with signs of places
};

class StagePatterns {
 public:
  // Of a stage like that; null: none has been written.
  const StagePattern* find(const StageLikeness& likeness) const;
  // Not if its labels tell of places that it does not hold.
  void add(StageLikeness likeness, StagePattern pattern);

 private:
  std::vector<std::pair<StageLikeness, StagePattern>> patterns_;
};

// The blocks of a stage in the order in which they are called first: those of a pattern as long as
// it has the same ones, or else written, each with what the ones before have left behind.
class StageBlockList {
 public:
  // `write`: writes the next block and returns its number. References must outlive it.
  StageBlockList(const StepPlan& step, const DealtWork& dealt,
                 std::function<std::uint32_t(const BlockKey&)> write)
      : step_(step), dealt_(dealt), write_(std::move(write)) {}

  void follow(const StagePattern* pattern) { pattern_ = pattern; }
  // The number of a new one.
  std::uint32_t add(const BlockKey& key);
  // There are no more: which pattern has them; null: they were written.
  const StagePattern* finish();
  // As StagePattern::blocks.
  std::vector<BlockKey> keys() const;

 private:
  std::uint32_t write_all();

  const StepPlan& step_;
  const DealtWork& dealt_;
  std::function<std::uint32_t(const BlockKey&)> write_;
  std::vector<BlockKey> keys_;
  const StagePattern* pattern_ = nullptr;  // that has all so far; null: none
};

}  // namespace trainyard::plan
