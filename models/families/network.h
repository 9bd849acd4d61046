// Networks: what is trained. A network is a chain of layers; pipeline stages cut the chain.
//
// A family of networks is a struct that describes one, and a row of what the program asks of it
// (Family), found by the struct's type: `const Family<N>& row_of(const N*)` beside the struct. A
// Network holds one of any family.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "models/layer/layer_work.h"
#include "sim/base/check.h"

namespace trainyard::models {

struct Transformer;

// A tensor that other places of a chain read than the one that makes it.
struct SharedTensor {
  int maker = 0;             // -1: the network's input
  std::vector<int> readers;  // behind it, in order
  std::vector<int> keepers;  // of all these, which keep it for their backward pass
  Bytes bytes;               // of a micro-batch
  bool gradient = true;      // its readers give one back
  bool weight = false;       // parameters, which nobody keeps for the backward pass
};

// The network cut into its smallest pipeline pieces, in forward order. `kinds` holds each distinct
// LayerWork once; `chain` says which one stands at each place. `divisible` places (transformer
// layers, residual blocks) are what a layer split counts; the others (embedding, logits) stay with
// the first or last of them.
struct NetworkWork {
  std::vector<LayerWork> kinds;
  std::vector<int> chain;
  std::vector<bool> divisible;
  // In the order in which they are made, the input first; empty: a place reads what the one before
  // it makes.
  std::vector<SharedTensor> tensors;
  // Of a micro-batch, whole, as a loader hands it over: tokens and indices of 8 bytes, other
  // numbers of 4.
  Bytes input;
  // By kind: the same layer where nothing is recomputed; empty if all layers are alike in that.
  std::vector<int> plain;
  // For each of the last kinds, which a plan adds: the one whose items it has.
  std::vector<int> added_like;
  // Work of the routed kernels of each data-parallel rank, in units of the even share; empty:
  // all 1. Tables of a recommender; the load of experts is the plan's.
  std::vector<double> rank_load;

  // A kind as it was before plans added others: itself, or that whose items it has.
  std::size_t original(int kind) const {
    const auto at = static_cast<std::size_t>(kind);
    const std::size_t first_added = kinds.size() - added_like.size();
    return at < first_added ? at : static_cast<std::size_t>(added_like[at - first_added]);
  }
};

// Why a network cannot be executed so: the member of Execution to blame, and a sentence.
struct ExecutionProblem {
  std::string member;   // "tensor", "sequence_length", ...; empty: the network's own numbers
  std::string message;  // "attention heads (96) are not divisible by 5"
};
using Problems = std::vector<ExecutionProblem>;

// What a sample is: a sequence of tokens, an image, or numbers of another kind.
enum class Sample : std::uint8_t { tokens, image, numbers };

// Lengths of NetworkWork::chain: of all places, and of the divisible ones.
struct ChainLength {
  std::int64_t places = 0, divisible = 0;
};

// What the program asks of a family of networks that structs N describe.
template <class N>
struct Family {
  std::string_view name;   // as a scenario's /model/kind spells it
  std::string_view words;  // "a recommender", in messages
  Sample sample = Sample::image;
  bool pipeline = true;  // its chain may be cut into stages
  void (*check)(Problems&, const N&, const Execution&) = nullptr;
  // Requires: check finds no problem. Builds each distinct layer once, with one form of
  // recomputation.
  NetworkWork (*work)(const N&, const Execution&) = nullptr;
  std::int64_t (*parameters)(const N&, std::int64_t sequence_length) = nullptr;
  ChainLength (*chain)(const N&) = nullptr;
  const Transformer* (*stack)(const N&) = nullptr;  // null: its layers are no transformer's
};

template <class N>
const Family<N>& family() {
  return row_of(static_cast<const N*>(nullptr));
}

class Network {
 public:
  Network() = default;  // none
  template <class N>
  requires requires(const N* network) { row_of(network); }
  Network(N network) : held_(std::make_shared<const Of<N>>(std::move(network))) {}

  // The description, if it is of this family.
  template <class N>
  const N* find() const {
    const auto* held = dynamic_cast<const Of<N>*>(held_.get());
    return held != nullptr ? &held->network : nullptr;
  }
  template <class N>
  bool is() const {
    return find<N>() != nullptr;
  }
  // Requires: is<N>().
  template <class N>
  const N& as() const {
    TRAINYARD_CHECK(is<N>(), "the network is not {}", family<N>().words);
    return *find<N>();
  }
  // A description of its own to be changed. Requires: is<N>().
  template <class N>
  N& change() {
    auto own = std::make_shared<Of<N>>(as<N>());
    held_ = own;
    return own->network;
  }

  // Whether both are one description, not only equal ones.
  bool is_same(const Network& other) const { return held_ == other.held_; }

  // The family's row. Requires: there is a network.
  std::string_view words() const { return held().words(); }
  Sample sample() const { return held().sample(); }
  bool pipeline() const { return held().pipeline(); }
  void check(Problems& problems, const Execution& e) const { held().check(problems, e); }
  NetworkWork work(const Execution& execution) const { return held().work(execution); }
  std::int64_t parameters(std::int64_t length) const { return held().parameters(length); }
  ChainLength chain() const { return held().chain(); }
  const Transformer* stack() const { return held().stack(); }

 private:
  struct Held {
    virtual ~Held() = default;
    virtual std::string_view words() const = 0;
    virtual Sample sample() const = 0;
    virtual bool pipeline() const = 0;
    virtual void check(Problems& problems, const Execution& execution) const = 0;
    virtual NetworkWork work(const Execution& execution) const = 0;
    virtual std::int64_t parameters(std::int64_t sequence_length) const = 0;
    virtual ChainLength chain() const = 0;
    virtual const Transformer* stack() const = 0;
  };
  template <class N>
  struct Of final : Held {
    explicit Of(N described) : network(std::move(described)) {}
    std::string_view words() const override { return family<N>().words; }
    Sample sample() const override { return family<N>().sample; }
    bool pipeline() const override { return family<N>().pipeline; }
    void check(Problems& problems, const Execution& execution) const override {
      family<N>().check(problems, network, execution);
    }
    NetworkWork work(const Execution& execution) const override {
      return family<N>().work(network, execution);
    }
    std::int64_t parameters(std::int64_t sequence_length) const override {
      return family<N>().parameters(network, sequence_length);
    }
    ChainLength chain() const override { return family<N>().chain(network); }
    const Transformer* stack() const override {
      return family<N>().stack != nullptr ? family<N>().stack(network) : nullptr;
    }
    N network;
  };

  const Held& held() const {
    TRAINYARD_CHECK(held_ != nullptr, "there is no network");
    return *held_;
  }
  std::shared_ptr<const Held> held_;
};

// Requires: check_execution finds no problem. Builds each distinct layer once.
NetworkWork network_work(const Network& network, const Execution& execution);

std::vector<ExecutionProblem> check_execution(const Network& network, const Execution& execution);

// Whether the network reads sequences of tokens; others read images.
bool reads_tokens(const Network& network);

// The network's transformer layers, or nullptr. An EncoderDecoder's are those of both its stacks.
const Transformer* stack_of(const Network& network);

// Those of them that train, and adapters; and those of adapters alone. Requires: check_execution
// finds no problem.
std::int64_t adapter_parameters(const Network& network, const Finetune& finetune,
                                std::int64_t sequence_length);
std::int64_t trained_parameters(const Network& network, const Finetune& finetune,
                                std::int64_t sequence_length);

// Parameters of the whole network without adapters (tied embeddings counted once; all experts).
std::int64_t parameter_count(const Network& network, std::int64_t sequence_length);

// Places that a layer split counts: transformer layers, residual blocks, ...
std::int64_t divisible_layers(const Network& network);

// All places of NetworkWork::chain: those, and embedding, logits, stem, classifier.
std::int64_t chain_length(const Network& network);

}  // namespace trainyard::models
