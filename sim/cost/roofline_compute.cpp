// A kernel takes as long as the busier of arithmetic and memory at their datasheet peaks.
//
//   T = max(flops / P, bytes / W)
//
//   Domain: a lower bound everywhere; about 33 % (A100) to 40 % (H100) below measured GEMMs.
//   Source: Williams, Waterman, Patterson, Roofline, CACM 52(4), 2009.
#include <variant>

#include "sim/base/check.h"
#include "sim/cost/compute_laws.h"
#include "sim/cost/profile.h"

namespace trainyard::cost {
namespace {

template <class... Fs>
struct Overloaded : Fs... {
  using Fs::operator()...;
};
template <class... Fs>
Overloaded(Fs...) -> Overloaded<Fs...>;

class RooflineCompute final : public ComputeCost {
 public:
  explicit RooflineCompute(const MachinePeaks& peaks) : peaks_(peaks) {
    TRAINYARD_CHECK(peaks.memory_bandwidth.count() > 0, "a GPU without memory bandwidth");
  }

  Estimate time(const models::Kernel& kernel) const override {
    // Whoever says a time has measured it: it is no prediction.
    if (const auto* timed = std::get_if<models::Timed>(&kernel))
      return {timed->time, Basis::measured};
    const Seconds memory = memory_traffic(kernel) / peaks_.memory_bandwidth;
    const Seconds compute =
        std::visit(Overloaded{[](const models::MemoryBound&) { return Seconds{}; },
                              [](const models::Timed& timed) { return timed.time; },
                              [&](const auto& k) { return flops(kernel) / peak(peaks_, k.dtype); }},
                   kernel);
    return {std::max(compute, memory), Basis::analytic};
  }

 private:
  MachinePeaks peaks_;
};

}  // namespace

std::unique_ptr<ComputeCost> roofline_compute_cost(const MachinePeaks& peaks) {
  return std::make_unique<RooflineCompute>(peaks);
}

}  // namespace trainyard::cost
