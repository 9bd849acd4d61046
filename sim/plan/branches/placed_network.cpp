#include "sim/plan/branches/placed_network.h"

#include <algorithm>

#include "sim/base/check.h"

namespace trainyard::plan {

using models::LayerWork;
using models::NetworkWork;
using models::SharedTensor;

namespace {

// -1: none.
int first_on(std::span<const int> places, std::span<const int> stage_of, int stage) {
  for (const int place : places)
    if (place >= 0 && stage_of[static_cast<std::size_t>(place)] == stage) return place;
  return -1;
}

class Placing {
 public:
  Placing(const NetworkWork& work, std::span<const int> stage_of, int stages)
      : network_(work), stage_of_(stage_of) {
    result_.work = work;
    result_.work.chain.clear();
    result_.work.divisible.clear();
    result_.work.tensors.clear();
    result_.place_of.resize(work.chain.size());
    for (int stage = 0; stage < stages; ++stage)
      add_stage(stage);
    TRAINYARD_CHECK(result_.work.chain.size() == work.chain.size(), "places on no stage");
  }

  PlacedNetwork run() {
    for (LayerWork& kind : result_.work.kinds)
      kind.passed_on = Bytes(0);  // each stage is sent what it reads
    for (const SharedTensor& tensor : network_.tensors)
      for (int stage = 0; stage < static_cast<int>(result_.layers.size()); ++stage)
        cross(tensor, stage);
    std::stable_sort(
        result_.crossings.begin(), result_.crossings.end(),
        [](const Crossing& one, const Crossing& other) { return one.maker < other.maker; });
    return std::move(result_);
  }

 private:
  int stage_of(int place) const { return stage_of_[static_cast<std::size_t>(place)]; }

  void add_stage(int stage) {
    const int first = static_cast<int>(result_.work.chain.size());
    for (std::size_t place = 0; place < network_.chain.size(); ++place) {
      if (stage_of_[place] != stage) continue;
      result_.place_of[place] = static_cast<int>(result_.work.chain.size());
      result_.work.chain.push_back(network_.chain[place]);
      result_.work.divisible.push_back(network_.divisible[place]);
    }
    const int last = static_cast<int>(result_.work.chain.size());
    TRAINYARD_CHECK(last > first, "stage {} has no layer", stage);
    result_.layers.push_back({first, last});
  }

  void cross(const SharedTensor& tensor, int stage) {
    if (tensor.maker < 0 || stage_of(tensor.maker) == stage) return;
    const int reader = first_on(tensor.readers, stage_of_, stage);
    if (reader < 0) return;
    result_.crossings.push_back({.from = stage_of(tensor.maker),
                                 .to = stage,
                                 .maker = new_place(tensor.maker),
                                 .reader = new_place(reader),
                                 .bytes = tensor.bytes,
                                 .gradient = tensor.gradient});
  }
  int new_place(int place) const { return result_.place_of[static_cast<std::size_t>(place)]; }

  const NetworkWork& network_;
  std::span<const int> stage_of_;
  PlacedNetwork result_;
};

}  // namespace

// Only whole layers of tables do.
bool runs_again(const LayerWork& layer) {
  return layer.restored_for_weights;
}

std::vector<int> keepers_of(const NetworkWork& work, const SharedTensor& tensor) {
  if (tensor.weight) return {};
  const auto again = [&](int place) {
    const int kind = work.chain[static_cast<std::size_t>(place)];
    return runs_again(work.kinds[static_cast<std::size_t>(kind)]);
  };
  std::vector<int> keepers;
  for (const int place : tensor.keepers)
    if (place >= 0 && !again(place)) keepers.push_back(place);
  for (const int reader : tensor.readers)
    if (again(reader)) keepers.push_back(reader);
  std::sort(keepers.begin(), keepers.end());
  return keepers;
}

namespace {

// Who keeps what where some places run again, alone or in groups.
class Holding {
 public:
  Holding(RecomputePlaces& placed, std::span<const int> stage_of, std::span<const int> place_of)
      : placed_(placed), stage_of_(stage_of), place_of_(place_of), group_(place_of.size()) {
    for (std::size_t place = 0; place < placed.again.size(); ++place)
      for (int member = placed.again[place].first; member < placed.again[place].last; ++member)
        group_[static_cast<std::size_t>(member)] = static_cast<int>(place);
  }

  void hold(const SharedTensor& tensor) {
    if (tensor.weight) return;
    // The place that reads it first counts it, unless it runs again with places before it.
    const int first = tensor.readers.front();
    const bool counted = runs_again(kind(first)) ? begins_group(first) : !tensor.keepers.empty();
    if (counted) add(first, Bytes(0) - tensor.bytes);
    for (const int place : keepers(tensor))
      add(place, tensor.bytes);
  }

 private:
  int at(int place) const { return place_of_[static_cast<std::size_t>(place)]; }
  LayerWork& kind(int place) {
    const int own = placed_.work.chain[static_cast<std::size_t>(at(place))];
    return placed_.work.kinds[static_cast<std::size_t>(own)];
  }
  int group(int place) const { return group_[static_cast<std::size_t>(at(place))]; }
  bool begins_group(int place) const {
    return placed_.again[static_cast<std::size_t>(group(place))].first == at(place);
  }

  bool keeps(const SharedTensor& tensor, int place) {
    const bool reads =
        std::find(tensor.readers.begin(), tensor.readers.end(), place) != tensor.readers.end();
    if (runs_again(kind(place)))
      return reads && (tensor.maker < 0 || group(tensor.maker) != group(place));
    return std::find(tensor.keepers.begin(), tensor.keepers.end(), place) != tensor.keepers.end();
  }

  // Of each stage the first place that does.
  std::vector<int> keepers(const SharedTensor& tensor) {
    std::vector<int> places = tensor.readers;
    if (tensor.maker >= 0) places.insert(places.begin(), tensor.maker);
    std::vector<int> found, stages;
    for (const int place : places) {
      const int stage = stage_of_[static_cast<std::size_t>(place)];
      if (std::find(stages.begin(), stages.end(), stage) != stages.end()) continue;
      if (!keeps(tensor, place)) continue;
      found.push_back(place);
      stages.push_back(stage);
    }
    return found;
  }

  void add(int place, Bytes bytes) { kind(place).kept.add(models::Module::layer_input, bytes); }

  RecomputePlaces& placed_;
  std::span<const int> stage_of_, place_of_;
  std::vector<int> group_;  // by placed place: that which its own recomputation comes before
};

}  // namespace

void hold_shared(RecomputePlaces& placed, const NetworkWork& network, std::span<const int> stage_of,
                 std::span<const int> place_of) {
  Holding holding(placed, stage_of, place_of);
  for (const SharedTensor& tensor : network.tensors)
    holding.hold(tensor);
}

PlacedNetwork place_network(const NetworkWork& work, std::span<const int> stage_of, int stages) {
  return Placing(work, stage_of, stages).run();
}

}  // namespace trainyard::plan
