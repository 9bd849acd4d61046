#include "models/families/network.h"

#include <numeric>

#include "models/convolutional/convolutional.h"
#include "models/families/execution_check.h"
#include "models/recommender/recommender_work.h"
#include "models/transformer/encoder.h"
#include "models/transformer/encoder_decoder.h"
#include "models/transformer/transformer.h"
#include "models/transformer/vision.h"
#include "sim/base/check.h"

namespace trainyard::models {
namespace {

void check(Problems& problems, const Transformer& n, const Execution& e) {
  check_stack(problems, n, e);
}
void check(Problems& problems, const Encoder& n, const Execution& e) {
  check_encoder(problems, n, e);
}
void check(Problems& problems, const EncoderDecoder& n, const Execution& e) {
  check_encoder_decoder(problems, n, e);
}
void check(Problems& problems, const VisionTransformer& n, const Execution& e) {
  check_vision(problems, n, e);
}
void check(Problems& problems, const Convolutional& n, const Execution& e) {
  check_convolutional(problems, n, e);
}
void check(Problems& problems, const Recommender& n, const Execution& e) {
  problems = check_recommender(n, e);
}

}  // namespace

std::vector<ExecutionProblem> check_execution(const Network& network, const Execution& execution) {
  Problems problems;
  must_be_positive(problems, "micro_batch", "micro-batch", execution.micro_batch);
  must_be_positive(problems, "tensor", "tensor-parallel degree", execution.tensor);
  must_be_positive(problems, "context", "context-parallel degree", execution.context);
  if (!problems.empty()) return problems;
  std::visit([&](const auto& n) { check(problems, n, execution); }, network);
  return problems;
}

namespace {

NetworkWork alike(const Network& network, const Execution& execution) {
  if (const auto* n = std::get_if<Transformer>(&network)) return transformer_work(*n, execution);
  if (const auto* n = std::get_if<Recommender>(&network)) return recommender_work(*n, execution);
  if (const auto* n = std::get_if<Encoder>(&network)) return encoder_work(*n, execution);
  if (const auto* n = std::get_if<EncoderDecoder>(&network))
    return encoder_decoder_work(*n, execution);
  if (const auto* n = std::get_if<VisionTransformer>(&network)) return vision_work(*n, execution);
  return convolutional_work(std::get<Convolutional>(network), execution);
}

// Adds the twins of what a layer split counts, where nothing is recomputed.
void add_plain(NetworkWork& work, const Network& network, Execution execution) {
  execution.recompute = Recompute::none;
  execution.recompute_modules = {};
  const NetworkWork plain = alike(network, execution);
  work.plain.resize(plain.kinds.size());
  std::iota(work.plain.begin(), work.plain.end(), 0);
  for (std::size_t place = 0; place < plain.chain.size(); ++place) {
    const auto kind = static_cast<std::size_t>(plain.chain[place]);
    if (!plain.divisible[place] || work.plain[kind] != plain.chain[place]) continue;
    work.plain[kind] = static_cast<int>(work.kinds.size());
    work.kinds.push_back(plain.kinds[kind]);
  }
}

}  // namespace

NetworkWork network_work(const Network& network, const Execution& execution) {
  const Problems problems = check_execution(network, execution);
  TRAINYARD_CHECK(problems.empty(), "{}", problems.front().message);
  NetworkWork work = alike(network, execution);
  if (execution.recompute_layers.method != RecomputeLayers::Method::all)
    add_plain(work, network, execution);
  return work;
}

bool reads_tokens(const Network& network) {
  return stack_of(network) != nullptr && !std::holds_alternative<VisionTransformer>(network);
}

const Transformer* stack_of(const Network& network) {
  if (const auto* transformer = std::get_if<Transformer>(&network)) return transformer;
  if (const auto* n = std::get_if<Encoder>(&network)) return &n->stack;
  if (const auto* n = std::get_if<EncoderDecoder>(&network)) return &n->stack;
  if (const auto* n = std::get_if<VisionTransformer>(&network)) return &n->stack;
  return nullptr;
}

std::int64_t parameter_count(const Network& network, std::int64_t sequence_length) {
  if (const auto* transformer = std::get_if<Transformer>(&network)) {
    return transformer_parameters(*transformer, sequence_length);
  }
  if (const auto* n = std::get_if<Recommender>(&network)) return recommender_parameters(*n);
  if (const auto* n = std::get_if<Encoder>(&network))
    return encoder_parameters(*n, sequence_length);
  if (const auto* n = std::get_if<EncoderDecoder>(&network)) return encoder_decoder_parameters(*n);
  if (const auto* n = std::get_if<VisionTransformer>(&network)) return vision_parameters(*n);
  return convolutional_parameters(std::get<Convolutional>(network));
}

std::int64_t divisible_layers(const Network& network) {
  if (const auto* n = std::get_if<Recommender>(&network)) return recommender_places(*n);
  if (const auto* n = std::get_if<EncoderDecoder>(&network))
    return n->stack.layers + n->decoder_layers;
  if (const Transformer* stack = stack_of(network)) return stack->layers;
  std::int64_t count = 0;
  for (const bool divisible : divisible_units(std::get<Convolutional>(network))) {
    if (divisible) ++count;
  }
  return count;
}

std::int64_t chain_length(const Network& network) {
  if (const auto* n = std::get_if<Recommender>(&network)) return recommender_places(*n);
  if (stack_of(network) != nullptr)
    return divisible_layers(network) + (std::holds_alternative<EncoderDecoder>(network) ? 3 : 2);
  return static_cast<std::int64_t>(divisible_units(std::get<Convolutional>(network)).size());
}

}  // namespace trainyard::models
