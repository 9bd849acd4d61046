// The one place that knows which peak belongs to which type of number.
#pragma once

#include <array>

#include "models/layer/kernel.h"

namespace trainyard::models {

inline constexpr std::array kDtypes = {Dtype::fp32, Dtype::tf32, Dtype::fp16, Dtype::bf16,
                                       Dtype::fp8};

// What a GPU, or a cost model's view of one, reaches at most with numbers of this type.
template <class Peaks>
constexpr auto& peak_of(Peaks& peaks, Dtype dtype) {
  switch (dtype) {
    case Dtype::fp32: return peaks.fp32;
    case Dtype::tf32: return peaks.tf32;
    case Dtype::bf16: return peaks.bf16;
    case Dtype::fp16: return peaks.fp16;
    case Dtype::fp8: break;
  }
  return peaks.fp8;
}

}  // namespace trainyard::models
