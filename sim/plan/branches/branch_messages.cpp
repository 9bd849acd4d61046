#include "sim/plan/branches/branch_messages.h"

#include <algorithm>

namespace trainyard::plan {

namespace {

Lane lane_of(bool gradients, int from, int to) {
  if (gradients) return from > to ? Lane::gradients_up : Lane::gradients_down;
  return from < to ? Lane::activations_down : Lane::activations_up;
}

}  // namespace

void BranchMessages::begin(bool backward) {
  backward_ = backward;
  messages_.assign(crossings_.begin(), crossings_.end());
  if (backward) {
    messages_.erase(std::remove_if(messages_.begin(), messages_.end(),
                                   [](const Crossing& crossing) { return !crossing.gradient; }),
                    messages_.end());
    std::stable_sort(
        messages_.begin(), messages_.end(),
        [](const Crossing& one, const Crossing& other) { return one.reader > other.reader; });
  }
  arriving_.clear();
  taken_.clear();
  pairs_.clear();
  for (const Crossing& message : messages_)
    pairs_.insert(pair(message));
  for (const Crossing& message : messages_)
    if (pair(message).second == stage_) arriving_[pair(message).first].push_back(message);
}

void BranchMessages::before(int place) {
  if (!overlaps_ && !crossings_.empty()) builder_.compute_waits_for(kSends | kSendsUp);
  for (const auto& [from, queue] : arriving_) {
    std::size_t needed = 0;
    for (std::size_t i = 0; i < queue.size(); ++i)
      if (receiver(queue[i]) == place) needed = i + 1;
    for (std::size_t& taken = taken_[from]; taken < needed; ++taken)
      builder_.receive(port(pair(queue[taken]), false), queue[taken].bytes,
                       backward_ ? "receive gradients" : "receive activations",
                       backward_ ? PairPart::backward : PairPart::forward);
  }
}

void BranchMessages::after(int place) {
  for (const Crossing& message : messages_) {
    if (pair(message).first != stage_ || sender(message) != place) continue;
    builder_.send(port(pair(message), true), message.bytes,
                  backward_ ? "send gradients" : "send activations",
                  backward_ ? PairPart::backward : PairPart::forward);
  }
}

ConnectionId BranchMessages::port(const Pair& pair, bool sends) const {
  const Lane lane = lane_of(backward_, pair.first, pair.second);
  std::vector<Pair> on_lane;
  for (const Pair& other : pairs_)
    if (lane_of(backward_, other.first, other.second) == lane) on_lane.push_back(other);
  std::uint32_t nth = 0;
  for (const Pair& other : on_lane)
    if (sends ? other.first == pair.first && other.second < pair.second
              : other.second == pair.second && other.first < pair.first)
      ++nth;
  return to_peer(builder_.connections().lane(lane, on_lane), nth);
}

}  // namespace trainyard::plan
