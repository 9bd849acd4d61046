#include "sim/simulate/stage_gpus.h"

#include <algorithm>

#include "sim/recipe/rank_map.h"

namespace trainyard::simulate {

namespace {

std::vector<double> times_of_layers(const Job& job, const models::NetworkWork& work,
                                    const cost::ComputeCost& compute) {
  std::vector<double> times;
  for (const models::LayerWork& kind : work.kinds) {
    Seconds all{};
    std::vector<const std::vector<models::WorkItem>*> passes = {&kind.forward};
    if (!job.recipe.forward_only) passes.insert(passes.end(), {&kind.recompute, &kind.backward});
    for (const std::vector<models::WorkItem>* items : passes)
      for (const models::WorkItem& item : *items)
        if (const auto* named = std::get_if<models::NamedKernel>(&item))
          all += compute.time(named->kernel).time;
    times.push_back(all.count());
  }
  return times;
}

}  // namespace

std::vector<int> kinds_of_ranks(const Job& job) {
  std::vector<int> kinds;
  for (int server = 0; server < job.cluster.servers; ++server)
    for (int gpu = 0; gpu < job.cluster.used_on(server); ++gpu)
      kinds.push_back(gpu_kind_of(job.cluster, server, gpu));
  return kinds;
}

std::vector<plan::StageGpus> stage_gpus(const Job& job, const models::NetworkWork& work,
                                        std::span<const lower::GpuLaws> laws) {
  const std::vector<topologies::GpuKind> kinds = gpu_kinds(job.cluster);
  std::vector<plan::StageGpus> of_kind;
  const bool by_time = job.plan.pipeline.layer_split == recipe::LayerSplit::by_time;
  for (std::size_t kind = 0; kind < kinds.size(); ++kind) {
    std::vector<double> times;
    if (by_time) times = times_of_layers(job, work, *laws[kind].compute);
    of_kind.push_back({std::move(times), kinds[kind].gpu->memory});
  }
  if (kinds.size() == 1) return of_kind;
  const recipe::RankGrids grids = recipe::rank_grids(job.plan);
  std::vector<plan::StageGpus> stages(static_cast<std::size_t>(job.plan.degrees.pipeline));
  const std::vector<int> of_rank = kinds_of_ranks(job);
  for (std::size_t rank = 0; rank < of_rank.size(); ++rank) {
    const int stage = grids.dense.coordinate(static_cast<Rank>(rank), recipe::Axis::pipeline);
    plan::StageGpus& gpus = stages[static_cast<std::size_t>(stage)];
    const plan::StageGpus& own = of_kind[static_cast<std::size_t>(of_rank[rank])];
    if (gpus.memory == Bytes(0)) gpus = own;
    gpus.memory = std::min(gpus.memory, own.memory);
    for (std::size_t layer = 0; layer < own.times.size(); ++layer)
      gpus.times[layer] = std::max(gpus.times[layer], own.times[layer]);
  }
  return stages;
}

}  // namespace trainyard::simulate
