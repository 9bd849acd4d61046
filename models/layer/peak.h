// The one place that knows which peak belongs to which type of number.
#pragma once

#include <array>
#include <optional>

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

// The type whose unit runs a kernel of `dtype`: its own, or the next wider one that the chip has
// (fp8 on 16 bits, those on tf32 or fp32). Nothing where it has none of them.
template <class Peaks>
constexpr std::optional<Dtype> find_unit(const Peaks& peaks, Dtype dtype) {
  // Wider and wider from the asked type on; fp8 tries both 16-bit types.
  constexpr std::array kWider = {Dtype::fp8, Dtype::fp16, Dtype::bf16, Dtype::tf32, Dtype::fp32};
  if (peak_of(peaks, dtype).count() > 0) return dtype;
  bool is_wider = false;
  for (const Dtype wider : kWider) {
    is_wider = is_wider || wider == dtype;
    const bool other_half = dtype == Dtype::fp16 && wider == Dtype::bf16;
    if (is_wider && !other_half && peak_of(peaks, wider).count() > 0) return wider;
  }
  return std::nullopt;
}

}  // namespace trainyard::models
