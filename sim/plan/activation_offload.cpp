#include "sim/plan/activation_offload.h"

#include <algorithm>

#include "sim/plan/stage/place_labels.h"

namespace trainyard::plan {

Bytes ActivationOffload::bytes(int place) const {
  const int kind = work_.chain[static_cast<std::size_t>(place)];
  return work_.kinds[static_cast<std::size_t>(kind)].activations();
}

// The first layers of a chunk wait longest for their backward pass. Embedding and logits stay: they
// keep little, or stand next to their own backward.
std::vector<int> ActivationOffload::places(ChainRange range) const {
  std::vector<int> layers;
  for (int place = range.first; place < range.last; ++place)
    if (work_.divisible[static_cast<std::size_t>(place)]) layers.push_back(place);
  const double wanted = options_.fraction * static_cast<double>(layers.size());
  layers.resize(std::min(layers.size(), static_cast<std::size_t>(wanted + 0.5)));
  return layers;
}

bool ActivationOffload::leaves(int place) const {
  return std::binary_search(places_.begin(), places_.end(), place);
}

Bytes ActivationOffload::moved(ChainRange range) const {
  Bytes sum;
  if (!used()) return sum;
  for (const int place : places(range))
    sum = sum + bytes(place);
  return sum;
}

void ActivationOffload::begin_forward(ChainRange range, const std::optional<ChainRange>& next) {
  if (!used()) return;
  forward_ = true;
  places_ = places(range);
  last_place_ = range.last - 1;
  next_ = next;
  copied_ = false;
  if (range.first == range.last) fetch_next();
}

void ActivationOffload::begin_backward(ChainRange range, bool fetched,
                                       const std::optional<ChainRange>& next) {
  if (!used()) return;
  forward_ = false;
  places_ = places(range);
  last_place_ = range.first;
  next_ = next;
  copied_ = false;
  if (range.first == range.last) fetch_next();
  if (fetched || places_.empty() || options_.prefetch_layers == 0) return;
  fetch(places_.back(), stream_bit(StreamKind::compute) | stream_bit(StreamKind::to_host));
}

void ActivationOffload::before(int place) {
  if (!used()) return;
  if (!forward_ && leaves(place)) {
    if (options_.prefetch_layers == 0)
      fetch(place, stream_bit(StreamKind::compute) | stream_bit(StreamKind::to_host));
    builder_.compute_waits_for(stream_bit(StreamKind::to_device));
    // The wait is for this layer's fetch alone, so it comes before the next one is enqueued.
    builder_.settle_waits("wait for activations of " + place_sign(place));
    if (options_.prefetch_layers > 0 && place != places_.front()) {
      const auto own = std::lower_bound(places_.begin(), places_.end(), place);
      fetch(*(own - 1), stream_bit(StreamKind::compute));
    }
  }
  if (place == last_place_) fetch_next();
}

void ActivationOffload::after(int place) {
  if (used() && forward_ && leaves(place)) copy_out(place);
}

void ActivationOffload::copy_out(int place) {
  const std::string name = place_sign(place);
  const auto room = [&] {
    builder_.compute_waits_for(stream_bit(StreamKind::to_host));
    builder_.settle_waits("wait for room for activations");
  };
  if (options_.prefetch_layers > 0) room();
  builder_.host_transfer(HostTransfer::to_host, bytes(place),
                         stream_bit(StreamKind::compute) | kLayerStreams,
                         "copy activations of " + name + " to the host");
  builder_.last_gives_back(MemoryKind::activations, bytes(place), name);
  if (options_.prefetch_layers == 0) room();
  copied_ = true;
}

void ActivationOffload::fetch(int place, StreamSet waits) {
  const std::string name = place_sign(place);
  builder_.host_transfer(HostTransfer::to_device, bytes(place), waits,
                         "fetch activations of " + name);
  builder_.last_takes(MemoryKind::activations, bytes(place), name);
}

// Once this pass has copied something out, its waits for room show that the copies of earlier
// passes have ended.
void ActivationOffload::fetch_next() {
  if (!next_) return;
  const std::vector<int> next = places(*next_);
  if (next.empty()) return;
  StreamSet waits = stream_bit(StreamKind::compute);
  if (!copied_) waits |= stream_bit(StreamKind::to_host);
  fetch(next.back(), waits);
}

}  // namespace trainyard::plan
