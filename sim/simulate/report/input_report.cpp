#include "sim/simulate/report/input_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "sim/base/text.h"

namespace trainyard::simulate {

// W workers give a batch each (read + prepare) / W, while there are cores for all of them; with
// more of them reading hides behind what the cores prepare.
std::optional<int> InputReport::workers_needed() const {
  if (taken <= Duration(0) || read > taken) return std::nullopt;
  const auto fewest = [](Seconds work, Seconds each) {
    return std::max(1.0, std::ceil(work / each - 1e-9));
  };
  double needed = fewest(Seconds(read) + Seconds(prepare_alone), Seconds(taken));
  if (cores > 0 && needed * workers_of_server / workers > cores) {
    if (cores_at_best >= taken) return std::nullopt;
    needed = std::max(needed, fewest(Seconds(read), Seconds(taken - cores_at_best)));
  }
  if (needed > most_workers) return std::nullopt;
  return static_cast<int>(needed);
}

std::string describe(const InputReport& input) {
  if (input.storage_limits())
    return fmt::format(
        "; storage gives a rank a batch every {}, its GPU takes one every {}: faster storage or a "
        "larger cached share would help, workers would not",
        to_text(input.read), to_text(input.taken));
  const std::string text = fmt::format(
      "; {} a rank a batch every {}, its GPU takes one every {}",
      input.workers == 1 ? "1 worker gives" : fmt::format("{} workers give", input.workers),
      to_text(input.between), to_text(input.taken));
  if (const std::optional<int> needed = input.workers_needed())
    return text + fmt::format(": {} would keep up", *needed);
  if (input.read > input.taken)
    return text + fmt::format(
                      ": more would help until storage, which gives one every {}, is what "
                      "is slow",
                      to_text(input.read));
  if (input.cores_at_best <= input.taken) return text;
  return text + fmt::format(
                    ": {} cores give it one every {} at best, whatever the workers; less work for "
                    "each sample, samples prepared once, or the GPU would help",
                    input.cores, to_text(input.cores_at_best));
}

}  // namespace trainyard::simulate
