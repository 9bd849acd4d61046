// Works of networks, each made once for all jobs that execute one alike.
#pragma once

#include <array>
#include <cstdint>
#include <memory>

#include "models/families/network.h"
#include "models/layer/execution.h"
#include "sim/base/threads/made_once.h"

namespace trainyard::models {

// Some numbers of an execution, by which most of them differ.
std::array<std::int64_t, 5> some_numbers(const Execution& execution);

// May be used from several threads at once.
class NetworkWorks {
 public:
  // As network_work() makes it. Requires: the same.
  std::shared_ptr<const NetworkWork> of(const Network& network, const Execution& execution);

 private:
  struct Executed {
    Network network;  // kept, so that no other can stand in its place
    Execution execution;
    friend bool operator==(const Executed& a, const Executed& b) {
      return a.network.is_same(b.network) && a.execution == b.execution;
    }
  };
  MadeOnce<Executed, NetworkWork> works_;
};

}  // namespace trainyard::models
