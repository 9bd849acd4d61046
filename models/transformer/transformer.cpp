// Tensor-parallel borders, the two ends of a transformer (embedding; logits and loss), and the
// chain.
#include "models/transformer/transformer.h"

#include <algorithm>
#include <utility>

#include "models/transformer/finetune/adapters.h"
#include "models/transformer/pytorch_script.h"

namespace trainyard::models {

void gather_tokens(WorkList& list, const TransformerSlice& s, const std::string& name) {
  if (!s.sequence_parallel) return;
  list.start(name, CollectiveKind::all_gather, s.hidden_states());
  list.wait();
}

void gather_inputs(WorkList& list, const TransformerSlice& s, const std::string& name) {
  if (!s.sequence_parallel) return;
  list.start(name, CollectiveKind::all_gather, s.gathered_states());
  list.wait();
}

void reduce_partial_sums(WorkList& list, const TransformerSlice& s, const std::string& name) {
  if (!s.tensor_parallel) return;
  if (s.sequence_parallel) {
    list.start(name + " reduce-scatter", CollectiveKind::reduce_scatter, s.hidden_states());
  } else {
    list.start(name + " all-reduce", CollectiveKind::all_reduce, s.hidden_states());
  }
  list.wait();
}

std::vector<Columns> column_layers(const TransformerSlice& s, PieceKind kind,
                                   const std::string& name) {
  const std::int64_t width = kind == PieceKind::qkv ? s.qkv_width : s.fc1_width;
  if (linear_layers(s, kind) == 1) return {{name, width}};
  if (kind == PieceKind::fc1) return {{"gate", s.ffn}, {"up", s.ffn}};
  const std::int64_t keys = s.kv_heads * s.head_size;
  return {{"query", width - 2 * keys}, {"key", keys}, {"value", keys}};
}

void column_forward(WorkList& list, const TransformerSlice& s, const std::string& name,
                    const Columns& layer, bool first) {
  const Gemm product{s.tokens, layer.width, s.hidden, 1, s.gemm};
  if (!first && !s.gathers_per_projection) return list.kernel(layer.name, product);
  const std::string& what = s.gathers_per_projection ? layer.name : name;
  gathered_product(list, s, what + " all-gather", layer.name, product);
}

namespace {

void sum_of_gradients(WorkList& list, const TransformerSlice& s, const std::string& name,
                      std::int64_t tokens) {
  const Bytes summed = tokens * s.hidden * s.wide_element();
  list.kernel(name + " input gradient sum", MemoryBound{MemoryOp::elementwise, 2 * summed, summed});
}

// With sequence parallelism only a shard of the input was kept, so it is gathered again for the
// weight gradient, unless the slice keeps what was gathered. Both collectives have a matrix
// multiplication to hide behind. Source: Korthikanti et al. 2022, section 4.2.2; the backward pass
// of Megatron-LM's LinearWithGradAccumulationAndAsyncCommunication.
void reduced_gradients(WorkList& list, const TransformerSlice& s, const std::string& name,
                       const std::vector<Columns>& layers) {
  const Bytes bytes = s.hidden_states();
  const bool gathers_again = s.sequence_parallel && !s.keeps_gathered;
  if (gathers_again) {
    list.start(name + " input all-gather", CollectiveKind::all_gather, s.gathered_states());
    if (!s.overlap) list.wait();
  }
  for (const Columns& layer : layers)
    list.kernel(layer.name + " input gradient", Gemm{s.tokens, s.hidden, layer.width, 1, s.gemm});
  for (std::size_t sum = 1; sum < layers.size(); ++sum)
    sum_of_gradients(list, s, name, s.tokens);
  if (gathers_again && s.overlap) list.wait();
  if (s.sequence_parallel) {
    list.start(name + " input gradient reduce-scatter", CollectiveKind::reduce_scatter, bytes);
  } else if (s.tensor_parallel) {
    list.start(name + " input gradient all-reduce", CollectiveKind::all_reduce, bytes);
  }
  if (s.tensor_parallel && !s.overlap) list.wait();
  for (const Columns& layer : layers)
    list.weight_gradient(layer.name + " weight gradient",
                         Gemm{layer.width, s.hidden, s.tokens, 1, s.gemm});
  if (s.tensor_parallel && s.overlap) list.wait();
}

}  // namespace

void column_backward(WorkList& list, const TransformerSlice& s, const std::string& name,
                     const std::vector<Columns>& layers) {
  if (!s.gathers_per_projection) return reduced_gradients(list, s, name, layers);
  for (std::size_t layer = 0; layer < layers.size(); ++layer) {
    reduced_gradients(list, s, layers[layer].name, {layers[layer]});
    if (layer > 0) sum_of_gradients(list, s, name, s.shard_tokens);
  }
}

void column_backward(WorkList& list, const TransformerSlice& s, const std::string& name,
                     std::int64_t columns) {
  column_backward(list, s, name, {{name, columns}});
}

void row_backward(WorkList& list, const TransformerSlice& s, const std::string& name,
                  std::int64_t rows) {
  gathered_product(list, s, name + " gradient all-gather", name + " input gradient",
                   Gemm{s.tokens, rows, s.hidden, 1, s.gemm});
  list.weight_gradient(name + " weight gradient", Gemm{s.hidden, rows, s.tokens, 1, s.gemm});
}

void residual_forward(WorkList& list, const TransformerSlice& s, std::string name) {
  const std::int64_t elements = s.shard_tokens * s.hidden;
  const Bytes states = elements * s.element();
  const Bytes mask(s.dropout ? elements : 0);
  list.kernel(std::move(name), MemoryBound{s.dropout ? MemoryOp::dropout : MemoryOp::elementwise,
                                           2 * states, states + mask});
}

// Autograd adds the gradients of the stream and of the branch that reads it by a kernel of its own.
void residual_backward(WorkList& list, const TransformerSlice& s, std::string name) {
  const std::int64_t elements = s.shard_tokens * s.hidden;
  const Bytes states = elements * s.element();
  if (s.dropout)
    list.kernel(name + " dropout",
                MemoryBound{MemoryOp::dropout, states + Bytes(elements), states});
  list.kernel(std::move(name), MemoryBound{MemoryOp::elementwise, 2 * states, states});
}

// What is normalised may be copied to fp32 before, the result has the 16 bits of the weight.
// Source: InternLM/InternEvo, internlm/model/modeling_internlm.py, residual.float(); Apex,
// MixedFusedRMSNorm.
void norm_forward(WorkList& list, const TransformerSlice& s, std::string name) {
  const std::int64_t elements = s.shard_tokens * s.hidden;
  const Bytes states = elements * s.wide_element(), wide = elements * size_of(Dtype::fp32);
  const MemoryOp op = s.norm == Norm::layer_norm ? MemoryOp::layer_norm : MemoryOp::rms_norm;
  if (s.norms_cast())
    list.kernel(name + " input in fp32", MemoryBound{MemoryOp::elementwise, states, wide});
  list.kernel(std::move(name), MemoryBound{op, s.norms_cast() ? wide : states, states});
}

// One kernel reads its operands once for the gradients of its input and of its parameters. Source:
// Apex, contrib/csrc/layer_norm/ln_bwd_kernels.cuh, which Megatron-LM and Transformer Engine run.
void norm_backward(WorkList& list, const TransformerSlice& s, std::string name) {
  const std::int64_t elements = s.shard_tokens * s.hidden;
  const Bytes states = elements * s.element(), wide = elements * size_of(Dtype::fp32);
  const MemoryOp op = s.norm == Norm::layer_norm ? MemoryOp::layer_norm : MemoryOp::rms_norm;
  if (!s.norms_cast()) return list.kernel(std::move(name), MemoryBound{op, 2 * states, states});
  list.kernel(name, MemoryBound{op, states + wide, wide});
  list.kernel(name + " from fp32", MemoryBound{MemoryOp::elementwise, wide, states});
}

namespace {

// The embedding as it is, or without a backward pass where nothing of it trains.
LayerWork as_trained(LayerWork work, const Transformer& network, const Finetune& how) {
  if (how.trains_whole(Part::embedding)) return work;
  work.frozen.parameters = std::exchange(work.parameters, 0);
  work.frozen.tied = network.tied_embeddings ? work.matrices.front().elements() : 0;
  work.matrices.clear();
  work.backward.clear();
  work.kept = {};
  work.transient = Bytes(0);
  return work;
}

}  // namespace

// Every rank looks all tokens up in its part of the vocabulary; foreign ones give zeros, and the
// sum over the group is the embedding. A rank reads m h / t elements of its own rows, writes m h
// and overwrites the foreign m h (t-1)/t with zeros: 2 m h together, whatever t is. Source:
// Megatron-LM's VocabParallelEmbedding.
LayerWork embedding_layer(const Transformer& network, const Execution& execution) {
  const TransformerSlice s = slice(network, execution);
  const Bytes states = s.hidden_states();
  const std::int64_t elements = s.shard_tokens * s.hidden;
  const Bytes shard = elements * s.element();
  const Bytes mask(elements);
  const bool positions = s.positional == Positional::learned;

  LayerWork work;
  work.name = "embedding";
  work.parameters =
      embedding_parameters(network, execution.tensor, execution.micro_batch.sequence_length);
  work.matrices = embedding_matrices(s, work.parameters);
  if (s.dropout) work.kept.add(Module::embedding, mask);
  work.kept.add(Module::embedding, position_bias_bytes(s));
  work.output = s.stream_states();
  if (s.kernels.fusion != Fusion::by_hand) {
    WorkList forward;
    WorkList backward = WorkList::of_backward();
    pytorch_embedding_forward(forward, s);
    position_bias_forward(forward, s);
    position_bias_backward(backward, s);
    pytorch_embedding_backward(backward, s, network.tied_embeddings);
    work.forward = forward.take();
    work.backward = backward.take();
    if (network.tied_embeddings) work.transient = s.vocabulary * s.hidden * s.wide_element();
    return as_trained(std::move(work), network, execution.finetune);
  }

  WorkList forward;
  forward.kernel("embedding", MemoryBound{MemoryOp::embedding, states, states});
  reduce_partial_sums(forward, s, "embedding");
  if (positions) {
    forward.kernel("positions", MemoryBound{MemoryOp::elementwise, 2 * shard, shard});
  }
  if (s.dropout) {
    forward.kernel("embedding dropout", MemoryBound{MemoryOp::dropout, shard, shard + mask});
  }
  position_bias_forward(forward, s);
  if (network.embedding_norm) {
    norm_forward(forward, s, "embedding norm");
    work.kept.add(Module::embedding, shard);
  }

  WorkList backward = WorkList::of_backward();
  if (network.embedding_norm) norm_backward(backward, s, "embedding norm backward");
  position_bias_backward(backward, s);
  if (s.dropout) {
    backward.kernel("embedding dropout backward",
                    MemoryBound{MemoryOp::dropout, shard + mask, shard});
  }
  // Scatter-add: reads the gradient and the rows it is added to.
  if (positions) {
    backward.kernel("positions backward", MemoryBound{MemoryOp::embedding, 2 * shard, shard});
  }
  gather_tokens(backward, s, "embedding gradient all-gather");
  backward.kernel("embedding backward", MemoryBound{MemoryOp::embedding, 2 * states, states});

  work.forward = forward.take();
  work.backward = backward.take();
  return as_trained(std::move(work), network, execution.finetune);
}

namespace {

bool by_hand(const TransformerSlice& s) {
  return s.kernels.fusion == Fusion::by_hand;
}

// Megatron-LM's kernels, beside whatever layers.
bool loss_by_hand(const TransformerSlice& s) {
  return by_hand(s) || s.kernels.of_loss() == LossKernels::by_hand;
}

Bytes single_logits(const TransformerSlice& s) {
  return s.tokens * s.vocabulary * size_of(Dtype::fp32);
}

void logits_forward(WorkList& list, const TransformerSlice& s) {
  if (!by_hand(s)) return pytorch_logits_forward(list, s);
  norm_forward(list, s, "final norm");
  gather_tokens(list, s, "logits all-gather");
  list.kernel("logits", Gemm{s.tokens, s.vocabulary, s.hidden, 1, s.gemm});
}

void logits_backward(WorkList& list, const TransformerSlice& s) {
  if (!by_hand(s)) return pytorch_logits_backward(list, s);
  column_backward(list, s, "logits", s.vocabulary);
  norm_backward(list, s, "final norm backward");
}

// Whether anything before the head has a gradient.
bool head_passes_on(const Transformer& network, const Finetune& how) {
  const std::vector<LayerForm> forms = forms_of_layers(network, how);
  return std::any_of(forms.begin(), forms.end(),
                     [](const LayerForm& form) { return form.reach != Reach::below; });
}

// Megatron-LM's cross-entropy, counted kernel by kernel, in bytes of a logit (d in its own type):
//
//                    reads                                      writes
//   forward          to fp32 d, maximum 4, difference 4,        4, -, 4, 4, -, 4
//                    exponential 4, sum 4, quotient 4
//   forward, fused   to fp32 and maximum d, exponential 4,      4, 4, -, 4
//                    sum 4, quotient 4
//   backward         times the loss's gradient 4, from fp32 4   4, d
//
//   in place         maximum and sum d, gradient d              -, d
//   backward         times the loss's gradient d                d
//
// What picks the logit of the token that follows is left out, but for the host's launches where
// layers are operators: eleven forward beside those above, four backward. fp32 logits have no
// casts. Source:
// Megatron-LM, megatron/core/tensor_parallel/cross_entropy.py, and fusions/fused_cross_entropy.py,
// whose functions are torch.compile's; in place, Transformer Engine,
// transformer_engine/common/triton/cross_entropy.py.
void loss_forward(WorkList& list, const TransformerSlice& s) {
  if (!loss_by_hand(s)) return PytorchScript(list, s).loss();
  const bool fused = s.kernels.loss == LossKernels::compiled, cast = s.stored != Dtype::fp32;
  const Bytes single = single_logits(s), logits = s.tokens * s.vocabulary * s.element();
  if (s.kernels.loss == LossKernels::in_place) {
    list.kernel("cross-entropy sums", MemoryBound{MemoryOp::elementwise, logits, Bytes(0)});
    list.kernel("cross-entropy and gradient", MemoryBound{MemoryOp::elementwise, logits, logits});
    return;
  }
  const Bytes read = (fused ? 3 : 5) * single + (fused || cast ? logits : Bytes(0));
  const Bytes written = ((fused ? 2 : 3) + (cast ? 1 : 0)) * single;
  const MemoryBound moved{MemoryOp::parallel_cross_entropy, read, written};
  if (by_hand(s)) return list.kernel("cross-entropy", moved);
  list.kernel("cross-entropy", moved, 5 + 11 + (cast ? 1 : 0));
}

void loss_backward(WorkList& list, const TransformerSlice& s) {
  if (!loss_by_hand(s)) return PytorchScript(list, s).loss_gradient();
  const Bytes single = single_logits(s), logits = s.tokens * s.vocabulary * s.element();
  if (s.kernels.loss == LossKernels::in_place)
    return list.kernel("cross-entropy backward",
                       MemoryBound{MemoryOp::elementwise, logits, logits});
  const bool cast = s.stored != Dtype::fp32;
  const MemoryBound moved{MemoryOp::parallel_cross_entropy, (cast ? 2 : 1) * single,
                          single + (cast ? logits : Bytes(0))};
  if (by_hand(s)) return list.kernel("cross-entropy backward", moved);
  list.kernel("cross-entropy backward", moved, 1 + 4 + (cast ? 1 : 0));
}

// What the loss keeps, and what is there beside it while its kernels run. Under Megatron-LM's own
// layers nothing is counted beside it; elsewhere its kernels have the fp32 logits forward, and
// where these are a copy the block of those of 16 bits, which is too small for anything else;
// backward the gradient of those, as that of the fp32 ones is where the softmax was.
void hold_logits(const TransformerSlice& s, LayerWork& work) {
  const Bytes single = single_logits(s), logits = s.tokens * s.vocabulary * s.element();
  if (!loss_by_hand(s)) {
    work.logits = pytorch_logits_kept(s);
    work.transient = pytorch_logits_transient(s);
    return;
  }
  work.logits = s.kernels.loss == LossKernels::in_place ? logits : single;
  if (by_hand(s)) return;
  const Bytes copied = s.stored != Dtype::fp32 ? logits : Bytes(0);
  work.forward_transient = single + copied;
  work.transient = copied;
}

}  // namespace

// Kept: the inputs of the norm and of the output matrix, and the fp32 logits; together
// 4 s b h / t (1 + V/h) in 16 bits with sequence parallelism or t = 1.
// Source: Korthikanti et al. 2022, section 4.3.
// A split vocabulary exchanges three fp32 numbers per token: the largest logit, the logit of the
// token that follows, the sum of exponentials. Source: Megatron-LM's VocabParallelCrossEntropy
// (its fused variant joins the last two in one message; three are counted). Gathered logits are
// those of all entries on each rank, put side by side after their all-gather; of their gradient a
// rank keeps its own columns. Source: Megatron-LM, gather_from_tensor_model_parallel_region.
LayerWork logits_layer(const Transformer& network, const Execution& execution) {
  TransformerSlice s = slice(network, execution);
  // fp8 training leaves the output matrix in 16 bits. Source: DeepSeek-AI, DeepSeek-V3, 2024,
  // section 3.3.1; Megatron-LM, whose output layer is not one of Transformer Engine's.
  s.gemm = s.inputs = s.stored;
  TransformerSlice seen = s;  // by the loss
  if (s.gathers_logits) seen.vocabulary = network.vocabulary;
  const Bytes own = s.tokens * s.vocabulary * s.element();
  const Bytes gathered = seen.tokens * seen.vocabulary * s.element();

  WorkList forward;
  logits_forward(forward, s);
  if (s.gathers_logits) {
    forward.start("logits of all ranks all-gather", CollectiveKind::all_gather, gathered);
    forward.wait();
    forward.kernel("logits side by side", MemoryBound{MemoryOp::elementwise, gathered, gathered});
  }
  loss_forward(forward, seen);
  if (s.tensor_parallel && !s.gathers_logits) {
    const Bytes scalars = s.tokens * size_of(Dtype::fp32);
    for (const char* name :
         {"loss maximum all-reduce", "loss predicted logit all-reduce", "loss sum all-reduce"}) {
      forward.start(name, CollectiveKind::all_reduce, scalars);
      forward.wait();
    }
  }

  WorkList backward = WorkList::of_backward();
  loss_backward(backward, seen);
  if (s.gathers_logits)
    backward.kernel("own logits' gradient", MemoryBound{MemoryOp::elementwise, own, own});
  logits_backward(backward, s);

  LayerWork work;
  work.name = "logits and loss";
  work.forward = forward.take();
  work.backward = backward.take();
  const std::int64_t matrix = output_matrix_parameters(network, execution.tensor);
  const Finetune& how = execution.finetune;
  const bool head = how.trains_whole(Part::head), norm = how.trains_whole(Part::norms);
  work.parameters = (head ? matrix : 0) + (norm ? norm_parameters(network) : 0);
  work.frozen.parameters = matrix + norm_parameters(network) - work.parameters;
  if (head) work.matrices = logits_matrices(s);
  work.tied_parameters = network.tied_embeddings && head ? matrix : 0;
  work.frozen.tied = network.tied_embeddings && !head ? matrix : 0;
  const Bytes states = s.shard_tokens * s.hidden * s.element();
  const bool goes_on = head_passes_on(network, how);
  if (norm || goes_on) work.kept.add(Module::layer_input, s.stream_shard());
  if ((how.widens_stream() && !head && (norm || goes_on)) || s.autocast)
    work.kept.add(Module::head, matrix * s.element());
  if (head) work.kept.add(Module::head, s.keeps_gathered ? s.hidden_states() : states);
  hold_logits(seen, work);
  if (head) work.transient = work.transient + s.head_placeholder();
  work.outputs = gathered;
  work.forward_model_flops = Flops(2.0 * static_cast<double>(s.context * s.tokens) *
                                   static_cast<double>(network.vocabulary * s.hidden));
  // One product of three each.
  if (!head) {
    work.backward = without_weight_gradients(work.backward, true);
    work.skipped_flops = work.forward_model_flops;
  }
  if (!norm && !goes_on) {
    work.backward = without_input_gradients(work.backward);
    work.skipped_flops = work.skipped_flops + work.forward_model_flops;
  }
  return work;
}

Bytes input_tokens(const MicroBatch& batch) {
  constexpr std::int64_t kToken = 8;
  return Bytes(batch.size * (batch.sequence_length + batch.decoder_sequence_length) * kToken);
}

NetworkWork stack_work(LayerWork first, LayerWork layer, LayerWork last, std::int64_t layers) {
  NetworkWork work;
  work.kinds = {std::move(first), std::move(layer), std::move(last)};
  work.chain.assign(static_cast<std::size_t>(layers) + 2, 1);
  work.chain.front() = 0;
  work.chain.back() = 2;
  work.divisible.assign(work.chain.size(), true);
  work.divisible.front() = work.divisible.back() = false;
  return work;
}

// Gradients end at the lowest layer of which anything trains, unless the embedding does.
std::vector<LayerForm> forms_of_layers(const Transformer& network, const Finetune& how) {
  std::vector<LayerForm> forms;
  const bool layers_train = how.all() || how.adapts() || how.trains.has(Part::attention) ||
                            how.trains.has(Part::feed_forward) || how.trains.has(Part::norms);
  const std::int64_t first = !layers_train         ? network.layers
                             : how.last_layers > 0 ? network.layers - how.last_layers
                                                   : 0;
  for (std::int64_t layer = 0; layer < network.layers; ++layer) {
    LayerForm form = network.form_of(layer);
    form.frozen = layer < first;
    if (!how.trains_whole(Part::embedding))
      form.reach = layer < first ? Reach::below : layer == first ? Reach::lowest : Reach::passes;
    forms.push_back(form);
  }
  return forms;
}

std::vector<LayerForm> layer_forms(const Transformer& network, const Finetune& how) {
  std::vector<LayerForm> forms;
  for (const LayerForm& form : forms_of_layers(network, how)) {
    if (std::find(forms.begin(), forms.end(), form) == forms.end()) forms.push_back(form);
  }
  return forms;
}

NetworkWork transformer_work(const Transformer& network, const Execution& execution) {
  const std::vector<LayerForm> forms = layer_forms(network, execution.finetune);
  const std::vector<LayerForm> of_layers = forms_of_layers(network, execution.finetune);
  NetworkWork work = stack_work(embedding_layer(network, execution),
                                transformer_layer(network, execution, forms.front()),
                                logits_layer(network, execution), network.layers);
  for (std::size_t i = 1; i < forms.size(); ++i)
    work.kinds.push_back(transformer_layer(network, execution, forms[i]));
  for (std::int64_t layer = 0; layer < network.layers; ++layer) {
    const auto form =
        std::find(forms.begin(), forms.end(), of_layers[static_cast<std::size_t>(layer)]);
    const auto place = static_cast<int>(form - forms.begin());
    work.chain[static_cast<std::size_t>(layer) + 1] = place == 0 ? 1 : place + 2;
  }
  work.input = input_tokens(execution.micro_batch);
  return work;
}

}  // namespace trainyard::models
