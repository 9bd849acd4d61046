#include "sim/simulate/stage_gpus.h"

#include <algorithm>
#include <map>
#include <set>

#include "sim/lower/group_shape.h"
#include "sim/recipe/rank_map.h"

namespace trainyard::simulate {

namespace {

std::vector<double> seconds_of(const std::vector<models::WorkItem>& items,
                               const cost::ComputeCost& compute) {
  std::vector<double> seconds;
  for (const models::WorkItem& item : items) {
    const auto* named = std::get_if<models::NamedKernel>(&item);
    seconds.push_back(named == nullptr ? 0 : compute.time(named->kernel).time.count());
  }
  return seconds;
}

std::vector<plan::LayerTimes> items_of_layers(const models::NetworkWork& work,
                                              const cost::ComputeCost& compute) {
  std::vector<plan::LayerTimes> layers;
  for (const models::LayerWork& kind : work.kinds)
    layers.push_back({seconds_of(kind.forward, compute), seconds_of(kind.recompute, compute),
                      seconds_of(kind.backward, compute)});
  return layers;
}

// Of all kernels of each layer.
std::vector<double> times_of_layers(const Job& job, const models::NetworkWork& work,
                                    const cost::ComputeCost& compute) {
  std::vector<double> times;
  for (const plan::LayerTimes& layer : items_of_layers(work, compute)) {
    std::vector<const std::vector<double>*> passes = {&layer.forward};
    if (!job.recipe.forward_only) passes.insert(passes.end(), {&layer.recompute, &layer.backward});
    double all = 0;
    for (const std::vector<double>* pass : passes)
      for (const double item : *pass)
        all += item;
    times.push_back(all);
  }
  return times;
}

// By rank, as lower::GroupShapes numbers them.
std::vector<int> gpus_of_ranks(const Job& job) {
  std::vector<int> gpus;
  for (int server = 0; server < job.cluster.servers; ++server)
    for (int gpu = 0; gpu < job.cluster.used_on(server); ++gpu)
      gpus.push_back(server * job.cluster.gpu_slots() + gpu);
  return gpus;
}

// Of a message from the first rank to one so many places on along an axis.
cost::MessageTerms message_along(const Job& job, const cost::MessageCost& messages, Bytes size,
                                 recipe::Axis axis, int places) {
  const recipe::RankGrids grids = recipe::rank_grids(job.plan);
  const std::vector<int> gpus = gpus_of_ranks(job);
  std::vector<int> used;
  for (int server = 0; server < job.cluster.servers; ++server)
    used.push_back(job.cluster.used_on(server));
  const Rank other = grids.dense.peer(static_cast<Rank>(0), axis, places);
  const cost::GroupShape shape =
      lower::GroupShapes(job.cluster, used, false).of_pair(gpus.front(), gpus[index(other)], 1);
  return messages.point_to_point(size, shape);
}

// Item by item.
void take_slower(plan::LayerTimes& times, const plan::LayerTimes& other) {
  const auto take = [](std::vector<double>& own, const std::vector<double>& others) {
    for (std::size_t item = 0; item < own.size(); ++item)
      own[item] = std::max(own[item], others[item]);
  };
  take(times.forward, other.forward);
  take(times.recompute, other.recompute);
  take(times.backward, other.backward);
}

void tell_messages(const Job& job, const cost::MessageCost& messages,
                   std::vector<plan::StageGpus>& stages) {
  constexpr Bytes kSize = Bytes(1 << 20);  // of whose law, latency and bandwidth
  const cost::MessageTerms terms = message_along(job, messages, kSize, recipe::Axis::pipeline, 1);
  for (plan::StageGpus& stage : stages) {
    stage.message_latency = terms.latency.count();
    stage.message_byte = 1 / terms.bandwidth.count();
  }
}

// What tells when gradients are there, and what ranks take to agree on them.
void tell_gradients(const Job& job, const models::NetworkWork& work,
                    std::span<const lower::GpuLaws> laws, const cost::MessageCost& messages,
                    std::vector<plan::StageGpus>& of_kind) {
  constexpr Bytes kShort = Bytes(64);
  const std::vector<topologies::GpuKind> kinds = gpu_kinds(job.cluster);
  double latency = 0;
  for (const recipe::Axis axis : {recipe::Axis::data, recipe::Axis::context})
    if (const int last = job.plan.degrees.along(axis) - 1; last > 0)
      latency = std::max(latency, message_along(job, messages, kShort, axis, last).latency.count());
  for (std::size_t kind = 0; kind < of_kind.size(); ++kind) {
    of_kind[kind].layers = items_of_layers(work, *laws[kind].compute);
    of_kind[kind].launch = Seconds(laws[kind].launch + laws[kind].call).count();
    of_kind[kind].host_computes = kinds[kind].gpu->is_cpu();
    of_kind[kind].replica_latency = latency;
  }
}

}  // namespace

std::vector<int> kinds_of_ranks(const Job& job) {
  const int slots = job.cluster.gpu_slots();
  if (gpu_kinds(job.cluster).size() == 1)
    return std::vector<int>(static_cast<std::size_t>(job.plan.degrees.world_size()), 0);
  std::vector<int> kinds;
  for (const int gpu : gpus_of_ranks(job))
    kinds.push_back(gpu_kind_of(job.cluster, gpu / slots, gpu % slots));
  return kinds;
}

std::vector<plan::StageGpus> stage_gpus(const Job& job, const models::NetworkWork& work,
                                        std::span<const lower::GpuLaws> laws,
                                        const cost::MessageCost& messages) {
  const std::vector<topologies::GpuKind> kinds = gpu_kinds(job.cluster);
  std::vector<plan::StageGpus> of_kind;
  const recipe::Pipeline& pipeline = job.plan.pipeline;
  const bool by_time = pipeline.layer_split == recipe::LayerSplit::by_time || pipeline.branches;
  const bool is_one = kinds.size() == 1;
  const std::vector<int> of_rank = is_one ? std::vector<int>() : kinds_of_ranks(job);
  const std::set<int> in_use(of_rank.begin(), of_rank.end());
  for (std::size_t kind = 0; kind < kinds.size(); ++kind) {
    std::vector<double> times;
    if (by_time && (is_one || in_use.count(static_cast<int>(kind)) > 0))
      times = times_of_layers(job, work, *laws[kind].compute);
    of_kind.push_back({std::move(times), kinds[kind].gpu->memory});
  }
  if (pipeline.branches) tell_messages(job, messages, of_kind);
  if (job.plan.data_parallel.cycle_time.value() > Duration(0))
    tell_gradients(job, work, laws, messages, of_kind);
  if (is_one) return of_kind;
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
    for (std::size_t layer = 0; layer < own.layers.size(); ++layer)
      take_slower(gpus.layers[layer], own.layers[layer]);
    gpus.launch = std::max(gpus.launch, own.launch);
    gpus.host_computes = gpus.host_computes || own.host_computes;
  }
  return stages;
}

std::shared_ptr<const models::NetworkWork> work_of(const Job& job, std::int64_t micro_batch) {
  recipe::TrainingRecipe recipe = job.recipe;
  recipe.micro_batch.size = micro_batch;
  const models::Execution execution = plan::execution(recipe, job.plan);
  if (job.works != nullptr) return job.works->of(job.network, execution);
  return std::make_shared<const models::NetworkWork>(network_work(job.network, execution));
}

namespace {

// Deals the samples of a round, one micro-batch of each replica, by the speed of their GPUs.
// Replicas on the same kinds of GPUs differ by a sample at most, so that all costs grow with the
// kinds.
class BatchDealer {
 public:
  BatchDealer(const Job& job, std::span<const lower::GpuLaws> laws) : job_(job), laws_(laws) {
    const recipe::RankGrids grids = recipe::rank_grids(job.plan);
    std::vector<std::set<int>> kinds(static_cast<std::size_t>(job.plan.degrees.data));
    const std::vector<int> of_rank = kinds_of_ranks(job);
    for (std::size_t rank = 0; rank < of_rank.size(); ++rank) {
      const int replica = grids.dense.coordinate(static_cast<Rank>(rank), recipe::Axis::data);
      kinds[static_cast<std::size_t>(replica)].insert(of_rank[rank]);
    }
    in_use_ = std::set<int>(of_rank.begin(), of_rank.end());
    std::map<std::set<int>, std::size_t> alike;
    for (const std::set<int>& own : kinds) {
      const auto [at, added] = alike.try_emplace(own, groups_.size());
      if (added) groups_.push_back({own});
      ++groups_[at->second].replicas;
      group_of_.push_back(at->second);
    }
  }

  // By replica.
  std::vector<std::int64_t> deal() {
    deal_in_proportion(job_.recipe.micro_batch.size);
    constexpr int kMostMoves = 4096;
    for (int move = 0; move < kMostMoves; ++move)
      if (!shorten()) break;
    std::vector<std::int64_t> sizes;
    std::vector<std::int64_t> larger(groups_.size());  // that have one more, so far
    for (const std::size_t group : group_of_)
      sizes.push_back(groups_[group].size + (larger[group]++ < groups_[group].larger ? 1 : 0));
    return sizes;
  }

 private:
  // Replicas on the same kinds of GPUs.
  struct Group {
    std::set<int> kinds;
    std::int64_t replicas = 0;
    std::int64_t size = 1;    // samples of each
    std::int64_t larger = 0;  // replicas that have one more; fewer than all

    std::int64_t largest() const { return size + (larger > 0 ? 1 : 0); }
    void add() {
      if (++larger < replicas) return;
      ++size;
      larger = 0;
    }
    void remove() {
      if (larger == 0) {
        --size;
        larger = replicas;
      }
      --larger;
    }
  };

  void deal_in_proportion(std::int64_t each) {
    const auto replicas = static_cast<std::int64_t>(group_of_.size());
    double speeds = 0;
    for (const Group& group : groups_)
      speeds += static_cast<double>(group.replicas) / time(group, each);
    std::int64_t left = each * replicas;
    const auto all = static_cast<double>(left);
    for (Group& group : groups_) {
      const auto share = static_cast<std::int64_t>(all / (time(group, each) * speeds));
      group.size = std::max<std::int64_t>(share, 1);
      left -= group.size * group.replicas;
    }
    for (; left > 0; --left)
      soonest().add();
    for (; left < 0; ++left)  // as some have one though their share is less
      longest().remove();
  }

  // Which is done first with one sample more.
  Group& soonest() {
    Group* best = &groups_.front();
    for (Group& group : groups_)
      if (time(group, group.size + 1) < time(*best, best->size + 1)) best = &group;
    return *best;
  }

  // Which takes longest, of those that have a sample to give away; if none has, the first.
  Group& longest() {
    Group* worst = &groups_.front();
    for (Group& group : groups_) {
      if (group.largest() == 1) continue;
      if (worst->largest() == 1 || time(group, group.largest()) > time(*worst, worst->largest()))
        worst = &group;
    }
    return *worst;
  }

  // Moves a sample from the replica that takes longest of all, if it has two or more, to the one
  // that would be done first with it, if that is sooner.
  bool shorten() {
    Group *worst = &groups_.front(), *other = &soonest();
    for (Group& group : groups_)
      if (time(group, group.largest()) > time(*worst, worst->largest())) worst = &group;
    const bool helps =
        worst->largest() > 1 && time(*other, other->size + 1) < time(*worst, worst->largest());
    if (!helps) return false;
    worst->remove();
    other->add();
    return true;
  }

  // Of all layers on the slowest GPUs of a replica.
  double time(const Group& group, std::int64_t size) {
    double slowest = 0;
    for (const int kind : group.kinds)
      slowest = std::max(slowest, times_of(size)[static_cast<std::size_t>(kind)]);
    return slowest;
  }

  // By kind of GPUs; of those in use.
  const std::vector<double>& times_of(std::int64_t size) {
    const auto [at, added] = times_.try_emplace(size);
    if (!added) return at->second;
    const auto shared = work_of(job_, size);
    const models::NetworkWork& work = *shared;
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
  std::vector<Group> groups_;
  std::vector<std::size_t> group_of_;  // by replica
  std::set<int> in_use_;               // kinds of GPUs
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
    batches.works.push_back(*work_of(job, batches.sizes[other]));
  return batches;
}

}  // namespace trainyard::simulate
