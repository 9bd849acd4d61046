#include "sim/plan/pipeline_messages.h"

#include "sim/base/check.h"

namespace trainyard::plan {

using schedule::Hop;
using schedule::Pass;
using schedule::PipelineShape;
using schedule::Slot;

namespace {

Lane lane_of(bool gradient, Hop hop) {
  if (gradient) return hop == Hop::previous ? Lane::gradients_up : Lane::gradients_down;
  return hop == Hop::next ? Lane::activations_down : Lane::activations_up;
}

// What a pass needs or gives over a boundary of its copy: activations over the one before it,
// gradients over the one after it.
struct Crossing {
  int boundary;
  Hop hop;  // of the message
};
std::optional<Crossing> crossing_in(const PipelineShape& shape, int stage, const Slot& slot) {
  const int at = virtual_stage(shape, stage, slot);
  if (slot.pass == Pass::forward && at > 0)
    return Crossing{at - 1, hop_forward(shape, at - 1, slot.direction)};
  if (gives_gradient(slot.pass) && at + 1 < virtual_stages(shape))
    return Crossing{at, opposite(hop_forward(shape, at, slot.direction))};
  return std::nullopt;
}
std::optional<Crossing> crossing_out(const PipelineShape& shape, int stage, const Slot& slot) {
  const int at = virtual_stage(shape, stage, slot);
  if (slot.pass == Pass::forward && at + 1 < virtual_stages(shape))
    return Crossing{at, hop_forward(shape, at, slot.direction)};
  if (gives_gradient(slot.pass) && at > 0)
    return Crossing{at - 1, opposite(hop_forward(shape, at - 1, slot.direction))};
  return std::nullopt;
}

}  // namespace

std::optional<int> receiver(const PipelineShape& shape, Lane lane, int stage) {
  for (std::uint8_t direction = 0; direction < directions(shape); ++direction) {
    for (int chunk = 0; chunk < shape.chunks; ++chunk) {
      for (const Pass pass : {Pass::forward, Pass::backward}) {
        const auto out = crossing_out(shape, stage, {pass, 0, chunk, direction});
        if (!out || out->hop == Hop::stay) continue;
        if (lane_of(pass == Pass::backward, out->hop) != lane) continue;
        const int to = pass == Pass::forward ? out->boundary + 1 : out->boundary;
        return seat(shape, to, direction).stage;
      }
    }
  }
  return std::nullopt;
}

PipelineMessages::PipelineMessages(const PipelineShape& shape,
                                   std::span<const std::vector<Slot>> stages, bool in_series)
    : shape_(shape),
      sent_(2 * static_cast<std::size_t>(shape.stages * parts(shape))),
      expected_(sent_.size()),
      channels_(static_cast<std::size_t>(shape.stages) * kLanes),
      taken_(channels_.size(), 0),
      numbers_(2 * static_cast<std::size_t>(directions(shape)) *
               static_cast<std::size_t>(virtual_stages(shape)) *
               static_cast<std::size_t>(shape.microbatches)) {
  if (!in_series) return;
  find_crossings();
  for (int stage = 0; stage < shape.stages; ++stage)
    for (const Slot& slot : stages[static_cast<std::size_t>(stage)])
      enumerate(stage, slot);
}

void PipelineMessages::find_crossings() {
  for (int stage = 0; stage < shape_.stages; ++stage) {
    for (std::uint8_t direction = 0; direction < directions(shape_); ++direction) {
      for (int chunk = 0; chunk < shape_.chunks; ++chunk) {
        for (const Pass pass : {Pass::forward, Pass::backward}) {
          const Slot slot{pass, 0, chunk, direction};
          const bool gradient = gives_gradient(pass);
          const auto out = crossing_out(shape_, stage, slot);
          if (out && out->hop != Hop::stay)
            sent_[index(stage, slot)] = {lane_of(gradient, out->hop), out->boundary};
          const auto in = crossing_in(shape_, stage, slot);
          if (!in || in->hop == Hop::stay) continue;
          const Lane lane = lane_of(gradient, in->hop);
          const int sender = seat(shape_, in->boundary + (gradient ? 1 : 0), direction).stage;
          expected_[index(stage, slot)] = {{lane, in->boundary}, channel_index(sender, lane)};
        }
      }
    }
  }
}

std::size_t PipelineMessages::channel_index(int stage, Lane lane) const {
  return static_cast<std::size_t>(stage) * kLanes + static_cast<std::size_t>(lane);
}

std::uint32_t& PipelineMessages::number(bool gradient, const Slot& slot, int boundary) {
  const int line = (gradient ? 1 : 0) * directions(shape_) + slot.direction;
  return numbers_[static_cast<std::size_t>(line * virtual_stages(shape_) + boundary) *
                      static_cast<std::size_t>(shape_.microbatches) +
                  static_cast<std::size_t>(slot.microbatch)];
}

void PipelineMessages::enumerate(int stage, const Slot& slot) {
  const auto message = sent(stage, slot);
  if (!message) return;
  Channel& channel = channels_[channel_index(stage, message->lane)];
  number(gives_gradient(slot.pass), slot, message->boundary) =
      static_cast<std::uint32_t>(channel.size());
  channel.push_back(message->boundary);
}

void PipelineMessages::receive(int stage, const Slot& slot,
                               std::vector<PipelineMessage>& messages) {
  if (slot.pass == Pass::backward_weight) return;
  const std::optional<Expected>& expected = expected_[index(stage, slot)];
  if (!expected) return;
  const PipelineMessage& message = expected->message;
  const std::size_t at = expected->channel;
  const std::size_t wanted = number(gives_gradient(slot.pass), slot, message.boundary);
  for (; taken_[at] <= wanted; ++taken_[at])
    messages.push_back({message.lane, channels_[at][taken_[at]]});
}

}  // namespace trainyard::plan
