#include <fmt/format.h>

#include <algorithm>

#include "sim/plan/replicas/parts/parts.h"
#include "sim/plan/replicas/replica_part.h"

namespace trainyard::plan {
namespace {

class GatherUpdated : public ReplicaPart {
 public:
  explicit GatherUpdated(ReplicaContext& context) : context_(context) {}

  void step(const StageParameters& stage, const std::vector<ChainRange>& /*copies*/) override {
    for (const ReplicaGroup& group : context_.groups)
      if (group.exchanges) gather(group.parameters(stage), group);
  }

 private:
  void gather(std::int64_t parameters, const ReplicaGroup& group) {
    // Flat shards have no tensors, so a piece ends anywhere. Source: DeepSpeed,
    // all_gather_dp_groups (runtime/utils.py).
    const recipe::DataParallelOptions& options = context_.plan.data_parallel;
    const Bytes piece = options.allgather_bucket_size.value_or(options.bucket_size);
    std::vector<Bytes> sizes;
    for (Bytes left = parameters * size_of(trained_type(context_.recipe)); left > Bytes(0);
         left = left - sizes.back())
      sizes.push_back(std::min(left, piece));
    for (std::size_t i = 0; i < sizes.size(); ++i)
      context_.builder.collective(StreamKind::gather, context_.within(group),
                                  {CollectiveKind::all_gather, sizes[i]},
                                  stream_bit(StreamKind::compute) | stream_bit(StreamKind::data),
                                  fmt::format("gather updated {} {}", group.name, i));
  }

  ReplicaContext& context_;
};

}  // namespace

PartMaker gather_updated() {
  return [](ReplicaContext& context) { return std::make_unique<GatherUpdated>(context); };
}

}  // namespace trainyard::plan
