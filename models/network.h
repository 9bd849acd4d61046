// Networks: what is trained. A network is a chain of layers; pipeline stages cut the chain.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "models/layer_work.h"

namespace trainyard {

enum class FeedForward : std::uint8_t { gelu, relu, swiglu, geglu };
enum class Positional : std::uint8_t { learned, rope, none };
enum class Norm : std::uint8_t { layer_norm, rms_norm };

// A mixture of experts in place of the feed-forward layer. Source: Fedus et al., Switch
// Transformers, 2021; DeepSeek-AI, DeepSeekMoE, 2024 (shared experts).
struct Experts {
  std::int64_t experts = 0;            // routed ones; 0: every layer is dense
  std::int64_t top_k = 1;              // of them, for each token
  std::int64_t ffn_hidden = 1;         // of one routed expert
  std::int64_t shared_ffn_hidden = 0;  // of all shared experts together; every token visits them
  std::int64_t first_dense = 0;        // layers before the first mixture
  std::int64_t every = 1;              // of the layers that follow, every n-th is a mixture
  std::int64_t groups = 1;             // of experts, of which the router chooses
  std::int64_t top_groups = 1;         // so many before it chooses experts in them
};

// Multi-head latent attention (models/latent_attention.cpp).
struct LatentAttention {
  std::int64_t key_value_rank = 0;  // 0: plain projections of queries, keys and values
  std::int64_t query_rank = 0;      // 0: queries are projected from the hidden states
  std::int64_t nope_size = 0;       // of a query's or key's head, without and with position
  std::int64_t rope_size = 0;
  std::int64_t value_size = 0;
  bool used() const { return key_value_rank > 0; }
  std::int64_t query_key_size() const { return nope_size + rope_size; }
};

// A decoder-only transformer of the GPT or Llama kind, its layers dense or mixtures of experts.
struct Transformer {
  std::int64_t layers = 1;
  std::int64_t hidden = 1;
  std::int64_t heads = 1;
  std::int64_t kv_heads = 1;   // < heads: grouped-query attention
  std::int64_t head_size = 1;  // hidden / heads unless the network says otherwise
  std::int64_t ffn_hidden = 1;
  std::int64_t vocabulary = 1;
  std::int64_t max_positions = 0;  // rows of a learned position table; 0: the sequence length
  FeedForward feed_forward = FeedForward::gelu;
  Positional positional = Positional::learned;
  Norm norm = Norm::layer_norm;
  bool biases = true;
  bool dropout = true;
  bool tied_embeddings = true;
  Experts moe;
  LatentAttention latent;

  bool gated() const {
    return feed_forward == FeedForward::swiglu || feed_forward == FeedForward::geglu;
  }
  // Whether layer number `layer`, from 0, is a mixture of experts.
  bool is_mixture(std::int64_t layer) const {
    return moe.experts > 0 && layer >= moe.first_dense &&
           (layer - moe.first_dense + 1) % moe.every == 0;
  }
};

// One operation of a convolutional network's layer graph. `inputs` are indices of earlier nodes
// (-1: the network's input), so the graph is acyclic by construction; residual adds have two.
struct LayerNode {
  enum class Kind : std::uint8_t {
    convolution,
    batch_norm,
    relu,
    max_pool,
    average_pool,
    add,
    linear,
    softmax_loss
  };
  std::string name;
  Kind kind = Kind::convolution;
  std::vector<int> inputs;
  std::int64_t out_channels = 0, out_height = 1, out_width = 1;
  std::int64_t kernel = 1, stride = 1;
  bool bias = false;
  int unit = 0;  // nodes of one unit (a residual block) stay on one pipeline stage
};

struct Convolutional {
  std::string name;
  std::int64_t in_channels = 3, in_height = 224, in_width = 224;
  std::vector<LayerNode> nodes;  // in topological order; units are contiguous and count from 0
  std::vector<std::string> unit_names;  // "stem", "conv2 block 1", ... by unit
};

using Network = std::variant<Transformer, Convolutional>;

// The network cut into its smallest pipeline pieces, in forward order. `kinds` holds each distinct
// LayerWork once; `chain` says which one stands at each place. `divisible` places (transformer
// layers, residual blocks) are what a layer split counts; the others (embedding, logits) stay with
// the first or last of them.
struct NetworkWork {
  std::vector<LayerWork> kinds;
  std::vector<int> chain;
  std::vector<bool> divisible;
};

// Requires: check_execution finds no problem. Builds each distinct layer once.
NetworkWork network_work(const Network& network, const Execution& execution);

// Why a network cannot be executed so: the member of Execution to blame, and a sentence.
struct ExecutionProblem {
  std::string member;   // "tensor", "sequence_length", ...; empty: the network's own numbers
  std::string message;  // "attention heads (96) are not divisible by 5"
};
std::vector<ExecutionProblem> check_execution(const Network& network, const Execution& execution);

// Trainable parameters of the whole network (tied embeddings counted once; all experts).
std::int64_t parameter_count(const Network& network, std::int64_t sequence_length);

// Places that a layer split counts: transformer layers, residual blocks, ...
std::int64_t divisible_layers(const Network& network);

// All places of NetworkWork::chain: those, and embedding, logits, stem, classifier.
std::int64_t chain_length(const Network& network);

// What a Hugging Face config.json says of a network; throws ScenarioError with positions otherwise.
// (models/hugging_face_json.cpp in sim/scenario reads it, so that models stays free of JSON.)

// Layer graphs of He et al. 2016 (v1.5: stride in the 3x3) and Simonyan & Zisserman 2015.
// Requires: height and width of at least 32.
Convolutional resnet50(std::int64_t height, std::int64_t width);
Convolutional vgg16(std::int64_t height, std::int64_t width);

// Names for `"preset"` of networks that are built by code rather than by numbers in a file.
struct NetworkBuilder {
  std::string_view name;
  Convolutional (*build)(std::int64_t height, std::int64_t width);
};
inline constexpr std::array<NetworkBuilder, 2> kNetworkBuilders = {{
    {"resnet50", resnet50},
    {"vgg16", vgg16},
}};

}  // namespace trainyard
