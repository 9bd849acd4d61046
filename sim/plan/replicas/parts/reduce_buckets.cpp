#include <fmt/format.h>

#include "sim/plan/replicas/parts/gradient_buckets.h"
#include "sim/plan/replicas/parts/owners.h"
#include "sim/plan/replicas/parts/parts.h"
#include "sim/plan/replicas/parts/reduce_by_place.h"

namespace trainyard::plan {
namespace {

class BucketReduction : public ReduceByPlace {
 public:
  BucketReduction(ReplicaContext& context, const BucketOptions& options)
      : ReduceByPlace(context, false), context_(context), options_(options) {}

  void hold(const StageParameters& /*stage*/, const StateBytes& states) override {
    if (options_.copies && context_.exchanges())
      context_.builder.resident(MemoryKind::communication_buffers, states.gradients,
                                "gradient buckets");
  }

  void step(const StageParameters& stage, const std::vector<ChainRange>& copies) override {
    ReduceByPlace::step(stage, copies);
    if (!options_.copies || !context_.exchanges()) return;
    const Bytes whole =
        (stage.dense + stage.experts) * size_of(context_.recipe.precision.gradients);
    context_.copy("copy buckets into gradients", whole, whole, OpGroup::compute);
  }

 private:
  void reduce_place(int place) override {
    for (std::size_t i = 0; i < buckets_.size(); ++i)
      add(i, context_.updated_at(context_.groups[i], place));
  }

  void reduce_stage(const StageParameters& stage) override {
    for (std::size_t i = 0; i < buckets_.size(); ++i)
      add(i, context_.groups[i].parameters(stage));
  }

  void reduce_rest() override {
    for (std::size_t i = 0; i < buckets_.size(); ++i)
      if (leaves(context_.groups[i])) reduce(buckets_[i].flush(), context_.groups[i]);
  }

  // Whether the group's gradients go anywhere.
  bool leaves(const ReplicaGroup& group) const { return group.exchanges || host_.used(); }
  // Gradients of so many parameters join the group's open bucket, and what is full is reduced.
  void add(std::size_t group, std::int64_t parameters);
  void reduce(const std::vector<Bytes>& buckets, const ReplicaGroup& group);
  void exchange(Bytes bytes, const ReplicaGroup& group, StreamSet waits, const std::string& name);

  ReplicaContext& context_;
  BucketOptions options_;
  std::array<GradientBuckets, 2> buckets_ = {
      GradientBuckets(context_.plan.data_parallel.first_bucket_size,
                      context_.plan.data_parallel.bucket_size),
      GradientBuckets(context_.plan.data_parallel.first_bucket_size,
                      context_.plan.data_parallel.bucket_size)};
  int sent_ = 0;  // buckets, which labels number
};

void BucketReduction::add(std::size_t group, std::int64_t parameters) {
  const ReplicaGroup& own = context_.groups[group];
  if (leaves(own))
    reduce(buckets_[group].add(parameters * size_of(context_.recipe.precision.gradients)), own);
}

void BucketReduction::reduce(const std::vector<Bytes>& buckets, const ReplicaGroup& group) {
  StreamSet waits = stream_bit(StreamKind::compute) | kLayerStreams;
  if (context_.strategy().gathering == Gathering::each_pass) waits |= kGatherStreams;
  for (const Bytes bytes : buckets) {
    const std::string name = fmt::format("gradient bucket {}", sent_++);
    const Bytes own(shard_of(bytes.count(), group.strategy.optimizer_shards));
    if (group.exchanges) {
      exchange(bytes, group, waits, name);
      host_.take_leaving_gradients(own);
    }
    if (!host_.used()) continue;
    if (group.exchanges)
      host_.copy_gradients(own, stream_bit(StreamKind::data), name,
                           MemoryKind::communication_buffers, kLeaving);
    else
      host_.copy_gradients(own, waits, name, MemoryKind::gradients, kUnreduced);
  }
  if (group.exchanges && !buckets.empty() && !context_.plan.data_parallel.overlap_backward)
    context_.builder.compute_waits_for(stream_bit(StreamKind::data));
}

void BucketReduction::exchange(Bytes bytes, const ReplicaGroup& group, StreamSet waits,
                               const std::string& name) {
  const bool scatters = options_.kind == CollectiveKind::reduce_scatter;
  if (options_.copies) context_.copy("copy gradients into bucket", bytes, bytes, OpGroup::compute);
  context_.builder.collective(StreamKind::data, context_.within(group), {options_.kind, bytes},
                              waits, (scatters ? "reduce-scatter " : "all-reduce ") + name);
  if (group.strategy.gradient_shards > 1)
    context_.builder.last_gives_back(MemoryKind::gradients, bytes, kUnreduced);
}

}  // namespace

PartMaker reduce_in_buckets(const BucketOptions& options) {
  return [options](ReplicaContext& context) {
    return std::make_unique<BucketReduction>(context, options);
  };
}

}  // namespace trainyard::plan
