// A layer's items one after another: kernels, and the collectives that they wait for.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <variant>
#include <vector>

#include "models/layer/layer_work.h"

namespace trainyard::simulate {

// Seconds after the first item begins.
struct LayerWalk {
  double end = 0;          // of all that is waited for
  double last_kernel = 0;  // its end
};

// `kernel`: seconds of a NamedKernel; `collective`: of a GroupCollective that nothing else meets.
template <class KernelTime, class CollectiveTime>
LayerWalk walk_layer(const std::vector<models::WorkItem>& items, const KernelTime& kernel,
                     const CollectiveTime& collective) {
  LayerWalk walk;
  std::array<double, models::kLayerGroups> arrives{};
  for (const models::WorkItem& item : items) {
    if (const auto* named = std::get_if<models::NamedKernel>(&item)) {
      walk.last_kernel = walk.end += kernel(*named);
    } else if (const auto* sent = std::get_if<models::GroupCollective>(&item)) {
      double& arrival = arrives[static_cast<std::size_t>(sent->group)];
      arrival = std::max(arrival, walk.end) + collective(*sent);
    } else {
      const auto group = static_cast<std::size_t>(std::get<models::GroupWait>(item).group);
      walk.end = std::max(walk.end, arrives[group]);
    }
  }
  return walk;
}

}  // namespace trainyard::simulate
