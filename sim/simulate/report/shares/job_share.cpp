#include "sim/simulate/report/shares/job_share.h"

#include <fmt/format.h>

#include "sim/base/text.h"

namespace trainyard::simulate {

std::string describe(const JobShare& share) {
  std::string text = fmt::format("{} rank{}, {} a step alone", share.ranks,
                                 share.ranks == 1 ? "" : "s", to_text(share.alone));
  if (share.steps > 0)
    text += fmt::format(", {} beside the others ({:+.1f} %)", to_text(share.together),
                        100 * (share.slowdown() - 1));
  if (share.is_tight) text += "; fits only tightly";
  return text + (share.fits ? "" : "; does not fit into its memory");
}

}  // namespace trainyard::simulate
