#include <fmt/format.h>

#include <array>
#include <vector>

#include "sim/plan/replicas/parts/cycles/gradient_cycles.h"
#include "sim/plan/replicas/parts/gradient_tensors.h"
#include "sim/plan/replicas/parts/owners.h"
#include "sim/plan/replicas/parts/parts.h"
#include "sim/plan/replicas/parts/reduce_by_place.h"

namespace trainyard::plan {
namespace {

constexpr std::uint32_t kByThread = 0;  // launches of the script's host

GradientBuckets open_bucket(const ReplicaContext& context, const BucketOptions& options,
                            const std::vector<FusedGradients>& fused) {
  if (!fused.empty()) {
    std::vector<int> tensors;
    for (const FusedGradients& group : fused)
      tensors.push_back(group.tensors);
    return GradientBuckets(std::move(tensors));
  }
  const recipe::DataParallelOptions& sizes = context.plan.data_parallel;
  return {options.small_first ? sizes.first_bucket_size : sizes.bucket_size, sizes.bucket_size,
          options.fill};
}

class BucketReduction : public ReduceByPlace {
 public:
  BucketReduction(ReplicaContext& context, const BucketOptions& options)
      : ReduceByPlace(context, false),
        context_(context),
        options_(options),
        tensors_(context),
        fused_(fused_gradients(context)),
        buckets_{open_bucket(context, options, fused_), open_bucket(context, options, {})} {}

  void hold(const StageParameters& /*stage*/, const StateBytes& states) override {
    if (!options_.copies || !context_.exchanges()) return;
    context_.builder.resident(MemoryKind::communication_buffers, as_made(states.gradients),
                              "gradient buckets");
  }

  void step(const StageParameters& stage, const std::vector<ChainRange>& copies) override {
    ReduceByPlace::step(stage, copies);
    if (!options_.copies || !context_.exchanges()) return;
    const Bytes whole = as_made(gradients(stage.dense + stage.experts));
    context_.copy("copy buckets into gradients", whole, whole, OpGroup::compute);
  }

  std::vector<GradientCut> cuts(int place,
                                const std::vector<models::WorkItem>& backward) const override;

  void during(int place, const GradientCut& cut) override {
    for (std::size_t i = 0; i < buckets_.size(); ++i)
      add(i, tensors_.at(place)[i], cut.tensors[i], stream_bit(StreamKind::compute));
  }

 private:
  void reduce_place(int place) override {
    for (std::size_t i = 0; i < buckets_.size(); ++i) {
      const Tensors& tensors = tensors_.at(place)[i];
      add(i, tensors, static_cast<std::int64_t>(tensors.size()) - taken_[i], layer_streams());
    }
    taken_ = {};
  }

  void reduce_stage(const StageParameters& stage) override {
    for (std::size_t i = 0; i < buckets_.size(); ++i) {
      const Tensors tensors = tensors_.of(stage.matrices, context_.groups[i].parameters(stage), i);
      add(i, tensors, static_cast<std::int64_t>(tensors.size()), layer_streams());
    }
    taken_ = {};
  }

  void reduce_rest() override {
    for (std::size_t i = 0; i < buckets_.size(); ++i)
      if (leaves(context_.groups[i]))
        reduce(buckets_[i].flush(), context_.groups[i], layer_streams());
  }

  // Whether the group's gradients go anywhere.
  bool leaves(const ReplicaGroup& group) const { return group.exchanges || host_.used(); }
  StreamSet layer_streams() const { return stream_bit(StreamKind::compute) | kLayerStreams; }
  Bytes gradients(std::int64_t parameters) const {
    return parameters * size_of(context_.recipe.precision.gradients);
  }
  // Of gradients that are summed in `sums` bytes, those that autograd makes.
  Bytes as_made(Bytes sums) const {
    const Bytes made = unsummed_gradients(1, context_.recipe);
    return made > Bytes(0) ? sums.count() / gradients(1).count() * made : sums;
  }
  // The next `count` tensors join the group's open bucket, and what is full is reduced.
  void add(std::size_t group, const Tensors& tensors, std::int64_t count, StreamSet waits);
  void reduce(const std::vector<Bytes>& buckets, const ReplicaGroup& group, StreamSet waits);
  void exchange(Bytes bytes, const ReplicaGroup& group, StreamSet waits, const std::string& name);
  // Until the open bucket may leave; the stream to wait for.
  StreamSet wait_for_cycle(StreamSet waits);

  ReplicaContext& context_;
  BucketOptions options_;
  GradientTensors tensors_;
  std::vector<FusedGradients> fused_;  // of the dense group; empty: buckets have sizes
  std::array<GradientBuckets, 2> buckets_;
  ByGroup taken_ = {};          // tensors of the open place that have joined a bucket
  int sent_ = 0;                // buckets, which labels number
  std::size_t next_fused_ = 0;  // whose gradients leave next
};

// A bucket leaves behind the kernel that makes the last of its gradients.
std::vector<GradientCut> BucketReduction::cuts(
    int place, const std::vector<models::WorkItem>& backward) const {
  std::vector<GradientCut> found;
  if (!reduces_now()) return found;
  std::array<GradientBuckets, 2> buckets = buckets_;
  const std::array<Tensors, 2>& tensors = tensors_.at(place);
  const std::vector<MadeTensor> made = GradientTensors::made(tensors, backward);
  GradientCut cut;
  bool leave = false;
  std::array<std::size_t, 2> next = {};
  for (std::size_t at = 0; at < made.size(); ++at) {
    const std::size_t i = made[at].group;
    const std::int64_t own = tensors[i][next[i]++];
    ++cut.tensors[i];
    cut.parameters[i] += own;
    leave = !buckets[i].add(gradients(own)).empty() || leave;
    if (at + 1 < made.size() && made[at + 1].items == made[at].items) continue;
    if (leave && leaves(context_.groups[i])) {
      cut.items = made[at].items;
      found.push_back(cut);
      cut = {};
    }
    leave = false;
  }
  return found;
}

void BucketReduction::add(std::size_t group, const Tensors& tensors, std::int64_t count,
                          StreamSet waits) {
  const ReplicaGroup& own = context_.groups[group];
  for (std::int64_t n = 0; n < count; ++n) {
    const std::int64_t tensor = tensors[static_cast<std::size_t>(taken_[group]++)];
    if (leaves(own)) reduce(buckets_[group].add(gradients(tensor)), own, waits);
  }
}

void BucketReduction::reduce(const std::vector<Bytes>& buckets, const ReplicaGroup& group,
                             StreamSet waits) {
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

StreamSet BucketReduction::wait_for_cycle(StreamSet waits) {
  if (fused_.empty()) return 0;
  const Duration late = to_duration(Seconds(fused_[next_fused_].late));
  next_fused_ = (next_fused_ + 1) % fused_.size();
  if (late == Duration(0)) return 0;
  StageConnections& connections = context_.builder.connections();
  context_.builder.collective(StreamKind::agreement, connections.agreement(),
                              {.bytes = Bytes(0), .time = late}, waits, "wait for a cycle",
                              PairPart::backward, kByThread);
  return stream_bit(StreamKind::agreement);
}

void BucketReduction::exchange(Bytes bytes, const ReplicaGroup& group, StreamSet waits,
                               const std::string& name) {
  const bool scatters = options_.kind == CollectiveKind::reduce_scatter;
  // Gradients that go when they are reduced have two buffers: one is filled while one is sent.
  if (group.strategy.gradient_shards > 1 && context_.plan.data_parallel.overlap_backward) {
    context_.builder.compute_waits_for(stream_bit(StreamKind::data));
    context_.builder.settle_waits("wait for the bucket before " + name);
  }
  if (options_.copies)
    context_.copy("copy gradients into bucket", as_made(bytes), as_made(bytes), OpGroup::compute);
  waits |= wait_for_cycle(waits);
  context_.builder.collective(StreamKind::data, context_.within(group), {options_.kind, bytes},
                              waits, (scatters ? "reduce-scatter " : "all-reduce ") + name,
                              PairPart::backward, fused_.empty() ? 1 : kByThread);
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
