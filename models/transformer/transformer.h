// A transformer cut for one tensor-parallel rank. Symbols follow Korthikanti et al. 2022: s
// sequence length, b micro-batch, h hidden size, a attention heads, t tensor-parallel degree; m = s
// b tokens.
//
// Tensor parallelism splits the attention heads, the feed-forward columns and the vocabulary.
// Norms, dropout and residual additions see all m tokens, or m/t of them with sequence parallelism.
// Source: Shoeybi et al., Megatron-LM, 2019; Korthikanti et al., Reducing Activation Recomputation
// in Large Transformer Models, 2022.
#pragma once

#include <cstdint>

#include "models/families/network.h"
#include "models/layer/layer_script.h"
#include "models/layer/work_list.h"
#include "models/transformer/networks.h"
#include "sim/base/divide.h"

namespace trainyard::models {

// What one rank of the tensor-parallel group computes and keeps, as dimensions.
struct TransformerSlice {
  std::int64_t tokens = 0;        // m, of the micro-batch; a part of them with context parallelism
  std::int64_t shard_tokens = 0;  // tokens seen outside the tensor-parallel regions
  std::int64_t sequence_length = 0, micro_batch = 0;  // of whole sequences
  std::int64_t context = 1;                           // parts of a sequence
  ContextParallel context_parallel;
  std::int64_t hidden = 0;           // h, never split
  std::int64_t heads = 0;            // a/t
  std::int64_t kv_heads = 0;         // of this rank
  std::int64_t head_size = 0;        // latent attention: the mean of queries' and values'
  std::int64_t qkv_width = 0;        // columns of the fused query, key and value projection
  std::int64_t attention_width = 0;  // a hs / t
  // Heads of keys, and of values, that attention's kernel reads; columns of all it does.
  std::int64_t attended_heads() const { return kernels.repeated_key_values ? heads : kv_heads; }
  std::int64_t attended_width() const {
    return qkv_width + 2 * (attended_heads() - kv_heads) * head_size;
  }
  std::int64_t ffn = 0;         // f/t
  std::int64_t fc1_width = 0;   // f/t, twice that with a gate
  std::int64_t vocabulary = 0;  // rows of the embedding, rounded up
  // What cross-attention reads, all and outside the tensor-parallel regions; 0: there is none.
  std::int64_t memory_length = 0, memory_tokens = 0, memory_shard_tokens = 0;
  std::int64_t window = 0;  // tokens that a token sees; 0: all before it
  bool chunked = false;
  LatentAttention latent;
  std::int64_t compressed_width() const {
    return latent.query_rank + latent.key_value_rank + latent.rope_size;
  }

  Mamba mamba;  // of this rank
  Content content = Content::whole;

  Experts moe;
  std::int64_t routed_rows = 0;    // rows that the rank sends to experts: its tokens, k times
  bool rows_vary = false;          // that arrive at the experts of a rank, as none is dropped
  std::int64_t local_experts = 0;  // that the rank holds, or a part of
  std::int64_t expert_tensor = 1;
  std::int64_t expert_ffn = 0;  // columns of each on this rank
  std::int64_t shared_ffn = 0;  // columns of the shared experts on this rank
  bool expert_parallel = false;
  Routing routing;                 // if rows share their way to experts
  std::int64_t arriving_rows = 0;  // at the rank of the experts, before a copy is made for each
  Bytes dispatched_row{};          // on its way to experts
  // Of the fused kernel between fc1 and fc2.
  MemoryOp activation_op() const {
    return fc1_width == ffn ? MemoryOp::activation : MemoryOp::gated_activation;
  }
  MemoryOp expert_activation_op() const {
    return rows_vary && fc1_width != ffn ? MemoryOp::varying_gated_activation : activation_op();
  }
  std::int64_t expert_fc1_width() const { return fc1_width == ffn ? expert_ffn : 2 * expert_ffn; }
  // Rows that the rank's experts take in when the load is even.
  std::int64_t expert_rows() const { return routed_rows * expert_tensor; }
  std::int64_t rows_per_expert() const { return divide_up(expert_rows(), local_experts); }

  bool tensor_parallel = false, sequence_parallel = false, overlap = false;
  bool gathers_logits = false;  // for a loss that each rank computes whole
  bool gathers_per_projection = false;
  bool keeps_gathered = false;      // inputs of products that sequence parallelism gathers
  std::int64_t tensor = 1;          // ranks of the group
  std::int64_t gather_pieces = 1;   // of a matrix multiplication and the gather of its input
  bool gathers_in_ring = false;     // these pieces are the ranks' parts, the own one first
  std::int64_t scatter_pieces = 1;  // ... and the reduction of its output
  FeedForward feed_forward = FeedForward::gelu;
  Positional positional = Positional::learned;
  Norm norm = Norm::layer_norm;
  bool causal = true, post_norm = false;
  BlockNorms block_norms = BlockNorms::before;
  Blocks blocks = Blocks::sequential;
  bool parallel() const { return blocks != Blocks::sequential; }
  HeadNorm head_norm = HeadNorm::none;
  bool dropout = false, score_dropout = false;
  Biases biases = false;
  Biases trained_biases = false;                    // of them, those with gradients
  bool trained_norms = true, trained_heads = true;  // head norms are of attention
  KernelChoice kernels;
  Dtype gemm = Dtype::bf16;
  // Everything but the operands of matrix multiplications: fp8 training keeps those in bf16.
  Dtype stored = Dtype::bf16;

  Fp8Casts casts;  // before products of fp8

  // What weight gradients need of the inputs of matrix multiplications, and what the group gathers
  // of them.
  Dtype inputs = Dtype::bf16;

  // Of what gated activations read, for their gradients: in fp8 it is cast, and back before them.
  // Source: Megatron-Core, core/fusions/fused_bias_swiglu.py, fp8_input_store.
  Dtype kept_gates = Dtype::bf16;
  Bytes kept_gate_bytes(std::int64_t rows, std::int64_t width) const {
    return rows * width * size_of(kept_gates);
  }
  bool casts_gates() const { return kept_gates != stored && fc1_width != ffn; }

  // Of the output matrix, whose product drops what it hands autograd either way.
  Bytes head_placeholder() const {
    return kernels.placeholders == Placeholders::none ? Bytes(0) : vocabulary * hidden * element();
  }

  // Between layers, to which each adds what it has made.
  Dtype stream = Dtype::bf16;

  bool autocast = false;  // Execution::autocast

  Bytes element() const { return size_of(stored); }
  // Of products of heads, where attention is not one kernel.
  Dtype of_heads() const {
    constexpr std::int64_t kAligned = 16;  // bytes
    const bool unaligned = (head_size * element()).count() % kAligned != 0;
    return unaligned && kernels.unaligned_heads_in_fp32 ? Dtype::fp32 : stored;
  }
  // Of unfused attention; torch.autocast takes softmaxes in fp32.
  SoftmaxKernels softmax() const { return autocast ? SoftmaxKernels::fp32 : kernels.of_softmax(); }
  // It is of fp32 copies of 16-bit scores.
  bool widens_scores() const {
    return !kernels.one_attention() && element() < size_of(Dtype::fp32) &&
           softmax() == SoftmaxKernels::fp32;
  }
  // What norms read is narrower than the fp32 copies of it that they are said to read.
  bool norms_cast() const {
    return kernels.norms_read_fp32 && size_of(stored) < size_of(Dtype::fp32) && stream == stored;
  }
  // Of norms, sums and embeddings, whose operands torch.autocast leaves as they are, or widens.
  Bytes wide_element() const { return autocast ? size_of(Dtype::fp32) : element(); }
  Bytes input_element() const { return size_of(inputs); }
  // The hidden states of all tokens as products make them and a tensor-parallel collective carries
  // them.
  Bytes hidden_states() const { return tokens * hidden * element(); }
  // Of the tokens outside the tensor-parallel regions, before they are added to the stream.
  Bytes branch_shard() const { return shard_tokens * hidden * element(); }
  // The same between layers: of all tokens, and of those outside the tensor-parallel regions.
  Bytes stream_states() const { return tokens * hidden * size_of(stream); }
  Bytes stream_shard() const { return shard_tokens * hidden * size_of(stream); }
  // The same as a matrix multiplication reads them.
  Bytes gathered_states() const { return tokens * hidden * input_element(); }
  // What is kept of them for the weight gradient.
  Bytes kept_inputs() const {
    return (keeps_gathered ? tokens : shard_tokens) * hidden * input_element();
  }
};

TransformerSlice slice(const Transformer& network, const Execution& execution,
                       const LayerForm& form = {});

inline bool gated(const TransformerSlice& slice) {
  return slice.fc1_width != slice.ffn;
}
inline bool eager(const TransformerSlice& slice) {
  return slice.kernels.fusion == Fusion::eager;
}
// The square of an activation is a kernel of its own.
inline bool squares(const TransformerSlice& slice) {
  return eager(slice) && slice.feed_forward == FeedForward::squared_relu;
}
// Limits of both halves before the experts' gate are kernels of their own.
inline bool clamps_by_operators(const TransformerSlice& slice) {
  return slice.moe.clamped && (slice.kernels.expert_clamps_by_operators || eager(slice));
}

// Collectives at the border of a tensor-parallel region, waited at once; nothing when t = 1.
void gather_tokens(WorkList& list, const TransformerSlice& slice, const std::string& name);
// The same of what a matrix multiplication reads.
void gather_inputs(WorkList& list, const TransformerSlice& slice, const std::string& name);
void reduce_partial_sums(WorkList& list, const TransformerSlice& slice, const std::string& name);

// A matrix multiplication whose rows are all tokens, gathered from the group first, or whose
// products are partial sums that the group reduces after it; in pieces with TensorOverlap::chunked.
void gathered_product(WorkList& list, const TransformerSlice& slice, const std::string& gather,
                      const std::string& name, const Gemm& product);
void reduced_product(WorkList& list, const TransformerSlice& slice, const std::string& name,
                     const Gemm& product);
// Sets the pieces of a slice whose other members are known.
void cut_products(TransformerSlice& slice, const Execution& execution);
// The buffers of one rank, which all layers share.
Bytes chunked_buffers(const TransformerSlice& slice);

// Input and weight gradient of a linear layer that is split by columns (qkv, fc1, logits), with the
// collectives of its input and of its input's gradient.
void column_backward(WorkList& list, const TransformerSlice& slice, const std::string& name,
                     std::int64_t columns);
// The same of several such layers of one input, whose gradients are added up; before the group
// reduces them, or behind it where each layer gathers for itself.
struct Columns {
  std::string name;
  std::int64_t width = 0;
};
// GELU as plain operators, and the bytes that autograd keeps of each number: the input, the output
// of the tanh and the factor made of it; with autocast these three in fp32 and half the input, the
// other factor, in 16 bits.
bool runs_gelu_by_operators(const TransformerSlice& slice);
Bytes kept_by_gelu_operators(const TransformerSlice& slice);
// Linear layers of one input: queries, keys and values, or the two halves of a gate, where a script
// has them apart.
int linear_layers(const TransformerSlice& slice, PieceKind kind);
void column_backward(WorkList& list, const TransformerSlice& slice, const std::string& name,
                     const std::vector<Columns>& layers);
// Those of qkv or fc1, called `name` where they are one.
std::vector<Columns> column_layers(const TransformerSlice& slice, PieceKind kind,
                                   const std::string& name);
// One of them: the first gathers the input for all, or each does.
void column_forward(WorkList& list, const TransformerSlice& slice, const std::string& name,
                    const Columns& layer, bool first);

// Gradients of a linear layer that is split by rows (proj, fc2): its output's gradient arrives
// whole, or is gathered first with sequence parallelism; its input's stays on the rank.
void row_backward(WorkList& list, const TransformerSlice& slice, const std::string& name,
                  std::int64_t rows);

void residual_forward(WorkList& list, const TransformerSlice& slice, std::string name);
void residual_backward(WorkList& list, const TransformerSlice& slice, std::string name);

// The bias of relative positions, of one stack: looked up for all pairs of tokens, and its
// gradient. Nothing with other positions.
void position_bias_forward(WorkList& list, const TransformerSlice& slice);
void position_bias_backward(WorkList& list, const TransformerSlice& slice);
Bytes position_bias_bytes(const TransformerSlice& slice);
std::int64_t position_bias_parameters(const Transformer& network, int tensor);

void norm_forward(WorkList& list, const TransformerSlice& slice, std::string name);
void norm_backward(WorkList& list, const TransformerSlice& slice, std::string name);

// The same as PyTorch runs it, without Megatron-LM's fused kernels: a layer, and the two ends.
void add_pytorch(LayerScript& script, const TransformerSlice& slice, bool mixture);
void pytorch_embedding_forward(WorkList& list, const TransformerSlice& slice);
void pytorch_embedding_backward(WorkList& list, const TransformerSlice& slice, bool tied);
// Of the output layer, without the loss.
void pytorch_logits_forward(WorkList& list, const TransformerSlice& slice);
void pytorch_logits_backward(WorkList& list, const TransformerSlice& slice);

// Gradients that live beside the kept activations while one operator runs backward.
Bytes pytorch_layer_transient(const TransformerSlice& slice, bool mixture);
// What the loss keeps of the logits, and what its backward pass needs besides.
Bytes pytorch_logits_kept(const TransformerSlice& slice);
Bytes pytorch_logits_transient(const TransformerSlice& slice);

// NetworkWork::input of encoders' and decoders' tokens.
Bytes input_tokens(const MicroBatch& batch);

LayerWork transformer_layer(const Transformer& network, const Execution& execution,
                            const LayerForm& form = {});
LayerWork embedding_layer(const Transformer& network, const Execution& execution);
LayerWork logits_layer(const Transformer& network, const Execution& execution);

// The form of each layer of a stack; those that occur, in the order in which they first do.
std::vector<LayerForm> forms_of_layers(const Transformer& network, const Finetune& how);
std::vector<LayerForm> layer_forms(const Transformer& network, const Finetune& how = {});

// Its pieces, tensors included.
LayerScript transformer_script(const Transformer& network, const Execution& execution,
                               const LayerForm& form = {});
// What the backward pass needs of the forward pass, written to the pieces.
void save_tensors(LayerScript& script, const TransformerSlice& slice);

// The weights among a layer's parameters, of the two ends' too.
std::vector<WeightMatrix> layer_matrices(const TransformerSlice& slice, bool mixture,
                                         const Finetune& how = {});
std::vector<WeightMatrix> embedding_matrices(const TransformerSlice& slice,
                                             std::int64_t parameters);
std::vector<WeightMatrix> logits_matrices(const TransformerSlice& slice);

// Trainable parameters on one of `tensor` ranks, without those of routed experts.
struct LayerParameters {
  std::int64_t attention = 0, feed_forward = 0, norms = 0;  // attention: or Mamba
  std::int64_t all() const { return attention + feed_forward + norms; }
};
LayerParameters parts_of_layer(const Transformer& network, int tensor, const LayerForm& form);
std::int64_t layer_parameters(const Transformer& network, int tensor, const LayerForm& form = {});
std::int64_t embedding_parameters(const Transformer& network, int tensor,
                                  std::int64_t sequence_length);
std::int64_t output_matrix_parameters(const Transformer& network, int tensor);
std::int64_t norm_parameters(const Transformer& network);

// The chain of a stack: `first`, as many times `layer` as there are layers, `last`; a layer split
// counts the layers only.
NetworkWork stack_work(LayerWork first, LayerWork layer, LayerWork last, std::int64_t layers);
NetworkWork transformer_work(const Transformer& network, const Execution& execution);
std::int64_t transformer_parameters(const Transformer& network, std::int64_t sequence_length);

// Why layers cannot be executed so, and why a stack that is no decoder cannot be one.
void check_stack(Problems& problems, const Transformer& network, const Execution& execution);
void check_plain(Problems& problems, const Transformer& stack);

}  // namespace trainyard::models
