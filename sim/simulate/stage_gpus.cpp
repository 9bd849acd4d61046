#include "sim/simulate/stage_gpus.h"

#include <algorithm>
#include <map>
#include <set>

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
  const std::vector<int> of_rank = kinds_of_ranks(job);
  const std::set<int> in_use(of_rank.begin(), of_rank.end());
  for (std::size_t kind = 0; kind < kinds.size(); ++kind) {
    std::vector<double> times;
    if (by_time && in_use.count(static_cast<int>(kind)) > 0)
      times = times_of_layers(job, work, *laws[kind].compute);
    of_kind.push_back({std::move(times), kinds[kind].gpu->memory});
  }
  if (kinds.size() == 1) return of_kind;
  const recipe::RankGrids grids = recipe::rank_grids(job.plan);
  std::vector<plan::StageGpus> stages(static_cast<std::size_t>(job.plan.degrees.pipeline));
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

models::NetworkWork work_of(const Job& job, std::int64_t micro_batch) {
  recipe::TrainingRecipe recipe = job.recipe;
  recipe.micro_batch.size = micro_batch;
  return network_work(job.network, plan::execution(recipe, job.plan));
}

namespace {

// Deals the samples of a round, one micro-batch of each replica, by the speed of their GPUs.
class BatchDealer {
 public:
  BatchDealer(const Job& job, std::span<const lower::GpuLaws> laws) : job_(job), laws_(laws) {
    const recipe::RankGrids grids = recipe::rank_grids(job.plan);
    kinds_.resize(static_cast<std::size_t>(job.plan.degrees.data));
    const std::vector<int> of_rank = kinds_of_ranks(job);
    for (std::size_t rank = 0; rank < of_rank.size(); ++rank) {
      const int replica = grids.dense.coordinate(static_cast<Rank>(rank), recipe::Axis::data);
      kinds_[static_cast<std::size_t>(replica)].insert(of_rank[rank]);
      in_use_.insert(of_rank[rank]);
    }
  }

  std::vector<std::int64_t> deal() {
    const std::int64_t each = job_.recipe.micro_batch.size;
    std::vector<std::int64_t> sizes = in_proportion(each);
    constexpr int kMostMoves = 4096;
    for (int move = 0; move < kMostMoves && sizes.size() > 1; ++move)
      if (!shorten(sizes)) break;
    return sizes;
  }

 private:
  std::vector<std::int64_t> in_proportion(std::int64_t each) {
    const auto replicas = kinds_.size();
    double speeds = 0;
    for (std::size_t replica = 0; replica < replicas; ++replica)
      speeds += 1 / time(replica, each);
    std::int64_t left = each * static_cast<std::int64_t>(replicas);
    const auto all = static_cast<double>(left);
    std::vector<std::int64_t> sizes;
    for (std::size_t replica = 0; replica < replicas; ++replica) {
      const double share = all / (time(replica, each) * speeds);
      const auto after = static_cast<std::int64_t>(replicas - replica - 1);
      sizes.push_back(std::clamp<std::int64_t>(static_cast<std::int64_t>(share), 1, left - after));
      left -= sizes.back();
    }
    for (; left > 0; --left)
      ++sizes[soonest(sizes)];
    return sizes;
  }

  // Who is done first with one sample more.
  std::size_t soonest(const std::vector<std::int64_t>& sizes) {
    std::size_t best = 0;
    for (std::size_t replica = 1; replica < sizes.size(); ++replica)
      if (time(replica, sizes[replica] + 1) < time(best, sizes[best] + 1)) best = replica;
    return best;
  }

  bool shorten(std::vector<std::int64_t>& sizes) {
    std::size_t longest = 0;
    for (std::size_t replica = 1; replica < sizes.size(); ++replica)
      if (time(replica, sizes[replica]) > time(longest, sizes[longest])) longest = replica;
    const std::size_t other = soonest(sizes);
    const bool helps =
        sizes[longest] > 1 && time(other, sizes[other] + 1) < time(longest, sizes[longest]);
    if (!helps) return false;
    --sizes[longest];
    ++sizes[other];
    return true;
  }

  // Of all layers on the slowest GPUs of a replica.
  double time(std::size_t replica, std::int64_t size) {
    double slowest = 0;
    for (const int kind : kinds_[replica])
      slowest = std::max(slowest, times_of(size)[static_cast<std::size_t>(kind)]);
    return slowest;
  }

  // By kind of GPUs.
  const std::vector<double>& times_of(std::int64_t size) {
    const auto [at, added] = times_.try_emplace(size);
    if (!added) return at->second;
    const models::NetworkWork work = work_of(job_, size);
    at->second.resize(laws_.size());
    for (const int gpu : in_use_) {
      const auto own = static_cast<std::size_t>(gpu);
      const std::vector<double> layers = times_of_layers(job_, work, *laws_[own].compute);
      for (const int kind : work.chain)
        at->second[own] += layers[static_cast<std::size_t>(kind)];
    }
    return at->second;
  }

  const Job& job_;
  std::span<const lower::GpuLaws> laws_;
  std::vector<std::set<int>> kinds_;  // of GPUs, by replica
  std::set<int> in_use_;              // all of them
  std::map<std::int64_t, std::vector<double>> times_;
};

}  // namespace

std::optional<plan::Batches> split_batch(const Job& job, std::span<const lower::GpuLaws> laws) {
  const recipe::DataParallelOptions& options = job.plan.data_parallel;
  std::vector<std::int64_t> sizes(options.batches.begin(), options.batches.end());
  if (options.batch_split == recipe::BatchSplit::equal) return std::nullopt;
  if (options.batch_split == recipe::BatchSplit::by_speed) sizes = BatchDealer(job, laws).deal();
  plan::Batches batches;
  for (const std::int64_t size : sizes) {
    const auto known = std::find(batches.sizes.begin(), batches.sizes.end(), size);
    batches.of_replica.push_back(static_cast<int>(known - batches.sizes.begin()));
    if (known == batches.sizes.end()) batches.sizes.push_back(size);
  }
  for (std::size_t other = 1; other < batches.sizes.size(); ++other)
    batches.works.push_back(work_of(job, batches.sizes[other]));
  return batches;
}

}  // namespace trainyard::simulate
