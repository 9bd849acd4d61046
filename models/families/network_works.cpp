#include "models/families/network_works.h"

#include <utility>

namespace trainyard::models {

std::shared_ptr<const NetworkWork> NetworkWorks::of(const Network& network,
                                                    const Execution& execution) {
  Execution asked = execution;
  if (network.stack() != nullptr) asked.replicas = 1;  // which share tables of recommenders alone
  const Key key = {asked.micro_batch.size, asked.micro_batch.sequence_length, asked.tensor,
                   asked.context, static_cast<std::int64_t>(asked.recompute.form)};
  const auto find = [&]() -> std::shared_ptr<const NetworkWork> {
    for (const Known& known : known_[key])
      if (known.network.is_same(network) && known.execution == asked) return known.work;
    return nullptr;
  };
  {
    const std::scoped_lock lock(mutex_);
    if (auto known = find()) return known;
  }
  auto work = std::make_shared<const NetworkWork>(network_work(network, asked));
  const std::scoped_lock lock(mutex_);
  if (auto known = find()) return known;
  known_[key].push_back({network, std::move(asked), work});
  return work;
}

}  // namespace trainyard::models
