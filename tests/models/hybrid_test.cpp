// Stacks whose layers have one part each, and Mamba-2's layers among them.
#include <doctest/doctest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "models/transformer/transformer.h"
#include "tests/models/work_support.h"

using namespace trainyard;

namespace {

constexpr std::int64_t h = 96, L = 64, b = 3, m = L * b, d = 2;
constexpr std::int64_t H = 16, P = 8, G = 4, N = 32, c = 16, I = H * P;
constexpr std::int64_t kProjected = 2 * I + 2 * G * N + H;

Transformer with_pattern(const std::string& pattern) {
  Transformer network = llama(static_cast<std::int64_t>(pattern.size()), h, 12, 4, 256, 1000);
  network.pattern = pattern;
  network.mamba = {.heads = H, .head_size = P, .groups = G, .state_size = N, .chunk = c};
  return network;
}

LayerWork mamba(const Execution& how) {
  return models::transformer_layer(with_pattern("M"), how, {.content = models::Content::mamba});
}

// What runs, without names.
std::vector<models::Kernel> kernels(const NetworkWork& work, bool backward) {
  std::vector<models::Kernel> found;
  std::vector<int> order = work.chain;
  if (backward) std::reverse(order.begin(), order.end());
  for (const int kind : order) {
    const LayerWork& one = work.kinds[static_cast<std::size_t>(kind)];
    for (const WorkItem& item : backward ? one.backward : one.forward)
      if (const auto* named = std::get_if<NamedKernel>(&item)) found.push_back(named->kernel);
  }
  return found;
}

Bytes kept(const NetworkWork& work) {
  Bytes sum;
  for (const int kind : work.chain)
    sum = sum + work.kinds[static_cast<std::size_t>(kind)].activations();
  return sum;
}

std::int64_t held(const NetworkWork& work) {
  std::int64_t sum = 0;
  for (const int kind : work.chain) {
    const LayerWork& one = work.kinds[static_cast<std::size_t>(kind)];
    sum += one.parameters + one.expert_parameters;
  }
  return sum;
}

Transformer with_experts(Transformer network) {
  network.moe = {.experts = 8, .top_k = 2, .ffn_hidden = 128, .shared_ffn_hidden = 64};
  return network;
}

}  // namespace

TEST_CASE("a layer of attention and one of feed-forward are a whole layer") {
  for (const bool mixture : {false, true}) {
    CAPTURE(mixture);
    Transformer whole = llama(2, h, 12, 4, 256, 1000);
    Transformer halves = with_pattern(mixture ? "*E*E" : "*-*-");
    halves.mamba = {};
    if (mixture) {
      whole = with_experts(whole);
      halves = with_experts(halves);
    }
    CHECK(parameter_count(whole, L) == parameter_count(halves, L));
    for (const models::Fusion fusion :
         {models::Fusion::by_hand, models::Fusion::eager, models::Fusion::compiled}) {
      CAPTURE(static_cast<int>(fusion));
      Execution how = execution(b, L, 2, true);
      how.kernels.fusion = fusion;
      REQUIRE(check_execution(halves, how).empty());
      const NetworkWork one = network_work(whole, how), other = network_work(halves, how);
      CHECK(kernels(one, false) == kernels(other, false));
      CHECK(kernels(one, true) == kernels(other, true));
      CHECK(kept(one) == kept(other));
      CHECK(held(one) == held(other));
    }
  }
}

TEST_CASE("parameters of Mamba's layers: two products, the convolution, three numbers a head") {
  const std::int64_t layer = h * kProjected + I * h + 5 * (I + 2 * G * N) + 3 * H + I + h;
  CHECK(parameter_count(with_pattern("MM"), L) - parameter_count(with_pattern("M"), L) == layer);
  CHECK(mamba(execution(b, L)).parameters == layer);
  // Everything but the norm before is divided.
  CHECK(mamba(execution(b, L, 4)).parameters == (layer - h) / 4 + h);
}

TEST_CASE("Mamba's layers keep what their projections and the scan read, and the scan's output") {
  // The stream, the normalised one, the projection, the output before and behind its norm.
  CHECK(mamba(execution(b, L)).activations() == Bytes(m * (2 * h + kProjected + 2 * I) * d));
  CHECK(mamba(execution(b, L, 4, true)).activations() ==
        Bytes(m * (2 * h + kProjected + 2 * I) * d / 4));
  CHECK(mamba(execution(b, L, 1, false, Recompute::full)).activations() == Bytes(m * h * d));
}

// Per token: both projections; a state's update and its reading, 2 I N each; scores of a group with
// its chunk, 2 c N G; half of them, in blocks of 64, times x: here the whole chunk, 2 c I.
TEST_CASE(
    "the scan executes products within chunks and with states, and no more with longer ones") {
  const double projections = 2.0 * h * (kProjected + I);
  const double scan = 2.0 * (2 * I * N + c * N * G + c * I);
  CHECK(sum_of_flops(mamba(execution(b, L)).forward) == Flops(m * (projections + scan)));
  CHECK(sum_of_flops(mamba(execution(b, 4 * L)).forward) == Flops(4 * m * (projections + scan)));
  CHECK(sum_of_flops(mamba(execution(b, L, 4)).forward) == Flops(m * (projections + scan) / 4));
  // Model FLOPs do not depend on the chunks: 7 I N for a token.
  CHECK(mamba(execution(b, L)).forward_model_flops == Flops(m * (projections + 7.0 * I * N)));
}

TEST_CASE(
    "backward, both projections have two gradients, and the scan runs again what it dropped") {
  const LayerWork work = mamba(execution(b, L));
  CHECK(gemm(work.backward, "mamba input input gradient") ==
        Gemm{.m = m, .n = h, .k = kProjected, .dtype = Dtype::fp16});
  CHECK(gemm(work.backward, "mamba input weight gradient") == weight_gemm(kProjected, h, m));
  CHECK(gemm(work.backward, "mamba output weight gradient") == weight_gemm(h, I, m));
  const double projections = 2.0 * h * (kProjected + I);
  // States and scores again; gradients of states, B and C 2 I N each, of B and C by scores 2 c N G
  // each, of x as its output, of scores and decays 2 c I each.
  const double scan =
      2.0 * (I * N + c * N * G + 3 * I * N + 2 * c * N * G + I * N + c * I + 2 * c * I);
  CHECK(sum_of_flops(work.backward) == Flops(m * (2 * projections + scan)));
}

TEST_CASE("tensor parallelism gathers before and reduces behind, as in attention") {
  const LayerWork work = mamba(execution(b, L, 4, true));
  const std::vector<GroupCollective> forward = collectives(work.forward);
  REQUIRE(forward.size() == 2);
  CHECK(forward[0].kind == CollectiveKind::all_gather);
  CHECK(forward[1].kind == CollectiveKind::reduce_scatter);
  for (const GroupCollective& one : forward)
    CHECK(one.bytes == Bytes(m * h * d));
}

TEST_CASE("context parallelism exchanges tokens for heads, and computes what one rank would") {
  Execution how = execution(b, L);
  how.kernels.attention = models::AttentionKernel::fa2;
  const LayerWork alone = mamba(how);
  how.context = 4;
  const LayerWork part = mamba(how);
  CHECK(4.0 * sum_of_flops(part.forward).count() == sum_of_flops(alone.forward).count());
  CHECK(4.0 * sum_of_flops(part.backward).count() == sum_of_flops(alone.backward).count());
  CHECK(4 * bytes_of(part.forward, MemoryOp::elementwise) ==
        bytes_of(alone.forward, MemoryOp::elementwise));
  const std::vector<GroupCollective> exchanges = collectives(part.forward);
  REQUIRE(exchanges.size() == 2);
  CHECK(exchanges[0].bytes == Bytes(m / 4 * kProjected * d));
  CHECK(exchanges[1].bytes == Bytes(m / 4 * I * d));
}

TEST_CASE("what divides no heads or groups of Mamba is refused") {
  const auto problems = [](Transformer network, const Execution& how) {
    std::vector<std::string> found;
    for (const models::ExecutionProblem& problem : check_execution(network, how))
      found.push_back(problem.message);
    return found;
  };
  Transformer network = with_pattern("M*M-");
  CHECK(problems(network, execution(b, L, 4)).empty());
  network.mamba.groups = 2;
  CHECK(problems(network, execution(b, L, 4)).size() == 1);
  network.pattern = "M*M";
  CHECK(problems(network, execution(b, L)).size() == 1);
  network = with_pattern("M*M-");
  network.heads = network.kv_heads = 3;
  network.ffn_hidden = 255;
  CHECK(problems(network, execution(b, L, 2)).size() == 3);
  network.pattern = "MMMM";
  CHECK(problems(network, execution(b, L, 2)).empty());
  network.mamba = {};
  network.pattern = "****";
  CHECK(problems(network, execution(b, L, 2)).size() == 2);
  network.pattern = "----";
  CHECK(problems(network, execution(b, L, 2)).size() == 1);
  network = with_pattern("M*M-");
  network.block_norms = models::BlockNorms::around;
  CHECK(problems(network, execution(b, L)).size() == 1);
}
