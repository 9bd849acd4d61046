#include "sim/engine/periods/state_walk.h"

namespace trainyard::engine {

void StateImage::clear(Duration at, std::size_t actors) {
  now = at;
  same.clear();
  moments.clear();
  sums.clear();
  levels.clear();
  streams.clear();
  calls.clear();
  marks.clear();
  oldest.assign(actors, at);
  counts_from = Duration::zero();
}

void StateImage::find_hash() {
  hash = 0;
  for (const std::int64_t value : same)
    hash = mixed(hash, static_cast<std::uint64_t>(value));
  for (const Stream& stream : streams)
    hash = mixed(hash, std::uint64_t{stream.at} << 8 | stream.state);
}

std::int64_t StateWalk::most(std::int64_t level, std::int64_t most, std::int64_t limit) {
  if (reads()) {
    image_->levels.push_back({level, most, limit});
    return 0;
  }
  const std::size_t i = levels_++;
  const std::int64_t grown = period_->after->levels[i].now - period_->before->levels[i].now;
  return grown > 0 ? checked_product(period_->times, grown) : 0;
}

void StateWalk::stream(std::uint32_t& call, std::uint32_t at, std::uint32_t& ended,
                       std::uint8_t state) {
  if (reads()) {
    image_->streams.push_back({call, at, ended, state});
    return;
  }
  const std::size_t i = streams_++;
  const StateImage::Stream& before = period_->before->streams[i];
  const StateImage::Stream& after = period_->after->streams[i];
  const auto times = static_cast<std::uint32_t>(period_->times);
  call += times * (after.call - before.call);
  ended += times * (after.ended - before.ended);
}

std::uint32_t StateWalk::more_ended(std::uint32_t stream) const {
  if (reads()) return 0;
  return static_cast<std::uint32_t>(period_->times) *
         (period_->after->streams[stream].ended - period_->before->streams[stream].ended);
}

}  // namespace trainyard::engine
