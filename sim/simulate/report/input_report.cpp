#include "sim/simulate/report/input_report.h"

#include <fmt/format.h>

#include <cmath>

#include "sim/base/text.h"

namespace trainyard::simulate {

// W workers give a batch each (read + prepare) / W, while there are cores for all of them.
std::optional<int> InputReport::workers_needed() const {
  if (taken <= Duration(0) || storage_limits()) return std::nullopt;
  const Seconds one = Seconds(read) + Seconds(prepare_alone);
  const double needed = std::max(1.0, std::ceil(one / Seconds(taken) - 1e-9));
  const double of_server = needed * workers_of_server / workers;
  if (needed > 1e6 || (cores > 0 && of_server > cores)) return std::nullopt;
  return static_cast<int>(needed);
}

std::string describe(const InputReport& input) {
  if (input.storage_limits())
    return fmt::format(
        "; storage gives a rank a batch every {}, its GPU takes one every {}: faster storage or a "
        "larger cached share would help, workers would not",
        to_text(input.read), to_text(input.taken));
  std::string text =
      fmt::format("; {} worker{} give a rank a batch every {}, its GPU takes one every {}",
                  input.workers, input.workers == 1 ? "" : "s", to_text(input.between),
                  to_text(input.taken));
  if (const std::optional<int> needed = input.workers_needed())
    return text + fmt::format(": {} would keep up", *needed);
  if (input.cores_at_best <= input.taken) return text;
  return text + fmt::format(
                    ": {} cores give it one every {} at best, whatever the workers; less work for "
                    "each sample, samples prepared once, or the GPU would help",
                    input.cores, to_text(input.cores_at_best));
}

}  // namespace trainyard::simulate
