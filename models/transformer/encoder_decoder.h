// Encoder-decoder transformers (T5): a chain of encoder layers, the decoder's embedding, decoder
// layers with cross-attention.
#pragma once

#include "models/families/network.h"
#include "models/transformer/networks.h"

namespace trainyard::models {

// The encoder's output travels with the hidden states from the decoder's embedding to its last
// layer, and its gradient back (LayerWork::output, passed_on).
NetworkWork encoder_decoder_work(const EncoderDecoder& network, const Execution& execution);
std::int64_t encoder_decoder_parameters(const EncoderDecoder& network);
void check_encoder_decoder(Problems& problems, const EncoderDecoder& network,
                           const Execution& execution);

// One of its two stacks, and how it is executed.
Transformer encoder_stack(const EncoderDecoder& network);
Transformer decoder_stack(const EncoderDecoder& network);
Execution decoder_execution(const Execution& execution);

}  // namespace trainyard::models
