// Mixtures of experts and latent attention: sizes of published networks, volumes, work.
#include <doctest/doctest.h>

#include "models/families/network.h"
#include "models/transformer/networks.h"
#include "tests/models/work_support.h"
#include "tests/support/about.h"
#include "tests/support/rooms.h"

using namespace trainyard;

namespace {

Transformer mixture(std::int64_t experts, std::int64_t top_k, std::int64_t width) {
  Transformer network = llama(4, 512, 8, 8, 1536, 4096);
  network.moe = {.experts = experts, .top_k = top_k, .ffn_hidden = width};
  return network;
}

const LayerWork& experts_of(const NetworkWork& work) {
  return last_layer(work);
}

double billions(const Transformer& network) {
  return static_cast<double>(parameter_count(network, 4096)) / 1e9;
}

std::int64_t moved(const std::vector<WorkItem>& items, LayerGroup group) {
  std::int64_t bytes = 0;
  for (const GroupCollective& collective : collectives(items))
    if (collective.group == group) bytes += collective.bytes.count();
  return bytes;
}

Flops routed_flops(const std::vector<WorkItem>& items) {
  Flops sum;
  for (const WorkItem& item : items) {
    const auto* kernel = std::get_if<NamedKernel>(&item);
    if (kernel && kernel->routed) sum = sum + flops(kernel->kernel);
  }
  return sum;
}

}  // namespace

// Sizes as their authors print them.
TEST_CASE("parameters of published mixtures of experts") {
  Transformer mixtral = llama(32, 4096, 32, 8, 14336, 32000);
  mixtral.moe = {.experts = 8, .top_k = 2, .ffn_hidden = 14336};
  mixtral.head_size = 128;
  CHECK(billions(mixtral) == about(46.7).within(0.001));

  Transformer qwen3 = llama(48, 2048, 32, 4, 6144, 151936);
  qwen3.head_size = 128;
  qwen3.moe = {.experts = 128, .top_k = 8, .ffn_hidden = 768};
  CHECK(billions(qwen3) == about(30.5).within(0.002));

  Transformer deepseek = llama(61, 7168, 128, 128, 18432, 129280);
  deepseek.latent = {.key_value_rank = 512,
                     .query_rank = 1536,
                     .nope_size = 128,
                     .rope_size = 64,
                     .value_size = 128};
  deepseek.moe = {
      .experts = 256, .top_k = 8, .ffn_hidden = 2048, .shared_ffn_hidden = 2048, .first_dense = 3};
  CHECK(billions(deepseek) == about(671).within(0.001));
}

// Oracle: 2 (e-1)/e tokens top_k h d per rank and pass; the whole buffers are what is counted here.
TEST_CASE("dispatch and combine move every row there and back, in each pass") {
  for (const int e : {2, 4, 8}) {
    Execution how = execution(2, 256);
    how.experts.ranks = e;
    const LayerWork layer = experts_of(network_work(mixture(16, 4, 768), how));
    const std::int64_t rows = 2 * 256 * 4;
    CHECK(moved(layer.forward, LayerGroup::expert) == 2 * rows * 512 * 2);
    CHECK(moved(layer.backward, LayerGroup::expert) == 2 * rows * 512 * 2);
  }
  const LayerWork alone = experts_of(network_work(mixture(16, 4, 768), execution(2, 256)));
  CHECK(collectives(alone.forward).empty());
}

TEST_CASE("experts do the same work wherever they are, and hold their share of the parameters") {
  const Transformer network = mixture(16, 4, 768);
  const Flops once = Flops(2.0 * 512 * 4 * 3 * 512 * 768);  // tokens top_k (gate, up, down) h f
  for (const int e : {1, 2, 4, 16}) {
    Execution how = execution(2, 256);
    how.experts.ranks = e;
    const LayerWork layer = experts_of(network_work(network, how));
    CHECK(routed_flops(layer.forward) == once);
    CHECK(routed_flops(layer.backward) == 2 * once);
    CHECK(layer.expert_parameters == 16 / e * 3 * 512 * 768);
  }
  // Two ranks of a tensor-parallel group, each expert divided between them.
  Execution how = execution(2, 256, 2, true);
  how.experts.tensor = 2;
  const LayerWork half = experts_of(network_work(network, how));
  CHECK(2 * routed_flops(half.forward) == once);
  CHECK(2 * half.expert_parameters == 16 * 3 * 512 * 768);
  const std::int64_t gathered = 2 * 256 * 4 * 512 * 2;  // rows of both
  CHECK(moved(half.forward, LayerGroup::expert_tensor) == 2 * gathered);
}

TEST_CASE("an expert of capacity c computes c times its even share") {
  Execution how = execution(2, 256);
  const Flops even = routed_flops(experts_of(network_work(mixture(16, 4, 768), how)).forward);
  how.experts.capacity = 1.25;
  CHECK(routed_flops(experts_of(network_work(mixture(16, 4, 768), how)).forward) == 1.25 * even);
}

TEST_CASE("the first layers and every other one may be dense") {
  Transformer network = mixture(8, 2, 768);
  network.layers = 6;
  network.moe.first_dense = 2;
  network.moe.every = 2;
  CHECK(network_work(network, execution(1, 128)).chain == std::vector<int>{0, 1, 1, 1, 3, 1, 3, 2});
}

TEST_CASE("latent attention counts two head sizes") {
  Transformer network = llama(1, 1024, 16, 16, 4096, 4096);
  network.latent = {.key_value_rank = 128, .nope_size = 48, .rope_size = 16, .value_size = 32};
  Execution how = execution(1, 512);
  how.kernels.attention = AttentionKernel::fa2;
  const LayerWork work = layer(network_work(network, how));
  Flops attention;
  for (const WorkItem& item : work.forward) {
    const auto* kernel = std::get_if<NamedKernel>(&item);
    if (kernel && std::holds_alternative<Attention>(kernel->kernel))
      attention = attention + flops(kernel->kernel);
  }
  // Half of Q K^T on 64 and of P V on 32.
  CHECK(attention == Flops(0.5 * 2 * 16 * 512.0 * 512 * (64 + 32)));
  // h to q, h to compressed k v and position, their norm, expansion, output; then norms and FFN.
  CHECK(work.parameters == 1024 * 16 * 64 + 1024 * (128 + 16) + 128 + 128 * 16 * (48 + 32) +
                               16 * 32 * 1024 + 3 * 1024 * 4096 + 2 * 1024);
}

TEST_CASE("what experts cannot be dealt to is named") {
  const auto problem = [](const Execution& how) {
    const auto problems = check_execution(mixture(16, 4, 768), how);
    return problems.empty() ? "" : problems.front().member + ": " + problems.front().message;
  };
  Execution how = execution(2, 256);
  how.experts.ranks = 3;
  CHECK(problem(how) == "expert: experts (16) must be divisible by the expert-parallel degree (3)");
  CHECK(problem(execution(2, 256, 2, false)) ==
        "sequence_parallel: experts behind tensor parallelism need sequence parallelism: without "
        "it every tensor-parallel rank would send the same tokens");
}

// Of each of a rank's experts, in both products, their inputs' and their weights' gradients.
TEST_CASE("separate experts' products are launched one by one") {
  Transformer network = mixture(8, 2, 256);
  network.moe.every = 1;
  Execution how = execution(1, 64);
  how.experts.ranks = 2;
  const auto launches = [&](bool separate) {
    how.kernels.separate_experts = separate;
    const NetworkWork work = network_work(network, how);
    std::int64_t sum = 0, kernels = 0;
    for (const std::vector<WorkItem>* items :
         {&experts_of(work).forward, &experts_of(work).backward}) {
      for (const WorkItem& item : *items) {
        const auto* kernel = std::get_if<NamedKernel>(&item);
        if (kernel == nullptr) continue;
        sum += kernel->launches;
        ++kernels;
      }
    }
    return sum - kernels;
  };
  CHECK(launches(false) == 0);
  CHECK(launches(true) == 6 * (8 / 2 - 1));
}

// Of r h numbers in 2 bytes: a bias by a probability, the sum and rows joined; backward, rows
// joined, two products of the gradient and their sums.
TEST_CASE("biases of experts' second product by operators") {
  Transformer network = mixture(8, 2, 256);
  network.moe.every = 1;
  network.moe.biases = true;
  Execution how = execution(1, 64);
  how.experts.ranks = 2;
  const auto moved = [&](bool backward, MemoryOp op) {
    const NetworkWork work = network_work(network, how);
    return bytes_of(backward ? experts_of(work).backward : experts_of(work).forward, op);
  };
  const auto moved_by_operators = [&](bool backward, MemoryOp op) {
    how.kernels.expert_biases_by_operators = false;
    const std::int64_t by_product = moved(backward, op);
    how.kernels.expert_biases_by_operators = true;
    return moved(backward, op) - by_product;
  };
  const std::int64_t all = 64 * 2 * 512 * 2;  // tokens, experts of each, columns, bytes
  CHECK(moved_by_operators(false, MemoryOp::elementwise) == 6 * all);
  CHECK(moved_by_operators(true, MemoryOp::elementwise) == 7 * all);
  CHECK(moved_by_operators(true, MemoryOp::column_sum) == all);
  network.moe.biases = false;
  CHECK(moved_by_operators(false, MemoryOp::elementwise) == 0);
}

TEST_CASE("rows that are weighted before the second product are not kept behind it") {
  Transformer network = mixture(8, 2, 256);
  network.moe.every = 1;
  Execution how = execution(1, 64);
  const auto kept = [&](bool in_activation) {
    how.kernels.rows_weighted_in_activation = in_activation;
    return experts_of(network_work(network, how)).activations().count();
  };
  CHECK(kept(false) - kept(true) == 64 * 2 * 512 * 2);  // tokens, experts of each, hidden, bytes
}

// Of r f numbers in 2 bytes: each half by itself, then both; backward, three comparisons of a half
// to a byte each, two of which become one, two gradients by them, then both.
TEST_CASE("limits before experts' gates by operators") {
  Transformer network = mixture(8, 2, 256);
  network.moe.every = 1;
  network.moe.clamped = true;
  Execution how = execution(1, 64);
  const std::int64_t half = 64 * 2 * 256;  // tokens, experts of each, columns
  const auto run = [&](bool by_operators, auto measure) {
    how.kernels.expert_clamps_by_operators = by_operators;
    return measure(experts_of(network_work(network, how)));
  };
  const auto more = [&](auto measure) { return run(true, measure) - run(false, measure); };
  CHECK(more([](const LayerWork& work) { return bytes_of(work.forward, MemoryOp::elementwise); }) ==
        (2 * (2 + 2) + 4 + 4) * half);
  CHECK(more([](const LayerWork& work) {
          return bytes_of(work.backward, MemoryOp::elementwise);
        }) == (3 * (2 + 1) + (2 + 1) + 2 * (3 + 2) + 4 + 4) * half);
  const auto one_by_one = [](const std::vector<WorkItem>& items) {
    std::int64_t sum = 0;
    for (const WorkItem& item : items)
      if (const auto* kernel = std::get_if<NamedKernel>(&item))
        if (const auto* pass = std::get_if<MemoryBound>(&kernel->kernel)) sum += pass->elements;
    return sum;
  };
  CHECK(more([&](const LayerWork& work) { return one_by_one(work.forward); }) == 2 * half);
  CHECK(more([&](const LayerWork& work) { return one_by_one(work.backward); }) == 5 * half);
  CHECK(more([](const LayerWork& work) { return work.activations().count(); }) == 2 * half * 2);
  network.moe.clamped = false;
  CHECK(more([](const LayerWork& work) { return bytes_of(work.forward, MemoryOp::elementwise); }) ==
        0);
}

// Reads both halves and writes one; backward, reads those and a gradient and writes two.
TEST_CASE("experts' gated activations are the kernel that dense layers run") {
  Transformer network = mixture(8, 2, 256);
  const std::int64_t half = 64 * 2 * 256 * 2;  // tokens, experts of each, columns, bytes
  const LayerWork work = experts_of(network_work(network, execution(1, 64)));
  CHECK(bytes_of(work.forward, MemoryOp::gated_activation) == 3 * half);
  CHECK(bytes_of(work.backward, MemoryOp::gated_activation) == 5 * half);

  // What arrives at a rank from others varies, unless each sends no more and no less than a share.
  Execution how = execution(1, 64);
  how.experts.ranks = 2;
  const LayerWork dropless = experts_of(network_work(network, how));
  CHECK(bytes_of(dropless.forward, MemoryOp::varying_gated_activation) == 3 * half);
  CHECK(bytes_of(dropless.backward, MemoryOp::varying_gated_activation) == 5 * half);
  how.experts.capacity = 1;
  CHECK(bytes_of(experts_of(network_work(network, how)).forward, MemoryOp::gated_activation) ==
        3 * half);
}
