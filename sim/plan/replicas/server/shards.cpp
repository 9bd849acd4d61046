#include "sim/plan/replicas/server/shards.h"

#include <algorithm>
#include <numeric>
#include <string_view>

#include "sim/base/divide.h"
#include "sim/plan/tied_matrix.h"
#include "sim/schedule/chunk_placement.h"

namespace trainyard::plan {

using recipe::Sharding;
using schedule::Seat;

namespace {

// Of 32 bits. Source: Fowler, Noll, Vo, FNV-1a (RFC 9923, section 2).
std::uint32_t hash_of(std::string_view text) {
  std::uint32_t hash = 2166136261U;
  for (const char c : text)
    hash = (hash ^ static_cast<unsigned char>(c)) * 16777619U;
  return hash;
}

// The largest first, each to the shard that has least.
std::vector<int> by_size(const std::vector<std::int64_t>& parameters, int shards) {
  std::vector<std::size_t> places(parameters.size());
  std::iota(places.begin(), places.end(), 0);
  std::stable_sort(places.begin(), places.end(),
                   [&](std::size_t a, std::size_t b) { return parameters[a] > parameters[b]; });
  std::vector<std::int64_t> held(static_cast<std::size_t>(shards), 0);
  std::vector<int> shard_of(parameters.size());
  for (const std::size_t place : places) {
    const auto least = std::min_element(held.begin(), held.end());
    *least += parameters[place];
    shard_of[place] = static_cast<int>(least - held.begin());
  }
  return shard_of;
}

std::vector<int> dealt(const StepPlan& step, const std::vector<std::int64_t>& parameters,
                       Sharding sharding, int shards) {
  if (sharding == Sharding::size) return by_size(parameters, shards);
  std::vector<int> shard_of;
  int next = 0;
  for (std::size_t place = 0; place < parameters.size(); ++place) {
    const bool by_name = sharding == Sharding::hash;
    const auto hash = hash_of(step.name_of(static_cast<int>(place)));
    shard_of.push_back(by_name ? static_cast<int>(hash % static_cast<std::uint32_t>(shards))
                               : next % shards);
    if (parameters[place] > 0) ++next;
  }
  return shard_of;
}

}  // namespace

ServerShards::ServerShards(const StepPlan& step, const models::NetworkWork& work,
                           const recipe::ParallelPlan& plan)
    : count_(plan.data_parallel.parameter_servers.shards),
      summed_ranks_(plan.data_parallel.parameter_servers.summed_ranks),
      rotates_(plan.data_parallel.parameter_servers.sharding == Sharding::even),
      sharding_(plan.data_parallel.parameter_servers.sharding) {
  std::vector<std::int64_t> parameters;
  for (std::size_t place = 0; place < work.chain.size(); ++place)
    parameters.push_back(work.kinds[static_cast<std::size_t>(work.chain[place])].parameters -
                         tied_with_earlier(step, work, static_cast<int>(place)));
  if (!rotates_) shard_of_ = dealt(step, parameters, sharding_, count_);

  pushes_.resize(static_cast<std::size_t>(step.shape.stages));
  for (int stage = 0; stage < step.shape.stages; ++stage) {
    std::vector<Push>& pushes = pushes_[static_cast<std::size_t>(stage)];
    for (int chunk = step.shape.chunks; chunk-- > 0;) {
      const Seat seat{stage, chunk, 0};
      const ChainRange range =
          step.layers[static_cast<std::size_t>(virtual_stage(step.shape, seat))];
      for (int place = range.last; place-- > range.first;) {
        const std::int64_t own = parameters[static_cast<std::size_t>(place)];
        if (own > 0) pushes.push_back({place, of_place(place, own)});
      }
    }
    if (plan.data_parallel.parameter_servers.push_by_layer) continue;
    Push all{Push::kAtEnd, std::vector<std::int64_t>(static_cast<std::size_t>(count_), 0)};
    std::int64_t sum = 0;
    for (const Push& push : pushes) {
      sum += parameters[static_cast<std::size_t>(push.place)];
      for (std::size_t shard = 0; shard < push.parameters.size(); ++shard)
        all.parameters[shard] += push.parameters[shard];
    }
    if (rotates_) all.parameters = of_place(Push::kAtEnd, sum);
    pushes = {std::move(all)};
  }
}

std::int64_t ServerShards::kept(int stage, int shard) const {
  std::int64_t sum = 0;
  for (const Push& push : pushes(stage))
    sum += push.parameters[static_cast<std::size_t>(shard)];
  return sum * summed_ranks_;
}

// An even cut is even over what is pushed at once, and rounded up so that all get as much.
std::vector<std::int64_t> ServerShards::of_place(int place, std::int64_t parameters) const {
  std::vector<std::int64_t> parts(static_cast<std::size_t>(count_), 0);
  if (!rotates_) {
    parts[static_cast<std::size_t>(shard_of_[static_cast<std::size_t>(place)])] =
        divide_up(parameters, summed_ranks_);
    return parts;
  }
  parts.assign(parts.size(), divide_up(divide_up(parameters, count_), summed_ranks_));
  return parts;
}

}  // namespace trainyard::plan
