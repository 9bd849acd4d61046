#include "sim/simulate/report/server_updates.h"

#include <cstddef>

namespace trainyard::simulate {

double UpdateReport::mean_staleness() const {
  std::int64_t updates = 0;
  double sum = 0;
  for (std::size_t age = 0; age < staleness.size(); ++age) {
    updates += staleness[age];
    sum += static_cast<double>(age) * static_cast<double>(staleness[age]);
  }
  return updates == 0 ? 0 : sum / static_cast<double>(updates);
}

}  // namespace trainyard::simulate
