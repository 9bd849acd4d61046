// The part of DataParallelWriter that exchanges compressed gradients: a bucket is compressed on the
// compute stream when it is full; its messages and what is computed between and after them follow
// each other on the data-parallel stream.
#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "sim/plan/replicas/data_parallel_writer.h"
#include "sim/plan/tied_matrix.h"
#include "sim/schedule/chunk_placement.h"

namespace trainyard::plan {

using models::WeightMatrix;

namespace {

constexpr const char* kCompressed = "compressed gradients";

std::vector<WeightMatrix> of(const std::vector<WeightMatrix>& matrices, bool routed) {
  std::vector<WeightMatrix> found;
  std::copy_if(matrices.begin(), matrices.end(), std::back_inserter(found),
               [&](const WeightMatrix& matrix) { return matrix.routed == routed; });
  return found;
}

}  // namespace

int DataParallelWriter::ranks_on(CollectivePort port) const {
  return directions(step_.shape) *
         (port == CollectivePort::data ? plan_.degrees.replicas() : plan_.expert_replicas());
}

Bytes DataParallelWriter::compression_state_of(const StageParameters& parameters) const {
  const recipe::GradientCompression& compression = plan_.data_parallel.compression;
  Bytes state;
  if (exchanges_)
    state = state + compression_state(compression, parameters.dense, of(parameters.matrices, false),
                                      recipe_.precision.gradients, ranks_on(CollectivePort::data));
  if (exchanges_experts_)
    state = state + compression_state(compression, parameters.experts,
                                      of(parameters.matrices, true), recipe_.precision.gradients,
                                      ranks_on(CollectivePort::expert_data));
  return state;
}

void DataParallelWriter::compress_place(int place) {
  const std::vector<WeightMatrix> matrices = own_matrices(step_, work_, place);
  if (exchanges_)
    exchange(tensors_.add(of(matrices, false), parameters_of(place)), CollectivePort::data);
  if (exchanges_experts_)
    exchange(expert_tensors_.add(of(matrices, true), layer(place).expert_parameters),
             CollectivePort::expert_data);
}

void DataParallelWriter::exchange(const std::vector<recipe::TensorBucket>& buckets,
                                  CollectivePort port) {
  const StreamSet before =
      static_cast<StreamSet>(stream_bit(StreamKind::compute) | stream_bit(StreamKind::tensor) |
                             stream_bit(StreamKind::context) | stream_bit(StreamKind::expert));
  for (const recipe::TensorBucket& bucket : buckets) {
    const recipe::CompressedExchange exchange = compressed_exchange(
        plan_.data_parallel.compression, bucket, recipe_.precision.gradients, ranks_on(port));
    const std::string name = fmt::format("gradient bucket {}", buckets_sent_++);
    builder_.hold(MemoryKind::communication_buffers, exchange.buffers, kCompressed);
    builder_.work({exchange.compress.begin(), exchange.compress.end()}, "compress " + name,
                  OpGroup::compute);
    for (const recipe::CompressedMessage& message : exchange.messages) {
      builder_.collective(StreamKind::data, port, {message.kind, message.bytes}, before,
                          "exchange compressed " + name);
      if (!message.kernels.empty())
        builder_.work_beside(StreamKind::data, message.kernels, 0, OpGroup::data,
                             fmt::format("{} of {}", message.kernels.back().name, name));
    }
    builder_.last_gives_back(MemoryKind::communication_buffers, exchange.buffers, kCompressed);
  }
  if (!buckets.empty() && !plan_.data_parallel.overlap_backward)
    builder_.compute_waits_for(stream_bit(StreamKind::data));
}

}  // namespace trainyard::plan
