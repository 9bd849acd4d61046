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

// Op::port of sends and receives. Under looped placement activations only go down the stages and
// gradients only up; a chunk or a copy that goes up the stages has ports of its own.
enum class ChannelPort : std::uint8_t {
  to_next,        // activations to the following virtual stage
  from_previous,  // activations from the one before
  to_previous,    // gradients back
  from_next,
  up_to_previous,  // the same four of what goes up: activations to the previous stage
  up_from_next,
  up_to_next,  // its gradients back down
  up_from_previous,
};
inline constexpr std::size_t kChannelPorts = 8;
inline constexpr std::array<ChannelPort, 4> kSendPorts = {
    ChannelPort::to_next, ChannelPort::to_previous, ChannelPort::up_to_previous,
    ChannelPort::up_to_next};
// The port at the other end.
ChannelPort receiving_end(ChannelPort send);

// The stage at the other end of a port of kSendPorts; nullopt if no pass of `stage` sends there.
std::optional<int> receiver(const schedule::PipelineShape& shape, ChannelPort send, int stage);

struct PipelineMessage {
  ChannelPort port = ChannelPort::to_next;
  // It crosses from this virtual stage of its copy to the next, or as a gradient back.
  int boundary = 0;
  auto operator<=>(const PipelineMessage&) const = default;
};

// A channel delivers in the order of the sends, so a receiver takes messages in that order too: a
// pass that needs the third one first takes all three, and the other two are there when their
// passes come. It loses no time by that, as the third arrives last.
class PipelineMessages {
 public:
  // Requires: check_schedule() is nullopt. Both must outlive this.
  PipelineMessages(const schedule::PipelineShape& shape,
                   std::span<const std::vector<schedule::Slot>> stages);

  // What a pass sends when it has run.
  std::optional<PipelineMessage> sent(int stage, const schedule::Slot& slot) const;
  // Appends what a pass has to receive before it runs. Call it once for each pass of a stage, in
  // order.
  void receive(int stage, const schedule::Slot& slot, std::vector<PipelineMessage>& messages);

 private:
  using Channel = std::vector<int>;  // the boundaries that its messages cross
  std::size_t channel_index(int stage, ChannelPort send) const;
  std::uint32_t& number(bool gradient, const schedule::Slot& slot, int boundary);
  void enumerate(int stage, const schedule::Slot& slot);

  const schedule::PipelineShape& shape_;
  std::vector<Channel> channels_;       // by stage and port of the sender
  std::vector<std::size_t> taken_;      // of each channel, so far
  std::vector<std::uint32_t> numbers_;  // of each message in its channel
};

}  // namespace trainyard::plan
