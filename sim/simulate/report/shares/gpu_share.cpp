#include "sim/simulate/report/shares/gpu_share.h"

#include <fmt/format.h>

#include "sim/simulate/report/findings.h"

namespace trainyard::simulate {

std::string describe(const GpuShare& share) {
  const std::string batch = share.least_batch == share.most_batch
                                ? fmt::format("{}", share.most_batch)
                                : fmt::format("{} to {}", share.least_batch, share.most_batch);
  return fmt::format("{} rank{}, micro-batch {}, computes {}, holds {} of {}{}", share.ranks,
                     share.ranks == 1 ? "" : "s", batch, percent_text(share.busy),
                     to_text(share.memory), to_text(share.capacity),
                     share.memory > share.capacity ? ": does not fit" : "");
}

}  // namespace trainyard::simulate
