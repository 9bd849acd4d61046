// Gradients that replicas exchange in fewer bytes. N elements of g bytes in a bucket, n replicas:
//
//   kind        message(s)                                  bytes sent by a ring, per element
//   fp16, bf16  all-reduce in 16 bits                       2 (n-1)/n 2
//   int8, fp8   all-to-all of 8 bits and block scales,      2 (n-1)/n (1 + 4/2048)
//               sums quantised again, all-gather
//   one_bit     the same with signs and one scale           2 (n-1)/n / 8
//   top_k       all-gather of the d N largest and where     (n-1) d (g + 4)
//               they stand
//   power_sgd   all-reduce of P (rows x r) and of           2 (n-1)/n g r (rows + columns)
//               Q (columns x r) of each matrix                      / (rows columns)
//
//   Compressing is work of the compute stream, when a bucket is full. What follows a message
//   (sums, orthogonalisation, decompressing) runs beside the backward pass, as callbacks of
//   PyTorch's hooks do, and takes nothing from its kernels here.
//   one_bit, top_k and power_sgd keep what they have not sent and add it to the next gradients: g
//   bytes per parameter; one_bit also what the sums lose, g/n.
// Source: PyTorch, torch.distributed.algorithms.ddp_comm_hooks (fp16, bf16, PowerSGD); Alistarh et
// al., QSGD, NeurIPS 2017; Dettmers et al., 8-bit Optimizers via Block-wise Quantization, ICLR 2022
// (2048 elements per scale); Wang et al., ZeRO++, 2023, section 3.3 (all-to-all); Seide et al.,
// 1-Bit SGD, Interspeech 2014, and Tang et al., 1-bit Adam, ICML 2021 (both errors); Lin et al.,
// Deep Gradient Compression, ICLR 2018; Vogels et al., PowerSGD, NeurIPS 2019.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "models/layer/layer_work.h"
#include "sim/base/collective_kind.h"
#include "sim/base/option.h"

namespace trainyard::recipe {

enum class CompressionKind : std::uint8_t {
  none,
  fp16,
  bf16,
  int8,
  fp8,
  one_bit,
  top_k,
  power_sgd
};
inline constexpr std::array<std::string_view, 8> kCompressionNames = {
    "none", "fp16", "bf16", "int8", "fp8", "one_bit", "top_k", "power_sgd"};

struct GradientCompression {
  CompressionKind kind = CompressionKind::none;
  Option<int> rank = 1;            // power_sgd: of the approximation
  Option<double> density = 0.001;  // top_k: part of the elements that is sent
  bool used() const { return kind != CompressionKind::none; }
};

// Whole tensors that are compressed and exchanged together.
struct TensorBucket {
  std::int64_t elements = 0;
  std::vector<models::WeightMatrix> matrices;
};

// Tensors are added until a bucket is full. Source: PyTorch, compute_bucket_assignment_by_size.
class TensorBuckets {
 public:
  // In elements. Requires: both positive.
  TensorBuckets(std::int64_t first_size, std::int64_t size) : size_(size), next_size_(first_size) {}

  // Gradients of a layer, last matrix first; `elements` counts its matrices too.
  std::vector<TensorBucket> add(const std::vector<models::WeightMatrix>& matrices,
                                std::int64_t elements);
  std::vector<TensorBucket> flush();

 private:
  void put(std::vector<TensorBucket>& full, std::int64_t elements,
           const models::WeightMatrix* matrix);

  std::int64_t size_, next_size_;
  TensorBucket open_;
};

// A message and what is computed when it has arrived.
struct CompressedMessage {
  CollectiveKind kind = CollectiveKind::all_reduce;
  Bytes bytes;
  std::vector<models::NamedKernel> kernels;
};

struct CompressedExchange {
  std::vector<models::NamedKernel> compress;
  std::vector<CompressedMessage> messages;
  Bytes buffers;  // from the first kernel to the last
};

// Requires: used(), ranks > 1.
CompressedExchange compressed_exchange(const GradientCompression& compression,
                                       const TensorBucket& bucket, models::Dtype gradients,
                                       int ranks);

// Kept from step to step: what has not been sent, and the factors of power_sgd. `elements` counts
// `matrices` too.
Bytes compression_state(const GradientCompression& compression, std::int64_t elements,
                        const std::vector<models::WeightMatrix>& matrices, models::Dtype gradients,
                        int ranks);

}  // namespace trainyard::recipe
