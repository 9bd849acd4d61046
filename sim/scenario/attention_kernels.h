// Which attention kernel runs on which GPU. Source: docs/cost-attention.md.
#pragma once

#include <string>

#include "models/layer/kernel.h"
#include "topologies/cluster.h"

namespace trainyard::scenario {

// Why a kernel of attention does not run on the GPU, and what does; empty: it does, or the GPU's
// generation is not known.
struct AttentionRefusal {
  std::string why, cure;
};
AttentionRefusal refuse_attention(models::AttentionKernel kernel, const topologies::GpuSpec& gpu);

}  // namespace trainyard::scenario
