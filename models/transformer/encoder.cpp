// The two ends of an encoder on one tensor-parallel rank. m tokens, q of them outside the
// tensor-parallel regions, p of them masked (all, or a number of each sequence); V vocabulary.
//
//   embedding   words (V/t rows, summed over the group), positions, token types; norm where norms
//               stand after the additions; dropout
//   masked LM   the masked tokens are picked; dense h x h, GELU, norm; logits p x V/t with a bias
//   next        first tokens: dense h x h and tanh, two classes
//
//   Every token has logits in Megatron-LM's and Hugging Face's BERT; NVIDIA's DeepLearningExamples
//   and MLPerf pick the masked ones first: a number per sequence, padded to the same for all.
//   Dense layers of the heads are whole on every rank; those of the masked-language head see the
//   rank's own tokens with sequence parallelism.
//   Kept: inputs of both dense layers, of GELU, norm, tanh and logits, and the loss's part.
//   Parameters of BERT: V h + (positions + types) h + 2 h; 12 h^2 + 13 h per layer; heads
//   h^2 + h + 2 h + V and h^2 + h + 2 h + 2 (tied logits).
//
// Source: Devlin et al., BERT, 2019; Hugging Face transformers, modeling_bert.py;
// Megatron-LM, BertLMHead; division of the embedding and the logits as in transformer.h.
#include "models/transformer/encoder.h"

#include <fmt/format.h>

#include "models/families/execution_check.h"
#include "models/transformer/pytorch_script.h"
#include "models/transformer/transformer.h"

namespace trainyard::models {
namespace {

// The rank's part of the tokens that the masked-language head sees.
TransformerSlice masked_tokens(const TransformerSlice& s, const Execution& execution) {
  TransformerSlice masked = s;
  if (execution.micro_batch.predictions == 0) return masked;
  masked.tokens = divide_up(s.micro_batch * execution.micro_batch.predictions, s.context);
  masked.shard_tokens =
      s.sequence_parallel ? divide_up(masked.tokens, execution.tensor) : masked.tokens;
  return masked;
}

class Ends {
 public:
  Ends(const Encoder& network, const Execution& execution)
      : network_(network),
        execution_(execution),
        s_(slice(network.stack, execution)),
        masked_(masked_tokens(s_, execution)) {}

  LayerWork embedding() const;
  LayerWork head() const;

 private:
  bool by_hand() const { return s_.kernels.fusion == Fusion::by_hand; }
  Bytes states() const { return s_.shard_tokens * s_.hidden * s_.wide_element(); }
  Bytes mask() const { return Bytes(s_.dropout ? s_.shard_tokens * s_.hidden : 0); }
  Bytes masked_states() const { return masked_.shard_tokens * s_.hidden * s_.element(); }
  Bytes first_tokens() const { return s_.micro_batch * s_.hidden * s_.element(); }
  Bytes logits() const { return masked_.tokens * s_.vocabulary * size_of(Dtype::fp32); }
  Bytes table() const { return s_.vocabulary * s_.hidden * s_.wide_element(); }
  Bytes all_states() const { return s_.tokens * s_.hidden * s_.wide_element(); }
  bool learned() const { return s_.positional == Positional::learned; }
  bool picks() const { return execution_.micro_batch.predictions > 0; }

  void memory(WorkList& list, std::string name, MemoryOp op, Bytes read, Bytes written) const {
    list.kernel(std::move(name), MemoryBound{op, read, written});
  }
  void norm_gradient(WorkList& list, const TransformerSlice& s, const std::string& name) const {
    by_hand() ? norm_backward(list, s, name + " backward")
              : PytorchScript(list, s).norm_gradient(name, false);
  }

  void sum_embeddings(WorkList& list) const;
  void embedding_backward(WorkList& list) const;
  void masked_forward(WorkList& list) const;
  void masked_backward(WorkList& list) const;
  void next_sentence_forward(WorkList& list) const;
  void next_sentence_backward(WorkList& list) const;
  std::int64_t head_parameters() const;

  const Encoder& network_;
  const Execution& execution_;
  TransformerSlice s_, masked_;
};

// Eager operators add one table after the other; fused ones read all rows and write the sum, which
// the norm behind it, or that of the first layer, takes in when compiled.
void Ends::sum_embeddings(WorkList& list) const {
  const bool types = network_.token_types > 0;
  const bool norm = s_.post_norm;
  const std::int64_t others = (learned() ? 1 : 0) + (types ? 1 : 0);
  if (s_.kernels.fusion == Fusion::compiled) {
    if (!norm) return;
    memory(list, "embedding sum and norm", MemoryOp::layer_norm, (1 + others) * states(),
           2 * states() + mask());
    return;
  }
  if (by_hand()) {
    if (others > 0)
      memory(list, "positions and token types", MemoryOp::elementwise, (1 + others) * states(),
             states());
  } else {
    if (types) {
      memory(list, "token types", MemoryOp::embedding, states(), states());
      memory(list, "token types sum", MemoryOp::elementwise, 2 * states(), states());
    }
    if (learned()) memory(list, "positions", MemoryOp::elementwise, states(), states());
  }
  if (norm) norm_forward(list, s_, "embedding norm");
  if (s_.dropout) memory(list, "embedding dropout", MemoryOp::dropout, states(), states() + mask());
}

// Scatter-adds read the gradient and the rows they are added to.
void Ends::embedding_backward(WorkList& list) const {
  if (s_.dropout && s_.kernels.fusion != Fusion::compiled)
    memory(list, "embedding dropout backward", MemoryOp::dropout, states() + mask(), states());
  if (s_.post_norm) norm_gradient(list, s_, "embedding norm");
  if (learned())
    memory(list, "positions backward", by_hand() ? MemoryOp::embedding : MemoryOp::elementwise,
           (by_hand() ? 2 : 1) * states(), by_hand() ? states() : Bytes(0));
  if (network_.token_types > 0)
    memory(list, "token types backward", MemoryOp::embedding, 2 * states(), states());
  gather_tokens(list, s_, "embedding gradient all-gather");
  if (!by_hand())
    memory(list, "embedding gradient zeros", MemoryOp::elementwise, Bytes(0), table());
  memory(list, "embedding backward", MemoryOp::embedding, 2 * all_states(), all_states());
  if (!by_hand() && network_.masked_lm && network_.stack.tied_embeddings)
    memory(list, "tied gradient sum", MemoryOp::elementwise, 2 * table(), table());
}

LayerWork Ends::embedding() const {
  LayerWork work;
  work.name = "embedding";
  work.parameters = embedding_parameters(network_.stack, execution_.tensor,
                                         execution_.micro_batch.sequence_length) +
                    network_.token_types * s_.hidden +
                    (s_.post_norm ? norm_parameters(network_.stack) : 0);
  const std::int64_t tables = s_.vocabulary + network_.token_types;
  work.matrices = {{s_.vocabulary, s_.hidden}};
  if (network_.token_types > 0) work.matrices.push_back({network_.token_types, s_.hidden});
  if (learned()) {
    const std::int64_t norms = s_.post_norm ? norm_parameters(network_.stack) : 0;
    work.matrices.push_back({(work.parameters - norms) / s_.hidden - tables, s_.hidden});
  }
  work.kept.add(Module::embedding, mask() + (s_.post_norm ? states() : Bytes(0)));
  if (!by_hand() && network_.masked_lm && network_.stack.tied_embeddings) work.transient = table();
  work.output = s_.stream_states();

  WorkList forward;
  WorkList backward = WorkList::of_backward();
  memory(forward, "embedding", MemoryOp::embedding, all_states(), all_states());
  reduce_partial_sums(forward, s_, "embedding");
  sum_embeddings(forward);
  embedding_backward(backward);
  work.forward = forward.take();
  work.backward = backward.take();
  return work;
}

void Ends::masked_forward(WorkList& list) const {
  if (picks()) memory(list, "masked tokens", MemoryOp::embedding, masked_states(), masked_states());
  PytorchScript script(list, masked_);
  const AutocastCopies copies(list, masked_);
  copies.input("transform", s_.hidden);
  copies.weight("transform", s_.hidden * s_.hidden, s_.hidden);
  list.kernel("transform", Gemm{masked_.shard_tokens, s_.hidden, s_.hidden, 1, s_.gemm});
  added_bias(list, masked_, "transform", true, masked_.shard_tokens * s_.hidden);
  memory(list, "transform activation", MemoryOp::activation, masked_states(), masked_states());
  norm_forward(list, masked_, "transform norm");
  gather_tokens(list, masked_, "logits all-gather");
  copies.input("logits", s_.hidden);
  copies.weight("logits", s_.vocabulary * s_.hidden, s_.biases.any() ? s_.vocabulary : 0);
  list.kernel("logits", Gemm{masked_.tokens, s_.vocabulary, s_.hidden, 1, s_.gemm});
  added_bias(list, masked_, "logits", s_.biases.any(), masked_.tokens * s_.vocabulary);
  if (by_hand())
    memory(list, "cross-entropy", MemoryOp::cross_entropy, logits(), logits());
  else
    script.loss();
  if (!s_.tensor_parallel) return;
  for (const char* name : {"loss maximum all-reduce", "loss sum all-reduce"}) {
    list.start(name, CollectiveKind::all_reduce, masked_.tokens * size_of(Dtype::fp32));
    list.wait();
  }
}

void Ends::masked_backward(WorkList& list) const {
  PytorchScript script(list, masked_);
  const AutocastCopies copies(list, masked_);
  if (by_hand())
    memory(list, "cross-entropy backward", MemoryOp::cross_entropy, logits(), logits());
  else
    script.loss_gradient();
  column_backward(list, masked_, "logits", s_.vocabulary);
  if (!by_hand()) script.bias_gradient("logits", s_.vocabulary, s_.biases.any());
  copies.weight_gradient("logits", s_.vocabulary * s_.hidden, s_.biases.any() ? s_.vocabulary : 0);
  copies.input_gradient("logits", s_.hidden);
  norm_gradient(list, masked_, "transform norm");
  memory(list, "transform activation backward", MemoryOp::activation, 2 * masked_states(),
         masked_states());
  const Gemm product{masked_.shard_tokens, s_.hidden, s_.hidden, 1, s_.gemm};
  list.kernel("transform input gradient", product);
  list.weight_gradient("transform weight gradient",
                       Gemm{s_.hidden, s_.hidden, masked_.shard_tokens, 1, s_.gemm});
  if (!by_hand())
    memory(list, "transform bias gradient", MemoryOp::column_sum, masked_states(), Bytes(0));
  copies.weight_gradient("transform", s_.hidden * s_.hidden, s_.hidden);
  copies.input_gradient("transform", s_.hidden);
  if (picks())
    memory(list, "masked tokens backward", MemoryOp::embedding, masked_states(), states());
}

void Ends::next_sentence_forward(WorkList& list) const {
  const std::int64_t batch = s_.micro_batch;
  const Bytes classes = 2 * batch * size_of(Dtype::fp32);
  gather_tokens(list, s_, "pooler all-gather");
  list.kernel("pooler", Gemm{batch, s_.hidden, s_.hidden, 1, s_.gemm});
  memory(list, "pooler tanh", MemoryOp::activation, first_tokens(), first_tokens());
  list.kernel("next sentence", Gemm{batch, 2, s_.hidden, 1, s_.gemm});
  memory(list, "next sentence loss", MemoryOp::cross_entropy, classes, classes);
}

// The gradient of the first tokens is added to that of all tokens, or is spread among zeros.
void Ends::next_sentence_backward(WorkList& list) const {
  const std::int64_t batch = s_.micro_batch;
  const Bytes classes = 2 * batch * size_of(Dtype::fp32);
  memory(list, "next sentence loss backward", MemoryOp::cross_entropy, classes, classes);
  list.kernel("next sentence input gradient", Gemm{batch, s_.hidden, 2, 1, s_.gemm});
  list.weight_gradient("next sentence weight gradient", Gemm{2, s_.hidden, batch, 1, s_.gemm});
  memory(list, "pooler tanh backward", MemoryOp::activation, 2 * first_tokens(), first_tokens());
  list.kernel("pooler input gradient", Gemm{batch, s_.hidden, s_.hidden, 1, s_.gemm});
  list.weight_gradient("pooler weight gradient", Gemm{s_.hidden, s_.hidden, batch, 1, s_.gemm});
  memory(list, "first tokens backward", MemoryOp::elementwise,
         first_tokens() + (network_.masked_lm ? states() : Bytes(0)), states());
}

std::int64_t Ends::head_parameters() const {
  const std::int64_t h = s_.hidden;
  const std::int64_t dense = h * h + h;
  std::int64_t count = s_.post_norm ? 0 : norm_parameters(network_.stack);
  if (network_.masked_lm)
    count += dense + norm_parameters(network_.stack) + s_.vocabulary * (h + 1);
  if (network_.next_sentence) count += dense + 2 * h + 2;
  return count;
}

LayerWork Ends::head() const {
  WorkList forward;
  WorkList backward = WorkList::of_backward();
  if (!s_.post_norm)
    by_hand() ? norm_forward(forward, s_, "final norm")
              : PytorchScript(forward, s_).norm("final norm", true);
  if (network_.masked_lm) {
    masked_forward(forward);
    masked_backward(backward);
  }
  if (network_.next_sentence) {
    next_sentence_forward(forward);
    next_sentence_backward(backward);
  }
  if (!s_.post_norm) norm_gradient(backward, s_, "final norm");

  LayerWork work;
  work.name = "heads and loss";
  work.forward = forward.take();
  work.backward = backward.take();
  work.parameters = head_parameters();
  if (network_.masked_lm) work.matrices = {{s_.hidden, s_.hidden}, {s_.vocabulary, s_.hidden}};
  if (network_.next_sentence) {
    work.matrices.push_back({s_.hidden, s_.hidden});
    work.matrices.push_back({2, s_.hidden});
  }
  if (!s_.post_norm) work.kept.add(Module::layer_input, states());
  const double hidden = static_cast<double>(s_.hidden);
  double products = 0;
  if (network_.masked_lm) {
    if (network_.stack.tied_embeddings) work.tied_parameters = s_.vocabulary * s_.hidden;
    work.kept.add(Module::head, 4 * masked_states());
    if (s_.autocast)
      work.kept.add(Module::head, (s_.vocabulary + s_.hidden) * s_.hidden * s_.element());
    work.logits = by_hand() ? logits() : pytorch_logits_kept(masked_);
    if (!by_hand()) work.transient = pytorch_logits_transient(masked_);
    work.transient = work.transient + s_.head_placeholder();
    work.outputs = masked_.tokens * s_.vocabulary * s_.element();
    const std::int64_t seen = s_.micro_batch * (picks() ? execution_.micro_batch.predictions
                                                        : execution_.micro_batch.sequence_length);
    products += static_cast<double>(seen) * hidden *
                static_cast<double>(s_.hidden + network_.stack.vocabulary);
  }
  if (network_.next_sentence) {
    work.kept.add(Module::head, 2 * first_tokens());
    products += static_cast<double>(s_.micro_batch) * hidden * (hidden + 2);
  }
  work.forward_model_flops = Flops(2 * products);
  return work;
}

}  // namespace

NetworkWork encoder_work(const Encoder& network, const Execution& execution) {
  const Ends ends(network, execution);
  NetworkWork work = stack_work(ends.embedding(), transformer_layer(network.stack, execution),
                                ends.head(), network.stack.layers);
  work.input = input_tokens(execution.micro_batch);
  return work;
}

// One rank alone holds all; of a tied output matrix no more than the embedding.
std::int64_t encoder_parameters(const Encoder& network, std::int64_t sequence_length) {
  Execution alone;
  alone.micro_batch.sequence_length = sequence_length;
  const Ends ends(network, alone);
  const LayerWork head = ends.head();
  return ends.embedding().parameters + head.parameters - head.tied_parameters +
         network.stack.layers * layer_parameters(network.stack, 1);
}

void check_encoder(Problems& problems, const Encoder& n, const Execution& e) {
  check_plain(problems, n.stack);
  check_stack(problems, n.stack, e);
  if (!n.masked_lm && !n.next_sentence)
    problems.push_back({"", "the encoder has no head: no loss"});
  if (e.micro_batch.predictions > e.micro_batch.sequence_length) {
    problems.push_back(
        {"predictions", fmt::format("{} predictions of a sequence of {} tokens",
                                    e.micro_batch.predictions, e.micro_batch.sequence_length)});
  }
  if (e.micro_batch.predictions > 0 && !n.masked_lm)
    problems.push_back({"predictions", "there is no masked-language head"});
}

const Family<Encoder>& row_of(const Encoder*) {
  static const Family<Encoder> row = {.name = "encoder",
                                      .words = "an encoder",
                                      .sample = Sample::tokens,
                                      .check = check_encoder,
                                      .work = encoder_work,
                                      .parameters = encoder_parameters,
                                      .chain =
                                          [](const Encoder& n) {
                                            return ChainLength{n.stack.layers + 2, n.stack.layers};
                                          },
                                      .stack = [](const Encoder& n) { return &n.stack; }};
  return row;
}

}  // namespace trainyard::models
