#include "sim/simulate/report/step_report.h"

#include "sim/simulate/report/timeline.h"

namespace trainyard::simulate {

std::string_view name(TimeCategory category) {
  switch (category) {
    case TimeCategory::compute: return "compute";
    case TimeCategory::exposed_tp: return "exposed_tp";
    case TimeCategory::exposed_cp: return "exposed_cp";
    case TimeCategory::exposed_ep: return "exposed_ep";
    case TimeCategory::exposed_dp: return "exposed_dp";
    case TimeCategory::exposed_pp: return "exposed_pp";
    case TimeCategory::exposed_host_copy: return "exposed_host_copy";
    case TimeCategory::bubble: return "bubble";
    case TimeCategory::optimizer: return "optimizer";
    case TimeCategory::host_optimizer: return "host_optimizer";
    case TimeCategory::host: return "host";
    case TimeCategory::input: return "input";
  }
  return "?";
}

std::string_view name(SliceKind kind) {
  switch (kind) {
    case SliceKind::forward: return "forward";
    case SliceKind::backward: return "backward";
    case SliceKind::recompute: return "recompute";
    case SliceKind::optimizer: return "optimizer";
    case SliceKind::tensor: return "tensor";
    case SliceKind::context: return "context";
    case SliceKind::expert: return "expert";
    case SliceKind::data: return "data";
    case SliceKind::pipeline: return "pipeline";
    case SliceKind::host_copy: return "host_copy";
    case SliceKind::input: return "input";
    case SliceKind::other: return "other";
  }
  return "?";
}

}  // namespace trainyard::simulate
