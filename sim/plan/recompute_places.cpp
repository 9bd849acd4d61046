#include "sim/plan/recompute_places.h"

#include <algorithm>
#include <map>

#include "sim/base/check.h"

namespace trainyard::plan {
namespace {

using Method = models::RecomputeLayers::Method;

class Dealer {
 public:
  explicit Dealer(RecomputePlaces& placed) : placed_(placed) {}

  void make_plain(int place) {
    int& kind = placed_.work.chain[static_cast<std::size_t>(place)];
    kind = placed_.work.plain[static_cast<std::size_t>(kind)];
  }

  // Places first .. last run again together: only the first one's input is kept.
  void join(int first, int last) {
    for (int place = first; place <= last; ++place) {
      placed_.again[static_cast<std::size_t>(place)] =
          place == last ? ChainRange{first, last + 1} : ChainRange{place, place};
      if (place > first) give_up_input(place);
    }
  }

 private:
  void give_up_input(int place) {
    models::NetworkWork& work = placed_.work;
    int& kind = work.chain[static_cast<std::size_t>(place)];
    const auto [inner, is_new] = inner_.try_emplace(kind, static_cast<int>(work.kinds.size()));
    if (is_new) {
      models::LayerWork layer = work.kinds[static_cast<std::size_t>(kind)];
      layer.restored = layer.restored + layer.kept.total();
      layer.kept = {};
      work.kinds.push_back(std::move(layer));
      work.added_like.push_back(kind);
    }
    kind = inner->second;
  }

  RecomputePlaces& placed_;
  std::map<int, int> inner_;  // kinds without their input, by kind
};

}  // namespace

namespace {

// Each place for itself.
RecomputePlaces place_alone(const models::NetworkWork& work) {
  RecomputePlaces placed{work, {}};
  for (int place = 0; place < static_cast<int>(work.chain.size()); ++place)
    placed.again.push_back({place, place + 1});
  return placed;
}

}  // namespace

RecomputePlaces place_recompute(const models::NetworkWork& work,
                                const std::vector<ChainRange>& ranges,
                                const models::RecomputeLayers& layers) {
  RecomputePlaces placed = place_alone(work);
  if (layers.method == Method::all) return placed;
  TRAINYARD_CHECK(!work.plain.empty(), "layers without plain kinds");
  Dealer dealer(placed);
  for (const ChainRange& range : ranges) {
    std::vector<int> places;
    for (int place = range.first; place < range.last; ++place)
      if (work.divisible[static_cast<std::size_t>(place)]) places.push_back(place);
    const int count = static_cast<int>(places.size());
    for (int i = 0; i < count; ++i) {
      const int place = places[static_cast<std::size_t>(i)];
      const bool skipped = (layers.method == Method::block && i >= layers.layers) ||
                           (layers.method == Method::every && (i + 1) % layers.layers != 0);
      if (skipped) dealer.make_plain(place);
      if (layers.method == Method::uniform && i % layers.layers == 0)
        dealer.join(place,
                    places[static_cast<std::size_t>(std::min(i + layers.layers, count) - 1)]);
    }
  }
  return placed;
}

RecomputePlaces without_recompute(const models::NetworkWork& work) {
  RecomputePlaces placed = place_alone(work);
  Dealer dealer(placed);
  for (int place = 0; place < static_cast<int>(work.chain.size()); ++place)
    dealer.make_plain(place);
  return placed;
}

}  // namespace trainyard::plan
