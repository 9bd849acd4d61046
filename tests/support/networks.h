// Small networks for tests.
#pragma once

#include "models/families/network.h"
#include "models/transformer/networks.h"
#include "tests/support/rooms.h"

namespace trainyard {

// A GPT as Megatron-LM trains it: learned positions, biases, dropout, tied embeddings.
inline Transformer gpt(std::int64_t layers, std::int64_t hidden, std::int64_t heads,
                       std::int64_t vocabulary) {
  Transformer network;
  network.layers = layers;
  network.hidden = hidden;
  network.heads = network.kv_heads = heads;
  network.head_size = hidden / heads;
  network.ffn_hidden = 4 * hidden;
  network.vocabulary = vocabulary;
  return network;
}

inline Transformer llama(std::int64_t layers, std::int64_t hidden, std::int64_t heads,
                         std::int64_t kv_heads, std::int64_t ffn_hidden, std::int64_t vocabulary) {
  Transformer network = gpt(layers, hidden, heads, vocabulary);
  network.kv_heads = kv_heads;
  network.ffn_hidden = ffn_hidden;
  network.feed_forward = FeedForward::swiglu;
  network.positional = Positional::rope;
  network.norm = Norm::rms_norm;
  network.biases = network.dropout = network.tied_embeddings = false;
  return network;
}

}  // namespace trainyard

namespace trainyard::testing {

inline Encoder small_bert(std::int64_t layers) {
  Encoder network;
  network.stack = gpt(layers, 512, 8, 8192);
  network.stack.causal = false;
  network.stack.post_norm = true;
  return network;
}

inline EncoderDecoder small_t5(std::int64_t encoder, std::int64_t decoder) {
  EncoderDecoder network;
  network.stack = gpt(encoder, 512, 8, 8192);
  network.stack.positional = Positional::relative;
  network.stack.norm = Norm::rms_norm;
  network.stack.biases = false;
  network.decoder_layers = decoder;
  return network;
}

inline VisionTransformer small_vit(std::int64_t layers) {
  VisionTransformer network;
  network.stack = gpt(layers, 512, 8, 8192);
  network.stack.vocabulary = 1;
  network.stack.causal = false;
  network.height = network.width = 64;
  network.class_token = false;  // 16 patches
  return network;
}

}  // namespace trainyard::testing
