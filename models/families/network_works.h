// Works of networks, each made once for all jobs that execute one alike.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "models/families/network.h"
#include "models/layer/execution.h"

namespace trainyard::models {

// May be used from several threads at once.
class NetworkWorks {
 public:
  // As network_work() makes it. Requires: the same.
  std::shared_ptr<const NetworkWork> of(const Network& network, const Execution& execution);

 private:
  struct Known {
    Network network;  // kept, so that no other can stand in its place
    Execution execution;
    std::shared_ptr<const NetworkWork> work;
  };
  // Some numbers of an execution, by which most of them differ.
  using Key = std::array<std::int64_t, 5>;

  std::mutex mutex_;
  std::map<Key, std::vector<Known>> known_;
};

}  // namespace trainyard::models
