// What a GPU can run: types of numbers by its units, attention kernels by its generation.
#pragma once

#include <string>

#include "models/layer/kernel.h"
#include "topologies/cluster.h"

namespace trainyard::scenario {

// Why a GPU does not run it, and what it does run; both empty: it does.
struct NotOnGpu {
  std::string why, cure;
};

// Of products in the type.
NotOnGpu refuse_dtype(models::Dtype dtype, const topologies::GpuSpec& gpu);

// Nothing where the GPU's generation is not known. Source: docs/cost-attention.md.
NotOnGpu refuse_attention(models::AttentionKernel kernel, const topologies::GpuSpec& gpu);

}  // namespace trainyard::scenario
