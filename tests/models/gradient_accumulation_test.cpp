// What adding up the gradients of micro-batches costs: closed forms over all parameters.
#include <doctest/doctest.h>

#include "models/families/network.h"
#include "models/transformer/networks.h"
#include "tests/models/work_support.h"
#include "tests/support/rooms.h"

using namespace trainyard;

namespace {

NetworkWork summed(const Network& network, GradientAccumulation accumulation) {
  Execution execution;
  execution.micro_batch.sequence_length = 512;
  execution.accumulation = accumulation;
  return network_work(network, execution);
}

struct Added {
  std::int64_t parameters = 0, read = 0, written = 0, elements = 0;
};

// What `work` does beyond `plain`, layer by layer of the chain.
Added beyond(const NetworkWork& work, const NetworkWork& plain) {
  Added sum;
  for (const int kind : work.chain) {
    const LayerWork& layer = work.kinds[static_cast<std::size_t>(kind)];
    sum.parameters += layer.parameters + layer.expert_parameters;
    for (const int sign : {1, -1}) {
      const NetworkWork& of = sign > 0 ? work : plain;
      for (const WorkItem& item : of.kinds[static_cast<std::size_t>(kind)].backward) {
        const auto* kernel = std::get_if<NamedKernel>(&item);
        const auto* memory = kernel ? std::get_if<MemoryBound>(&kernel->kernel) : nullptr;
        if (memory == nullptr || memory->op != MemoryOp::elementwise) continue;
        sum.read += sign * memory->read.count();
        sum.written += sign * memory->written.count();
        sum.elements += sign * memory->elements;
      }
    }
  }
  return sum;
}

Added added(const Network& network, const GradientAccumulation& accumulation) {
  return beyond(summed(network, accumulation), summed(network, {}));
}

Transformer with_experts() {
  Transformer network = llama(2, 256, 4, 4, 768, 1024);
  network.moe = {.experts = 8, .top_k = 2, .ffn_hidden = 128};
  return network;
}

std::int64_t product_traffic(const LayerWork& layer, bool gradients) {
  std::int64_t bytes = 0;
  for (const WorkItem& item : layer.backward) {
    const auto* kernel = std::get_if<NamedKernel>(&item);
    if (kernel == nullptr || !std::holds_alternative<Gemm>(kernel->kernel)) continue;
    if (kernel->weight_gradient == gradients) bytes += memory_traffic(kernel->kernel).count();
  }
  return bytes;
}

std::int64_t matrix_elements(const LayerWork& layer) {
  std::int64_t sum = 0;
  for (const WeightMatrix& matrix : layer.matrices)
    sum += matrix.elements();
  return sum;
}

}  // namespace

TEST_CASE("a kernel reads and writes every gradient once, experts' too") {
  for (const Transformer& network : {llama(2, 256, 4, 4, 768, 1024), with_experts()}) {
    const Added halves = added(
        network, {.kind = AccumulationKind::kernel, .produced = Dtype::fp16, .dtype = Dtype::fp16});
    CHECK(halves.parameters == parameter_count(network, 512));
    CHECK(halves.read == 4 * halves.parameters);
    CHECK(halves.written == 2 * halves.parameters);
    CHECK(halves.elements == 0);
    const Added mixed = added(network, {.kind = AccumulationKind::kernel, .dtype = Dtype::fp32});
    CHECK(mixed.read == 6 * mixed.parameters);
    CHECK(mixed.written == 4 * mixed.parameters);
    CHECK(mixed.elements == mixed.parameters);
  }
}

TEST_CASE("converted gradients are written once more and read once more") {
  const Transformer network = llama(2, 256, 4, 4, 768, 1024);
  const Added both = added(network, {.kind = AccumulationKind::converted, .dtype = Dtype::fp32});
  CHECK(both.read == 10 * both.parameters);
  CHECK(both.written == 8 * both.parameters);
  CHECK(both.elements == both.parameters);
  const Added alike = added(network, {.kind = AccumulationKind::converted});
  CHECK(alike.read == 4 * alike.parameters);
}

TEST_CASE("autograd adds what is not the first") {
  const Transformer network = llama(2, 256, 4, 4, 768, 1024);
  const Added one = added(network, {.kind = AccumulationKind::autograd, .share = 0});
  CHECK(one.read == 0);
  const Added four = added(network, {.kind = AccumulationKind::autograd, .share = 0.75});
  CHECK(4 * four.read == 3 * 4 * four.parameters);
}

// C is read and written in 4 bytes instead of written in 2.
TEST_CASE("products that add to gradients read and write them") {
  const Transformer network = llama(2, 256, 4, 4, 768, 1024);
  const NetworkWork plain = summed(network, {});
  const NetworkWork fused =
      summed(network, {.kind = AccumulationKind::product, .dtype = Dtype::fp32});
  const LayerWork &before = plain.kinds[1], &after = fused.kinds[1];
  CHECK(product_traffic(after, true) ==
        product_traffic(before, true) + 6 * matrix_elements(before));
  CHECK(product_traffic(after, false) == product_traffic(before, false));
  CHECK(after.backward.size() == before.backward.size());
}

TEST_CASE("sums come behind the products, with the gradients of weights") {
  const NetworkWork work =
      summed(llama(2, 256, 4, 4, 768, 1024), {.kind = AccumulationKind::kernel});
  const LayerWork& layer = work.kinds[1];
  bool is_sum = false;
  for (const WorkItem& item : layer.backward) {
    const auto* kernel = std::get_if<NamedKernel>(&item);
    if (kernel == nullptr || !kernel->weight_gradient) continue;
    const bool was_sum = is_sum;
    is_sum = std::holds_alternative<MemoryBound>(kernel->kernel);
    CHECK((is_sum || !was_sum));
  }
  CHECK(is_sum);
}
