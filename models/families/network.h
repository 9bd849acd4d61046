// Networks: what is trained. A network is a chain of layers; pipeline stages cut the chain.
#pragma once

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "models/convolutional/layer_graph.h"
#include "models/layer/layer_work.h"
#include "models/recommender/recommender.h"
#include "models/transformer/networks.h"

namespace trainyard::models {

using Network = std::variant<Transformer, Convolutional, Encoder, EncoderDecoder, VisionTransformer,
                             Recommender>;

// The network cut into its smallest pipeline pieces, in forward order. `kinds` holds each distinct
// LayerWork once; `chain` says which one stands at each place. `divisible` places (transformer
// layers, residual blocks) are what a layer split counts; the others (embedding, logits) stay with
// the first or last of them.
struct NetworkWork {
  std::vector<LayerWork> kinds;
  std::vector<int> chain;
  std::vector<bool> divisible;
  // By kind: the same layer where nothing is recomputed; empty if all layers are alike in that.
  std::vector<int> plain;
  // Work of the routed kernels of each data-parallel rank, in units of the even share; empty:
  // all 1. Tables of a recommender; the load of experts is the plan's.
  std::vector<double> rank_load;
};

// Requires: check_execution finds no problem. Builds each distinct layer once.
NetworkWork network_work(const Network& network, const Execution& execution);

// Why a network cannot be executed so: the member of Execution to blame, and a sentence.
struct ExecutionProblem {
  std::string member;   // "tensor", "sequence_length", ...; empty: the network's own numbers
  std::string message;  // "attention heads (96) are not divisible by 5"
};
std::vector<ExecutionProblem> check_execution(const Network& network, const Execution& execution);

// Whether the network reads sequences of tokens; others read images.
bool reads_tokens(const Network& network);

// The network's transformer layers, or nullptr. An EncoderDecoder's are those of both its stacks.
const Transformer* stack_of(const Network& network);

// Trainable parameters of the whole network (tied embeddings counted once; all experts).
std::int64_t parameter_count(const Network& network, std::int64_t sequence_length);

// Places that a layer split counts: transformer layers, residual blocks, ...
std::int64_t divisible_layers(const Network& network);

// All places of NetworkWork::chain: those, and embedding, logits, stem, classifier.
std::int64_t chain_length(const Network& network);

}  // namespace trainyard::models
