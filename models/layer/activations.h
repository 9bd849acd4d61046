// What a layer keeps from its forward to its backward pass, by the part of it that needs it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string_view>
#include <vector>

#include "sim/base/units.h"

namespace trainyard::models {

// A part of a layer that holds activations, as reports name it.
enum class Module : std::uint8_t {
  layer_input,       // hidden states between two layers: input of the first norm
  norms,             // inputs of all other norms
  attention,         // inputs of its projections; queries, keys, values
  attention_scores,  // softmax, its mask and dropped-out copy; fused: statistics of the softmax
  feed_forward,
  experts,  // of a mixture: router, routed rows, shared experts
  mamba,    // inputs of its projections and of its scan
  dropout_masks,
  embedding,
  head,      // input of the output matrix, of a classifier; the logits are a category of their own
  features,  // of a convolutional network; of a recommender's interaction
};
inline constexpr std::size_t kModules = 11;

std::string_view name(Module module);  // "feed-forward", as reports spell it

struct Kept {
  Module module = Module::features;
  Bytes bytes;
};

class Activations {
 public:
  void add(Module module, Bytes bytes) {
    if (bytes == Bytes(0)) return;
    const auto same = std::find_if(kept_.begin(), kept_.end(),
                                   [&](const Kept& other) { return other.module == module; });
    if (same == kept_.end())
      kept_.push_back({module, bytes});
    else
      same->bytes = same->bytes + bytes;
  }

  // Each module once, in the order of the layer.
  const std::vector<Kept>& by_module() const { return kept_; }
  Bytes of(Module module) const {
    for (const Kept& kept : kept_)
      if (kept.module == module) return kept.bytes;
    return Bytes(0);
  }
  Bytes total() const {
    Bytes sum;
    for (const Kept& kept : kept_)
      sum = sum + kept.bytes;
    return sum;
  }

 private:
  std::vector<Kept> kept_;
};

}  // namespace trainyard::models
