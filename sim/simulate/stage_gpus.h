// What the GPUs of each stage and of each replica are to the work that is dealt to them.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "models/families/network.h"
#include "sim/lower/lower.h"
#include "sim/plan/split/stage_split.h"
#include "sim/simulate/step.h"

namespace trainyard::simulate {

// By rank: which kind of GPUs (topologies::gpu_kinds) it has.
std::vector<int> kinds_of_ranks(const Job& job);

// By stage, one for all where they are alike: times of a micro-batch in each kind of layer if the
// job splits layers by time or places branches, all kernels, forward and, in training, backward and
// those that run again. Of branches also their messages: as between the first ranks of the first
// two stages, and of gradients that leave in cycles the times of each kernel. `laws`: by kind of
// GPUs.
std::vector<plan::StageGpus> stage_gpus(const Job& job, const models::NetworkWork& work,
                                        std::span<const lower::GpuLaws> laws,
                                        const cost::MessageCost& messages);

// The micro-batch of each replica, and the work of each size; empty where all are equal. By speed:
// in proportion to what its slowest GPUs compute of an equal share, and from there sample by sample
// as long as that shortens the longest; a replica takes at least one.
std::optional<plan::Batches> split_batch(const Job& job, std::span<const lower::GpuLaws> laws);

// The work of a micro-batch of a size.
std::shared_ptr<const models::NetworkWork> work_of(const Job& job, std::int64_t micro_batch);

}  // namespace trainyard::simulate
