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
    new_place_.resize(work.chain.size());
    for (int stage = 0; stage < stages; ++stage)
      add_stage(stage);
    TRAINYARD_CHECK(result_.work.chain.size() == work.chain.size(), "places on no stage");
  }

  PlacedNetwork run() {
    for (LayerWork& kind : result_.work.kinds)
      kind.passed_on = Bytes(0);  // each stage is sent what it reads
    for (const SharedTensor& tensor : network_.tensors) {
      for (int stage = 0; stage < static_cast<int>(result_.layers.size()); ++stage) {
        hold_copy(tensor, stage);
        cross(tensor, stage);
      }
    }
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
      new_place_[place] = static_cast<int>(result_.work.chain.size());
      result_.work.chain.push_back(network_.chain[place]);
      result_.work.divisible.push_back(network_.divisible[place]);
    }
    const int last = static_cast<int>(result_.work.chain.size());
    TRAINYARD_CHECK(last > first, "stage {} has no layer", stage);
    result_.layers.push_back({first, last});
  }

  void hold_copy(const SharedTensor& tensor, int stage) {
    const auto hold = [&](int kind) {
      result_.work.kinds[static_cast<std::size_t>(kind)].kept.add(models::Module::layer_input,
                                                                  tensor.bytes);
    };
    const auto kind_at = [&](int place) { return network_.chain[static_cast<std::size_t>(place)]; };
    if (const int keeper = keeper_of_copy(tensor, keepers_of(network_, tensor), stage_of_, stage);
        keeper >= 0)
      hold(kind_at(keeper));
    if (network_.plain.empty()) return;
    // And where nothing runs again.
    const int keeper = keeper_of_copy(tensor, tensor.keepers, stage_of_, stage);
    if (keeper < 0) return;
    const int plain = network_.plain[static_cast<std::size_t>(kind_at(keeper))];
    if (plain != kind_at(keeper)) hold(plain);
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
  int new_place(int place) const { return new_place_[static_cast<std::size_t>(place)]; }

  const NetworkWork& network_;
  std::span<const int> stage_of_;
  PlacedNetwork result_;
  std::vector<int> new_place_;
};

}  // namespace

std::vector<int> keepers_of(const NetworkWork& work, const SharedTensor& tensor) {
  std::vector<int> keepers = tensor.keepers;
  for (const int reader : tensor.readers) {
    const int kind = work.chain[static_cast<std::size_t>(reader)];
    if (!work.kinds[static_cast<std::size_t>(kind)].recompute.empty()) keepers.push_back(reader);
  }
  std::sort(keepers.begin(), keepers.end());
  return keepers;
}

// The place that reads it first counts a tensor that is kept.
int keeper_of_copy(const SharedTensor& tensor, std::span<const int> keepers,
                   std::span<const int> stage_of, int stage) {
  if (stage_of[static_cast<std::size_t>(tensor.readers.front())] == stage) return -1;
  return first_on(keepers, stage_of, stage);
}

PlacedNetwork place_network(const NetworkWork& work, std::span<const int> stage_of, int stages) {
  return Placing(work, stage_of, stages).run();
}

}  // namespace trainyard::plan
