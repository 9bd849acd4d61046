#include "sim/cost/compute_laws.h"
#include "sim/cost/profile.h"

namespace trainyard::cost {
namespace {

void weaken(Provenance& from) {
  from.basis = weaker(from.basis, Basis::extrapolated);
}

template <class Laws>
void weaken_all(Laws& laws) {
  for (auto& law : laws)
    weaken(law.from);
}

}  // namespace

Profile for_other_gpu(Profile profile) {
  weaken_all(profile.gemm);
  weaken_all(profile.attention);
  weaken_all(profile.convolution);
  weaken_all(profile.memory);
  weaken_all(profile.collectives);
  weaken_all(profile.point_to_point);
  weaken_all(profile.host_copies);
  for (Provenance* from :
       {&profile.batched_gemm_from, &profile.channels_from, &profile.launch_from})
    weaken(*from);
  if (profile.collective_start) weaken(profile.collective_start->from);
  if (profile.overlap) weaken(profile.overlap->from);
  if (profile.grouped_gemm) weaken(profile.grouped_gemm->from);
  if (profile.attention_dropout) weaken(profile.attention_dropout->from);
  for (GemmLaw& law : profile.gemm) {
    law.residuals.clear();
    if (law.unaligned) weaken(law.unaligned->from);
  }
  for (ConvolutionLaw& law : profile.convolution)
    law.residuals.clear();
  return profile;
}

}  // namespace trainyard::cost
