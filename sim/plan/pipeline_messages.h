// Which messages the passes of a pipeline send and receive, in an order on which both ends agree.
#pragma once

#include <array>
#include <compare>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "sim/schedule/chunk_placement.h"
#include "sim/schedule/schedule.h"

namespace trainyard::plan {

// What a pipeline's messages carry, and which way. Under looped placement activations only go down
// the stages and gradients only up; a chunk or a copy that goes up the stages has lanes of its own.
enum class Lane : std::uint8_t { activations_down, gradients_up, activations_up, gradients_down };
inline constexpr std::size_t kLanes = 4;
inline constexpr std::array<Lane, kLanes> kAllLanes = {Lane::activations_down, Lane::gradients_up,
                                                       Lane::activations_up, Lane::gradients_down};

constexpr bool carries_gradients(Lane lane) {
  return lane == Lane::gradients_up || lane == Lane::gradients_down;
}

// The stage that receives what `stage` sends on a lane; nullopt if none of its passes sends there.
std::optional<int> receiver(const schedule::PipelineShape& shape, Lane lane, int stage);

struct PipelineMessage {
  Lane lane = Lane::activations_down;
  // It crosses from this virtual stage of its copy to the next, or as a gradient back.
  int boundary = 0;
  auto operator<=>(const PipelineMessage&) const = default;
};

// A channel delivers in the order of the sends, so a receiver takes messages in that order too: a
// pass that needs the third one first takes all three, and the other two are there when their
// passes come. It loses no time by that, as the third arrives last.
class PipelineMessages {
 public:
  // `in_series`: virtual stages cut the layers in their order; else no pass has such messages.
  // Requires: check_schedule() is nullopt. Both must outlive this.
  PipelineMessages(const schedule::PipelineShape& shape,
                   std::span<const std::vector<schedule::Slot>> stages, bool in_series);

  // What a pass sends when it has run.
  std::optional<PipelineMessage> sent(int stage, const schedule::Slot& slot) const {
    return slot.pass == schedule::Pass::backward_weight ? std::nullopt : sent_[index(stage, slot)];
  }
  // Appends what a pass has to receive before it runs. Call it once for each pass of a stage, in
  // order.
  void receive(int stage, const schedule::Slot& slot, std::vector<PipelineMessage>& messages);

 private:
  using Channel = std::vector<int>;  // the boundaries that its messages cross
  struct Expected {
    PipelineMessage message;
    std::size_t channel = 0;
  };

  // Of a pass that has messages, whichever micro-batch it is of.
  std::size_t index(int stage, const schedule::Slot& slot) const {
    const int gradient = gives_gradient(slot.pass) ? 1 : 0;
    return static_cast<std::size_t>((2 * stage + gradient) * parts(shape_) + part(shape_, slot));
  }
  void find_crossings();
  std::size_t channel_index(int stage, Lane lane) const;
  std::uint32_t& number(bool gradient, const schedule::Slot& slot, int boundary);
  void enumerate(int stage, const schedule::Slot& slot);

  const schedule::PipelineShape& shape_;
  std::vector<std::optional<PipelineMessage>> sent_;  // by index()
  std::vector<std::optional<Expected>> expected_;     // the same
  std::vector<Channel> channels_;                     // by stage of the sender and lane
  std::vector<std::size_t> taken_;                    // of each channel, so far
  std::vector<std::uint32_t> numbers_;                // of each message in its channel
};

}  // namespace trainyard::plan
