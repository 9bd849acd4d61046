#include "models/families/network.h"

#include <numeric>

#include "models/families/execution_check.h"
#include "sim/base/check.h"

namespace trainyard::models {
std::vector<ExecutionProblem> check_execution(const Network& network, const Execution& execution) {
  Problems problems;
  must_be_positive(problems, "micro_batch", "micro-batch", execution.micro_batch.size);
  must_be_positive(problems, "tensor", "tensor-parallel degree", execution.tensor);
  must_be_positive(problems, "context", "context-parallel degree", execution.context);
  if (!problems.empty()) return problems;
  network.check(problems, execution);
  return problems;
}

namespace {

// Adds the twins of all layers, where nothing is recomputed.
void add_plain(NetworkWork& work, const Network& network, Execution execution) {
  execution.recompute.form = Recompute::none;
  execution.recompute.modules = {};
  const NetworkWork plain = network.work(execution);
  work.plain.resize(plain.kinds.size());
  std::iota(work.plain.begin(), work.plain.end(), 0);
  for (std::size_t place = 0; place < plain.chain.size(); ++place) {
    const auto kind = static_cast<std::size_t>(plain.chain[place]);
    if (work.plain[kind] != plain.chain[place]) continue;
    work.plain[kind] = static_cast<int>(work.kinds.size());
    work.kinds.push_back(plain.kinds[kind]);
  }
}

void add_to_sums(NetworkWork& work, Dtype sums) {
  for (LayerWork& layer : work.kinds) {
    for (WorkItem& item : layer.backward) {
      auto* named = std::get_if<NamedKernel>(&item);
      auto* gemm = named == nullptr ? nullptr : std::get_if<Gemm>(&named->kernel);
      if (gemm != nullptr && named->weight_gradient) gemm->adds_to = sums;
    }
  }
}

}  // namespace

NetworkWork network_work(const Network& network, const Execution& execution) {
  const Problems problems = check_execution(network, execution);
  TRAINYARD_CHECK(problems.empty(), "{}", problems.front().message);
  NetworkWork work = network.work(execution);
  const Recomputation& recompute = execution.recompute;
  if (recompute.layers.method != RecomputeLayers::Method::all || recompute.except_last)
    add_plain(work, network, execution);
  if (execution.gradient_sums) add_to_sums(work, *execution.gradient_sums);
  return work;
}

bool reads_tokens(const Network& network) {
  return network.sample() == Sample::tokens;
}

const Transformer* stack_of(const Network& network) {
  return network.stack();
}

std::int64_t parameter_count(const Network& network, std::int64_t sequence_length) {
  return network.parameters(sequence_length);
}

// Of one rank that has the whole network, layer by layer; the tied matrix once.
std::int64_t trained_parameters(const Network& network, const Finetune& finetune,
                                std::int64_t sequence_length) {
  if (finetune.all()) return network.parameters(sequence_length);
  Execution whole;
  whole.micro_batch.sequence_length = sequence_length;
  whole.kernels.attention = AttentionKernel::usual;
  whole.finetune = finetune;
  const NetworkWork work = network.work(whole);
  std::int64_t trained = 0;
  for (const int kind : work.chain) {
    const LayerWork& layer = work.kinds[static_cast<std::size_t>(kind)];
    trained += layer.parameters + layer.expert_parameters - layer.tied_parameters;
  }
  return trained;
}

std::int64_t adapter_parameters(const Network& network, const Finetune& finetune,
                                std::int64_t sequence_length) {
  if (!finetune.adapts()) return 0;
  Finetune alone = finetune;
  alone.trains = {};
  return trained_parameters(network, alone, sequence_length);
}

std::int64_t divisible_layers(const Network& network) {
  return network.chain().divisible;
}

std::int64_t chain_length(const Network& network) {
  return network.chain().places;
}

}  // namespace trainyard::models
