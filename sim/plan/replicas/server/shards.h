// What the shards of a parameter server keep of each stage, and in which pieces it is pushed there
// and pulled back.
#pragma once

#include <cstdint>
#include <vector>

#include "models/families/network.h"
#include "sim/plan/step_plan.h"
#include "sim/recipe/recipe.h"

namespace trainyard::plan {

// What a rank pushes at once: the gradients of a place whose backward pass is done, or of all; of
// ranks that sum theirs first its part of them.
struct Push {
  static constexpr int kAtEnd = -1;
  int place = kAtEnd;
  std::vector<std::int64_t> parameters;  // by shard; 0: nothing goes there
};

class ServerShards {
 public:
  // Requires: step.shape and step.layers are set.
  ServerShards(const StepPlan& step, const models::NetworkWork& work,
               const recipe::ParallelPlan& plan);

  int count() const { return count_; }
  // Of a rank of the stage, in the order in which they leave.
  const std::vector<Push>& pushes(int stage) const {
    return pushes_[static_cast<std::size_t>(stage)];
  }
  // ParameterServers::summed_ranks.
  int summed_ranks() const { return summed_ranks_; }
  // Parameters of the stage that the shard keeps.
  std::int64_t kept(int stage, int shard) const;
  // Peers of a rank in the order in which it speaks to them: the first is another one for each of
  // neighbouring ranks where all get as much, so that not all speak to the same.
  int peer(int rank, int nth) const { return rotates_ ? (rank + nth) % count_ : nth; }

 private:
  std::vector<std::int64_t> of_place(int place, std::int64_t parameters) const;

  int count_, summed_ranks_;
  bool rotates_;
  recipe::Sharding sharding_;
  std::vector<int> shard_of_;              // by place, where layers stay whole
  std::vector<std::vector<Push>> pushes_;  // by stage
};

}  // namespace trainyard::plan
