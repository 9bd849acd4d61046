// Exchanges compressed gradients: a bucket is compressed on the compute stream when it is full; its
// messages and what is computed between and after them follow each other on the data-parallel
// stream.
#include <fmt/format.h>

#include <algorithm>

#include "sim/base/check.h"
#include "sim/plan/replicas/parts/parts.h"
#include "sim/plan/replicas/parts/reduce_by_place.h"
#include "sim/plan/tied_matrix.h"

namespace trainyard::plan {

using recipe::TensorBucket;
using recipe::TensorBuckets;

namespace {

constexpr const char* kCompressed = "compressed gradients";

TensorBuckets tensor_buckets(const ReplicaContext& context) {
  const auto elements = [&](Bytes size) {
    return std::max<std::int64_t>(
        1, size.count() / size_of(context.recipe.precision.gradients).count());
  };
  return {elements(context.plan.data_parallel.first_bucket_size),
          elements(context.plan.data_parallel.bucket_size)};
}

class CompressedExchange : public ReduceByPlace {
 public:
  explicit CompressedExchange(ReplicaContext& context)
      : ReduceByPlace(context, true),
        context_(context),
        compression_(context.plan.data_parallel.compression),
        buckets_{tensor_buckets(context), tensor_buckets(context)} {}

  void hold(const StageParameters& stage, const StateBytes& /*states*/) override {
    Bytes unsent;
    for (const ReplicaGroup& group : context_.groups)
      if (group.exchanges)
        unsent =
            unsent + compression_state(compression_, group.parameters(stage),
                                       group.matrices(stage.matrices), gradients(), group.ranks);
    context_.builder.resident(MemoryKind::gradients, unsent, "unsent gradients");
  }

 private:
  void reduce_place(int place) override {
    const std::vector<models::WeightMatrix> matrices =
        own_matrices(context_.step, context_.work, place);
    for (std::size_t i = 0; i < buckets_.size(); ++i) {
      const ReplicaGroup& group = context_.groups[i];
      if (group.exchanges)
        exchange(buckets_[i].add(group.matrices(matrices), context_.updated_at(group, place)),
                 group);
    }
  }

  void reduce_stage(const StageParameters& /*stage*/) override {
    TRAINYARD_CHECK(!context_.exchanges(), "compressed gradients leave in the backward pass");
  }

  void reduce_rest() override {
    for (std::size_t i = 0; i < buckets_.size(); ++i)
      if (context_.groups[i].exchanges) exchange(buckets_[i].flush(), context_.groups[i]);
  }

  models::Dtype gradients() const { return context_.recipe.precision.gradients; }
  void exchange(const std::vector<TensorBucket>& buckets, const ReplicaGroup& group);

  ReplicaContext& context_;
  const recipe::GradientCompression& compression_;
  std::array<TensorBuckets, 2> buckets_;
  int sent_ = 0;  // buckets, which labels number
};

void CompressedExchange::exchange(const std::vector<TensorBucket>& buckets,
                                  const ReplicaGroup& group) {
  ProgramBuilder& builder = context_.builder;
  for (const TensorBucket& bucket : buckets) {
    const recipe::CompressedExchange exchange =
        compressed_exchange(compression_, bucket, gradients(), group.ranks);
    const std::string name = fmt::format("gradient bucket {}", sent_++);
    builder.hold(MemoryKind::communication_buffers, exchange.buffers, kCompressed);
    builder.work(std::vector<models::WorkItem>(exchange.compress.begin(), exchange.compress.end()),
                 "compress " + name, OpGroup::compute);
    for (const recipe::CompressedMessage& message : exchange.messages) {
      builder.collective(StreamKind::data, context_.within(group), {message.kind, message.bytes},
                         stream_bit(StreamKind::compute) | kLayerStreams,
                         "exchange compressed " + name);
      if (!message.kernels.empty())
        builder.work_beside(StreamKind::data, message.kernels, 0, OpGroup::data,
                            fmt::format("{} of {}", message.kernels.back().name, name));
    }
    builder.last_gives_back(MemoryKind::communication_buffers, exchange.buffers, kCompressed);
  }
  if (!buckets.empty() && !context_.plan.data_parallel.overlap_backward)
    builder.compute_waits_for(stream_bit(StreamKind::data));
}

}  // namespace

PartMaker exchange_compressed() {
  return [](ReplicaContext& context) { return std::make_unique<CompressedExchange>(context); };
}

}  // namespace trainyard::plan
