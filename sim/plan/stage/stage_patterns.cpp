#include "sim/plan/stage/stage_patterns.h"

#include <algorithm>

#include "sim/plan/stage/place_labels.h"

namespace trainyard::plan {

using schedule::Pass;
using schedule::Seat;

namespace {

int kind_at(const RecomputePlaces& placed, int place) {
  return placed.work.chain[static_cast<std::size_t>(place)];
}

// Of the layer whose output crosses a boundary of virtual stages.
int kind_before(const StepPlan& step, const DealtWork& dealt, int boundary) {
  return kind_at(dealt.placed, step.layers[static_cast<std::size_t>(boundary)].last - 1);
}

StageLikeness::Layer layer_at(const RecomputePlaces& placed, int place) {
  const ChainRange again = placed.again[static_cast<std::size_t>(place)];
  return {kind_at(placed, place), again.first - place, again.last - place};
}

bool may_share(const DealtWork& dealt, int place) {
  const auto kind = static_cast<std::size_t>(kind_at(dealt.placed, place));
  const models::LayerWork& layer = dealt.placed.work.kinds[kind];
  return place == 0 || layer.tied_parameters > 0 || layer.frozen.tied > 0;
}

}  // namespace

std::vector<Seat> seats_of(const schedule::PipelineShape& shape, int stage) {
  std::vector<Seat> all;
  for (std::uint8_t direction = 0; direction < directions(shape); ++direction)
    for (int chunk = 0; chunk < shape.chunks; ++chunk)
      all.push_back({stage, chunk, direction});
  return all;
}

std::optional<StageLikeness> likeness(const StepPlan& step, const DealtWork& dealt,
                                      const PipelineMessages& messages, int stage, int versions) {
  StageLikeness alike{.versions = versions, .parts = {}};
  for (const Seat& seat : seats_of(step.shape, stage)) {
    const ChainRange range = step.layers[static_cast<std::size_t>(virtual_stage(step.shape, seat))];
    StageLikeness::Part& part = alike.parts.emplace_back();
    for (int place = range.first; place < range.last; ++place) {
      if (may_share(dealt, place)) return std::nullopt;
      part.places.push_back(
          {.layer = layer_at(dealt.placed, place),
           .whole = dealt.whole ? layer_at(*dealt.whole, place) : StageLikeness::Layer(),
           .divisible = dealt.placed.work.divisible[static_cast<std::size_t>(place)]});
    }
    if (range.first > 0) part.kind_before = kind_at(dealt.placed, range.first - 1);
    if (range.first > 0 && dealt.whole) part.whole_before = kind_at(*dealt.whole, range.first - 1);
    for (const Pass pass : {Pass::forward, Pass::backward}) {
      const auto message = messages.sent(seat.stage, {pass, 0, seat.chunk, seat.direction});
      if (message)
        part.sent[pass == Pass::forward ? 0 : 1] = {message->lane,
                                                    kind_before(step, dealt, message->boundary)};
    }
  }
  return alike;
}

BlockKey without_stage(BlockKey key, const StepPlan& step, const DealtWork& dealt) {
  key.seat.stage = key.backward_seat.stage = 0;
  if (key.then_fetch) key.then_fetch->stage = 0;
  for (PipelineMessage& message : key.receives)
    message.boundary = kind_before(step, dealt, message.boundary);
  return key;
}

const StagePattern* StagePatterns::find(const StageLikeness& likeness) const {
  for (const auto& [known, pattern] : patterns_)
    if (known == likeness) return &pattern;
  return nullptr;
}

void StagePatterns::add(StageLikeness likeness, StagePattern pattern) {
  for (const std::string& label : pattern.labels.where) {
    for (std::size_t at = 0; at < label.size();) {
      const int place = sign_at(label, at);
      if (place < 0)
        ++at;
      else if (std::find(pattern.places.begin(), pattern.places.end(), place) ==
               pattern.places.end())
        return;
    }
  }
  patterns_.emplace_back(std::move(likeness), std::move(pattern));
}

std::uint32_t StageBlockList::add(const BlockKey& key) {
  const std::size_t at = keys_.size();
  keys_.push_back(key);
  if (pattern_ == nullptr) return write_(key);
  const bool has_it =
      at < pattern_->blocks.size() && without_stage(key, step_, dealt_) == pattern_->blocks[at];
  return has_it ? static_cast<std::uint32_t>(at) : write_all();
}

const StagePattern* StageBlockList::finish() {
  if (pattern_ != nullptr && keys_.size() != pattern_->blocks.size()) write_all();
  return pattern_;
}

std::vector<BlockKey> StageBlockList::keys() const {
  std::vector<BlockKey> keys;
  keys.reserve(keys_.size());
  for (const BlockKey& key : keys_)
    keys.push_back(without_stage(key, step_, dealt_));
  return keys;
}

// What is written follows from the keys alone. The last block.
std::uint32_t StageBlockList::write_all() {
  pattern_ = nullptr;
  std::uint32_t last = 0;
  for (const BlockKey& key : keys_)
    last = write_(key);
  return last;
}

}  // namespace trainyard::plan
