#include "models/families/network_works.h"

namespace trainyard::models {

std::array<std::int64_t, 5> some_numbers(const Execution& execution) {
  return {execution.micro_batch.size, execution.micro_batch.sequence_length, execution.tensor,
          execution.context, static_cast<std::int64_t>(execution.recompute.form)};
}

std::shared_ptr<const NetworkWork> NetworkWorks::of(const Network& network,
                                                    const Execution& execution) {
  Executed asked{network, execution};
  if (network.stack() != nullptr)
    asked.execution.replicas = 1;  // which share tables of recommenders alone
  return works_.of(some_numbers(execution), asked,
                   [&] { return network_work(network, asked.execution); });
}

}  // namespace trainyard::models
