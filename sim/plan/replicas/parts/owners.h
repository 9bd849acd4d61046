// Names and streams that the parts of a strategy share.
#pragma once

#include "sim/plan/program_builder.h"

namespace trainyard::plan {

inline constexpr StreamSet kGatherStreams =
    static_cast<StreamSet>(stream_bit(StreamKind::gather) | stream_bit(StreamKind::gather_second));

// Owners in the memory ledger.
inline constexpr const char* kGathered = "gathered parameters";
inline constexpr const char* kUnreduced = "unreduced gradients";
inline constexpr const char* kAccumulated = "accumulated gradients";
inline constexpr const char* kReduceBuffer = "gradients to reduce";
inline constexpr const char* kGradients = "gradients";
inline constexpr const char* kLeaving = "gradients on their way to the host";

}  // namespace trainyard::plan
