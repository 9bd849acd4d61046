#include "sim/recipe/gradient_compression.h"

#include <algorithm>
#include <cmath>

#include "sim/base/check.h"
#include "sim/base/divide.h"

namespace trainyard::recipe {

using models::Dtype;
using models::Gemm;
using models::NamedKernel;
using models::WeightMatrix;

namespace {

constexpr std::int64_t kBlock = 2048;  // elements with one scale

NamedKernel pass(std::string name, Bytes read, Bytes written) {
  return {std::move(name), models::MemoryBound{models::MemoryOp::elementwise, read, written}};
}

// A bucket of one exchange, and the sizes that recur.
class Exchange {
 public:
  Exchange(const GradientCompression& compression, const TensorBucket& bucket, Dtype gradients,
           int ranks)
      : compression_(compression),
        bucket_(bucket),
        gradients_(gradients),
        ranks_(ranks),
        whole_(bucket.elements * size_of(gradients)) {}

  CompressedExchange run() {
    switch (compression_.kind) {
      case CompressionKind::none: TRAINYARD_CHECK(false, "nothing is compressed"); break;
      case CompressionKind::fp16:
      case CompressionKind::bf16: cast(); break;
      case CompressionKind::int8:
      case CompressionKind::fp8:
        quantise(
            Bytes(bucket_.elements) + divide_up(bucket_.elements, kBlock) * size_of(Dtype::fp32),
            false);
        break;
      case CompressionKind::one_bit:
        quantise(Bytes(divide_up(bucket_.elements, 8)) + size_of(Dtype::fp32), true);
        break;
      case CompressionKind::top_k: sparsify(); break;
      case CompressionKind::power_sgd: factorise(); break;
    }
    return std::move(result_);
  }

 private:
  void cast();
  void quantise(Bytes sent, bool keeps_errors);
  void sparsify();
  void factorise();
  void send(CollectiveKind kind, Bytes bytes, std::vector<NamedKernel> then) {
    if (bytes == Bytes(0)) return;
    result_.messages.push_back({kind, bytes, std::move(then)});
  }

  const GradientCompression& compression_;
  const TensorBucket& bucket_;
  Dtype gradients_;
  int ranks_;
  Bytes whole_;
  CompressedExchange result_;
};

void Exchange::cast() {
  const Bytes sent = bucket_.elements * size_of(Dtype::fp16);
  result_.compress = {pass("cast gradients", whole_, sent)};
  send(CollectiveKind::all_reduce, sent, {pass("cast gradients back", sent, whole_)});
  result_.buffers = sent;
}

// Every rank sums its part of what all send it, and hands the sum on in as few bits.
void Exchange::quantise(Bytes sent, bool keeps_errors) {
  const Bytes own(divide_up(sent.count(), ranks_));
  const Bytes error = keeps_errors ? whole_ : Bytes(0);
  const Bytes own_error(keeps_errors ? divide_up(whole_.count(), ranks_) : 0);
  result_.compress = {pass("quantise gradients", whole_ + error, sent + error)};
  send(CollectiveKind::all_to_all, sent,
       {pass("sum and quantise gradients", sent + own_error, own + own_error)});
  send(CollectiveKind::all_gather, sent, {pass("dequantise gradients", sent, whole_)});
  result_.buffers = 2 * sent;
}

// The threshold is found on a sample, which takes no time here.
void Exchange::sparsify() {
  const auto kept = std::clamp<std::int64_t>(
      static_cast<std::int64_t>(
          std::ceil(compression_.density * static_cast<double>(bucket_.elements))),
      1, bucket_.elements);
  const Bytes values = kept * size_of(gradients_);
  const Bytes pairs = values + kept * size_of(Dtype::fp32);  // indices of four bytes
  result_.compress = {pass("add residual", 2 * whole_, whole_),
                      pass("select gradients", whole_, pairs + values)};
  send(CollectiveKind::all_gather, ranks_ * pairs,
       {pass("scatter gradients", ranks_ * (pairs + values), whole_ + ranks_ * values)});
  result_.buffers = ranks_ * pairs;
}

std::int64_t rank_of(const WeightMatrix& matrix, int rank) {
  return std::min({matrix.rows, matrix.columns, std::int64_t{rank}});
}

// PyTorch's PowerSGDState leaves alone what would not be halved (min_compression_rate 2).
bool pays(const WeightMatrix& matrix, int rank) {
  return 2 * rank_of(matrix, rank) * (matrix.rows + matrix.columns) < matrix.rows * matrix.columns;
}

// M approximates to P Q^T with P = M Q orthogonalised and Q = M^T P of the step before. Columns of
// P are made orthogonal one after another: a column is read twice and written once for itself, and
// those after it are read twice and written once.
void Exchange::factorise() {
  const Bytes each = size_of(gradients_);
  std::int64_t alone = bucket_.elements;
  std::int64_t left = 0, right = 0, read = 0, written = 0;
  std::vector<NamedKernel> first, second, last;
  for (const WeightMatrix& m : bucket_.matrices) {
    if (!pays(m, compression_.rank)) continue;
    const std::int64_t r = rank_of(m, compression_.rank);
    alone -= m.elements();
    left += m.rows * r * m.count;
    right += m.columns * r * m.count;
    read += m.rows * m.count * 2 * (r + r * (r - 1) / 2);
    written += m.rows * m.count * (r + r * (r - 1) / 2);
    first.push_back({"left factor", Gemm{m.rows, r, m.columns, m.count, gradients_}});
    second.push_back({"right factor", Gemm{m.columns, r, m.rows, m.count, gradients_}});
    last.push_back({"product of factors", Gemm{m.rows, m.columns, r, m.count, gradients_}});
  }
  result_.compress = {pass("add residual", 2 * whole_, whole_),
                      pass("copy gradients", whole_, whole_)};
  result_.compress.insert(result_.compress.end(), first.begin(), first.end());
  second.insert(second.begin(), pass("orthogonalise", read * each, written * each));
  last.push_back(pass("keep residual", 2 * whole_, whole_));
  if (left == 0) {
    send(CollectiveKind::all_reduce, alone * each, std::move(last));
  } else {
    send(CollectiveKind::all_reduce, alone * each, {});
    send(CollectiveKind::all_reduce, left * each, std::move(second));
    send(CollectiveKind::all_reduce, right * each, std::move(last));
  }
  result_.buffers = whole_;
}

}  // namespace

void TensorBuckets::put(std::vector<TensorBucket>& full, std::int64_t elements,
                        const WeightMatrix* matrix) {
  if (elements == 0) return;
  open_.elements += elements;
  if (matrix != nullptr) open_.matrices.push_back(*matrix);
  if (open_.elements < next_size_) return;
  for (TensorBucket& bucket : flush())
    full.push_back(std::move(bucket));
  next_size_ = size_;
}

std::vector<TensorBucket> TensorBuckets::add(const std::vector<WeightMatrix>& matrices,
                                             std::int64_t elements) {
  std::vector<TensorBucket> full;
  std::int64_t rest = elements;
  for (auto matrix = matrices.rbegin(); matrix != matrices.rend(); ++matrix) {
    rest -= matrix->elements();
    put(full, matrix->elements(), &*matrix);
  }
  TRAINYARD_CHECK(rest >= 0, "matrices hold {} elements more than their layer", -rest);
  put(full, rest, nullptr);
  return full;
}

std::vector<TensorBucket> TensorBuckets::flush() {
  std::vector<TensorBucket> rest;
  if (open_.elements > 0) rest.push_back(std::move(open_));
  open_ = {};
  return rest;
}

CompressedExchange compressed_exchange(const GradientCompression& compression,
                                       const TensorBucket& bucket, Dtype gradients, int ranks) {
  return Exchange(compression, bucket, gradients, ranks).run();
}

Bytes compression_state(const GradientCompression& compression, std::int64_t elements,
                        const std::vector<WeightMatrix>& matrices, Dtype gradients, int ranks) {
  const Bytes each = size_of(gradients);
  switch (compression.kind) {
    case CompressionKind::none:
    case CompressionKind::fp16:
    case CompressionKind::bf16:
    case CompressionKind::int8:
    case CompressionKind::fp8: return Bytes(0);
    case CompressionKind::one_bit: return (elements + divide_up(elements, ranks)) * each;
    case CompressionKind::top_k: return elements * each;
    case CompressionKind::power_sgd: break;
  }
  std::int64_t factors = 0;
  for (const WeightMatrix& m : matrices)
    if (pays(m, compression.rank))
      factors += rank_of(m, compression.rank) * (m.rows + m.columns) * m.count;
  return (elements + factors) * each;
}

}  // namespace trainyard::recipe
