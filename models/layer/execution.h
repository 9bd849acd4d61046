// How a layer is executed: by how many ranks, divided how, in which kernels and number formats.
#pragma once

#include <cstdint>
#include <optional>

#include "models/layer/finetune.h"
#include "models/layer/fp8.h"
#include "models/layer/kernel.h"
#include "models/layer/recompute.h"
#include "sim/base/option.h"

namespace trainyard::models {

// When a tensor-parallel collective of the backward pass is waited for.
//   none:            at once (every collective is exposed).
//   weight_gradient: after the GEMM that does not need it, as Megatron-LM does: the all-reduce (or
//                    reduce-scatter) of the input gradient runs under the weight-gradient GEMM, the
//                    extra all-gather of sequence parallelism under the input-gradient GEMM.
//                    Source: Korthikanti et al. 2022, section 4.2.2; Megatron-LM tensor_parallel.
//   chunked:         the same, and matrix multiplications whose input is gathered or whose output
//                    is scattered are cut in pieces that hide the pieces of their collective, as
//                    Transformer Engine does (models/transformer/chunked_product.cpp).
enum class TensorOverlap : std::uint8_t { none, weight_gradient, chunked };

// How attention sees tokens that other ranks of the context-parallel group hold.
//   ring:       keys and values travel round the group, one step of attention hides one hop. Tokens
//               are dealt so that every rank has the same share of the causal triangle.
//               Source: Liu et al., Ring Attention, 2023; dealing: Brandon et al., Striped
//               Attention, 2023, and Transformer Engine's pairs of chunks, which we follow.
//   all_gather: keys and values are gathered before attention. Source: Llama 3, 2024, section
//               3.3.2.
//   ulysses:    all-to-all turns a part of the tokens into a part of the heads and back. Source:
//               Jacobs et al., DeepSpeed Ulysses, 2023.
enum class ContextMethod : std::uint8_t { ring, all_gather, ulysses };

// What becomes of the element-wise work between matrix multiplications.
//   by_hand:  the fused kernels of Megatron-LM.
//   eager:    PyTorch as it runs a script: every operator is a kernel that reads and writes memory.
//   compiled: torch.compile: chains of operators are one kernel. See transformer_pytorch.cpp.
enum class Fusion : std::uint8_t { by_hand, eager, compiled };

// Whose kernels compute the loss over a vocabulary: those of `Fusion`, or one that leaves the
// gradient in the logits' place (Transformer Engine's, Liger's).
enum class LossKernels : std::uint8_t { by_hand, eager, compiled, in_place };

// What makes weights of the scores of unfused attention.
//   kernel:    one kernel that scales, masks and normalises, as Megatron-LM's.
//   operators: PyTorch's, each a kernel: a scale (by hand the product's), a mask, a softmax.
//   fp32:      the same, but the softmax is of fp32 copies: scores are cast, and weights cast back
//              for the product behind them, as Hugging Face's scripts and torch.autocast do, and
//              Megatron-LM without its fused kernel (attention_softmax_in_fp32).
enum class SoftmaxKernels : std::uint8_t { kernel, operators, fp32 };

// What products that add to sums of gradients give autograd in place of a gradient, which it drops:
// nothing, an empty array for each product, or one array for all products of one shape of weights,
// which stays. Source: Transformer Engine, module/base.py, get_dummy_wgrad (2.3 on), and linear.py
// before it; Megatron-Core, tensor_parallel/layers.py, whose output matrix is an array a product.
enum class Placeholders : std::uint8_t { none, dropped, kept };

// How images are stored: pixel by pixel (NHWC, channels last), as tensor cores want them, or
// channel by channel (NCHW), as PyTorch and TensorFlow 1 do unless they are told otherwise.
enum class ImageLayout : std::uint8_t { nhwc, nchw };

// What one replica computes at a time.
struct MicroBatch {
  Option<std::int64_t> size = depends<std::int64_t>(1);  // sequences, images or samples
  Option<std::int64_t> sequence_length =
      depends<std::int64_t>(1);                      // tokens; ignored by networks of images
  Option<std::int64_t> decoder_sequence_length = 0;  // of a decoder that has an encoder beside it
  Option<std::int64_t> predictions = 0;  // tokens that a masked-language head sees; 0: all
  // Tokens of each document of a decoder's sequence, beyond which nobody attends; 0: one is all.
  Option<std::int64_t> document_length = 0;
  friend bool operator==(const MicroBatch&, const MicroBatch&) = default;
};

// Ranks that divide a layer's matrices.
struct TensorParallel {
  bool sequence = false;  // norms and dropout are divided too, along the sequence
  TensorOverlap overlap = TensorOverlap::weight_gradient;
  Option<int> chunks = 0;  // of TensorOverlap::chunked: pieces; 0: as Transformer Engine
  // With `sequence`: weight gradients read what the forward pass gathered instead of gathering a
  // kept shard again.
  bool keep_gathered_inputs = false;
  // Separate projections of one input gather it each, and reduce its gradient each.
  bool gather_per_projection = false;
  bool gather_logits = false;  // every rank computes the loss of the whole vocabulary
  friend bool operator==(const TensorParallel&, const TensorParallel&) = default;
};

// Ranks that divide the tokens of a sequence.
struct ContextParallel {
  ContextMethod method = ContextMethod::ring;
  friend bool operator==(const ContextParallel&, const ContextParallel&) = default;
};

// Ranks that divide a layer's experts.
struct ExpertParallel {
  int ranks = 1;                          // that share the experts of a layer
  Option<int> tensor = depends(1);        // ranks that divide the columns of each
  Option<double> capacity = 0;            // capacity factor of an expert; 0: no token is dropped
  bool hierarchical_dispatch = false;     // rows that go to one server share their way to it
  std::optional<Dtype> dispatch_dtype{};  // of rows on their way to experts; without: as stored
  friend bool operator==(const ExpertParallel&, const ExpertParallel&) = default;
};

// What of the forward pass runs again in the backward pass.
struct Recomputation {
  Recompute form = Recompute::none;
  RecomputeModules modules;  // of Recompute::modules
  RecomputeLayers layers;
  // Of Recompute::full: what follows the last tensor that the backward pass reads is not run again.
  bool stops_early = false;
  // The micro-batch of a step whose backward pass comes first on a stage keeps everything there:
  // the last one, where they come in reverse (torchgpipe), and the first, where they do not.
  bool except_last = false;
  // What runs again before the first gradients of a backward pass does so before they arrive.
  bool ahead = false;
  friend bool operator==(const Recomputation&, const Recomputation&) = default;
};

// Which kernels a layer is made of.
struct KernelChoice {
  AttentionKernel attention = AttentionKernel::unfused;
  Fusion fusion = Fusion::by_hand;  // a convolutional network's kernels are eager ones either way
  std::optional<LossKernels> loss;  // of logits and loss; empty: as `fusion`
  Placeholders placeholders = Placeholders::none;  // fused, of gradients of weights
  ImageLayout images = ImageLayout::nhwc;          // of networks of images
  bool fused_batch_norms = false;  // with additions and ReLUs behind them (fused_norms.h)
  bool norms_read_fp32 = false;    // fused: copies of their inputs, whose gradients are cast back
  // As plain operators, where an eager execution of others has a kernel (plain_operators.cpp).
  bool norms_by_operators = false, activations_by_operators = false, dropout_by_operators = false;
  // An RMSNorm by operators scales its 16-bit input, not the fp32 copy of which it takes squares,
  // and keeps both; without: T5's do.
  std::optional<bool> norms_scale_input{};
  std::optional<bool> rotary_by_kernel{};  // without: eager ones are operators, others a kernel
  std::optional<SoftmaxKernels> softmax;   // of unfused attention; without: of_softmax()
  bool bias_by_kernel = false;             // eager: biases are added behind products, not by them
  bool separate_projections = false;       // not fused: queries, keys and values by a product each
  bool separate_gate = false;              // gate and up projection by a product each
  // Not fused: attention's kernel reads a key and a value for every query head, each copied before.
  bool repeated_key_values = false;
  bool separate_experts = false;  // a launch for each expert's product
  // By the router, in the activation's kernel, so that what they are combined from is not kept.
  bool rows_weighted_in_activation = false;
  bool expert_biases_by_operators = false;  // of fc2, weighted by the router (experts.cpp)
  bool expert_clamps_by_operators = false;  // of what fc1 gives, beside the activation's kernel
  // Not fused attention: products of heads whose numbers are no multiple of 16 bytes in fp32, on
  // CUDA cores.
  bool unaligned_heads_in_fp32 = false;
  bool broadcasts_in_vectors = false;  // eager: copies and broadcasts handle no numbers one by one
  LossKernels of_loss() const {
    if (loss) return *loss;
    if (fusion == Fusion::by_hand) return LossKernels::by_hand;
    return fusion == Fusion::eager ? LossKernels::eager : LossKernels::compiled;
  }
  SoftmaxKernels of_softmax() const {
    return softmax.value_or(fusion == Fusion::eager ? SoftmaxKernels::operators
                                                    : SoftmaxKernels::kernel);
  }
  bool rotary_by_operators() const { return !rotary_by_kernel.value_or(fusion != Fusion::eager); }
  // Attention is one kernel, an `Attention`, rather than products and what is between them.
  bool one_attention() const { return attention != AttentionKernel::unfused; }
  // It is, and keeps no scores in memory.
  bool fused_attention() const {
    return one_attention() && attention != AttentionKernel::sdpa_math;
  }
  friend bool operator==(const KernelChoice&, const KernelChoice&) = default;
};

// How a layer is executed. Degrees divide the layer; sizes are those of one micro-batch.
struct Execution {
  MicroBatch micro_batch;
  std::int64_t memory_length = 0;  // tokens that cross-attention sees; set inside models only
  int tensor = 1;                  // tensor-parallel degree
  int context = 1;                 // context-parallel degree: parts of the sequence
  int replicas = 1;                // data-parallel degree: ranks that share a recommender's tables
  TensorParallel tensor_parallel;
  ContextParallel context_parallel;
  ExpertParallel experts;
  Recomputation recompute;
  KernelChoice kernels;
  Finetune finetune;
  bool trains = true;  // without: forward passes alone, which drop nothing
  // Products of gradients of weights add to sums of that type; without, they write their results.
  std::optional<Dtype> gradient_sums{};
  Dtype compute = Dtype::bf16;
  // torch.autocast: weights, norms and what layers hand on are fp32, products read 16-bit copies.
  bool autocast = false;
  bool fp8_inputs = false;  // fp8 compute: inputs of layers' products are kept and gathered in fp8
  bool fp8_gates = false;   // what gated activations read is kept in fp8
  Fp8Casts fp8;             // fp8 compute: how operands are cast
  friend bool operator==(const Execution&, const Execution&) = default;
};

// Pieces in which a rank's own tokens are exchanged with TensorOverlap::chunked. As Transformer
// Engine does, gathers go round in a ring and are not cut further, scatters are cut in four.
inline constexpr int kDefaultTensorChunks = 4;
inline int pieces_of_rows(const Execution& execution) {
  const int chunks = execution.tensor_parallel.chunks;
  return chunks > 0 ? chunks : kDefaultTensorChunks;
}

}  // namespace trainyard::models
