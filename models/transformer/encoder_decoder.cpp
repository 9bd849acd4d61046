// T5 on one tensor-parallel rank:
//
//   embedding              encoder tokens, and the bias of the encoder's relative positions
//   encoder layers         self-attention without a mask, feed-forward
//   decoder embedding      final norm of the encoder; decoder tokens, looked up in the same matrix;
//                          the decoder's bias of relative positions
//   decoder layers         causal self-attention, cross-attention, feed-forward
//   logits and loss        final norm, output matrix (the embedding's, or its own)
//
//   Between decoder layers a pipeline carries the hidden states and the encoder's output, each way
//   with its gradient: Megatron-LM's split of T5 does so. The last decoder layer hands on only the
//   hidden states. A stage of decoder layers keeps the encoder's output once.
//   Biases of relative positions belong to the embeddings; what a pipeline's later stages compute
//   of them again is not counted (2 buckets a parameters, a s^2 / t elements).
//   Parameters: V h + 2 buckets a + 2 h, per encoder layer 4 h a hs + h f (2 or 3) + 2 h, per
//   decoder layer 8 h a hs + h f (2 or 3) + 3 h, and V h for an output matrix of its own.
//
// Source: Raffel et al., T5, JMLR 2020, section 2.1; Hugging Face transformers, modeling_t5.py;
// Megatron-LM, T5Model. T5's dropout inside the feed-forward layer is left out, as Megatron-LM's
// layers do.
#include "models/transformer/encoder_decoder.h"

#include <fmt/format.h>

#include <algorithm>

#include "models/families/execution_check.h"
#include "models/transformer/pytorch_script.h"
#include "models/transformer/transformer.h"

namespace trainyard::models {

Transformer encoder_stack(const EncoderDecoder& network) {
  Transformer stack = network.stack;
  stack.causal = false;
  stack.tied_embeddings = true;  // with the decoder's
  return stack;
}

Transformer decoder_stack(const EncoderDecoder& network) {
  Transformer stack = network.stack;
  stack.layers = network.decoder_layers;
  return stack;
}

Execution decoder_execution(const Execution& execution) {
  Execution decoder = execution;
  decoder.micro_batch.sequence_length = execution.micro_batch.decoder_sequence_length;
  decoder.memory_length = execution.micro_batch.sequence_length;
  return decoder;
}

namespace {

// What follows the last encoder layer and goes before the first one of the decoder.
LayerWork decoder_embedding(const EncoderDecoder& network, const Execution& execution) {
  const Transformer encoder = encoder_stack(network), decoder = decoder_stack(network);
  const TransformerSlice s = slice(encoder, execution);
  const Bytes states = s.shard_tokens * s.hidden * s.element();
  const Bytes mask(s.dropout ? s.shard_tokens * s.hidden : 0);

  LayerWork work = embedding_layer(decoder, decoder_execution(execution));
  work.name = "decoder embedding";
  work.tied_parameters = output_matrix_parameters(network.stack, execution.tensor);
  work.parameters += norm_parameters(network.stack);
  work.passed_on = states;
  work.kept.add(Module::layer_input, states);
  work.kept.add(Module::dropout_masks, mask);
  work.kept.add(Module::attention, work.passed_on);
  work.output = work.output + s.hidden_states();

  WorkList forward;
  WorkList backward = WorkList::of_backward();
  const bool by_hand = s.kernels.fusion == Fusion::by_hand;
  by_hand ? norm_forward(forward, s, "encoder norm")
          : PytorchScript(forward, s).norm("encoder norm", true);
  if (s.dropout && s.kernels.fusion != Fusion::compiled)
    forward.kernel("encoder dropout", MemoryBound{MemoryOp::dropout, states, states + mask});
  forward.append(std::move(work.forward));
  backward.append(std::move(work.backward));
  if (s.dropout && s.kernels.fusion != Fusion::compiled)
    backward.kernel("encoder dropout backward",
                    MemoryBound{MemoryOp::dropout, states + mask, states});
  by_hand ? norm_backward(backward, s, "encoder norm backward")
          : PytorchScript(backward, s).norm_gradient("encoder norm", false);
  work.forward = forward.take();
  work.backward = backward.take();
  return work;
}

LayerWork decoder_layer(const EncoderDecoder& network, const Execution& execution) {
  const TransformerSlice encoder = slice(encoder_stack(network), execution);
  LayerWork work = transformer_layer(decoder_stack(network), decoder_execution(execution));
  work.name = "decoder layer";
  work.output = work.output + encoder.hidden_states();
  work.passed_on = encoder.shard_tokens * encoder.hidden * encoder.element();
  return work;
}

LayerWork last_decoder_layer(const EncoderDecoder& network, const Execution& execution) {
  LayerWork work = transformer_layer(decoder_stack(network), decoder_execution(execution));
  work.name = "last decoder layer";
  return work;
}

}  // namespace

NetworkWork encoder_decoder_work(const EncoderDecoder& network, const Execution& execution) {
  const Transformer encoder = encoder_stack(network);
  NetworkWork work;
  work.kinds = {embedding_layer(encoder, execution),
                transformer_layer(encoder, execution),
                decoder_embedding(network, execution),
                decoder_layer(network, execution),
                last_decoder_layer(network, execution),
                logits_layer(decoder_stack(network), decoder_execution(execution))};
  work.kinds[1].name = "encoder layer";
  const auto place = [&](int kind, std::int64_t times, bool divisible) {
    work.chain.insert(work.chain.end(), static_cast<std::size_t>(times), kind);
    work.divisible.insert(work.divisible.end(), static_cast<std::size_t>(times), divisible);
  };
  place(0, 1, false);
  place(1, network.stack.layers, true);
  place(2, 1, false);
  place(3, network.decoder_layers - 1, true);
  place(4, 1, true);
  place(5, 1, false);
  work.input = input_tokens(execution.micro_batch);
  return work;
}

std::int64_t encoder_decoder_parameters(const EncoderDecoder& network) {
  Execution alone;
  alone.micro_batch.decoder_sequence_length = 1;
  const NetworkWork work = encoder_decoder_work(network, alone);
  std::int64_t sum = 0;
  for (const int kind : work.chain) {
    const LayerWork& layer = work.kinds[static_cast<std::size_t>(kind)];
    sum += layer.parameters - layer.tied_parameters;
  }
  return sum;
}

void check_encoder_decoder(Problems& problems, const EncoderDecoder& n, const Execution& e) {
  check_plain(problems, n.stack);
  must_be_positive(problems, "", "decoder layers", n.decoder_layers);
  must_be_positive(problems, "decoder_sequence_length", "the decoder's sequence length",
                   e.micro_batch.decoder_sequence_length);
  if (!problems.empty()) return;
  check_stack(problems, encoder_stack(n), e);
  // The decoder's own are those of its length; all others are the encoder's too.
  Problems of_decoder;
  check_stack(of_decoder, decoder_stack(n), decoder_execution(e));
  for (ExecutionProblem& problem : of_decoder) {
    const bool known = std::any_of(
        problems.begin(), problems.end(),
        [&](const ExecutionProblem& other) { return other.message == problem.message; });
    const bool too_large = problem.member.empty() && !known;
    if (problem.member != "sequence_length" && problem.member != "tensor_chunks" && !too_large)
      continue;
    if (problem.member == "sequence_length") problem.member = "decoder_sequence_length";
    problems.push_back(std::move(problem));
  }
  if (n.stack.positional == Positional::learned) {
    problems.push_back({"",
                        "learned positions are described for stacks with one embedding; an "
                        "encoder-decoder has \"relative\", \"rope\" and \"none\""});
  }
  if (e.context > 1) {
    problems.push_back({"context",
                        "context parallelism of cross-attention is not described; tensor and "
                        "sequence parallelism divide it"});
  }
}

const Family<EncoderDecoder>& row_of(const EncoderDecoder*) {
  static const Family<EncoderDecoder> row = {
      .name = "encoder_decoder",
      .words = "an encoder-decoder",
      .sample = Sample::tokens,
      .check = check_encoder_decoder,
      .work = encoder_decoder_work,
      .parameters = [](const EncoderDecoder& n,
                       std::int64_t) { return encoder_decoder_parameters(n); },
      .chain =
          [](const EncoderDecoder& n) {
            const std::int64_t layers = n.stack.layers + n.decoder_layers;
            return ChainLength{layers + 3, layers};
          },
      .stack = [](const EncoderDecoder& n) { return &n.stack; }};
  return row;
}

}  // namespace trainyard::models
