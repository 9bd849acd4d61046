// Bytes kept and kernels run again by each form of recomputation, against closed forms; s, b, h, a,
// t as in models/transformer/transformer.h.
#include <doctest/doctest.h>

#include <algorithm>
#include <initializer_list>
#include <string>
#include <vector>

#include "tests/models/work_support.h"
#include "tests/support/about.h"
#include "tests/support/rooms.h"

using namespace trainyard;

namespace {

using M = RecomputeModule;
using Script = std::vector<std::string>;

Execution with_modules(Execution how, std::initializer_list<M> modules) {
  how.recompute.form = Recompute::modules;
  for (const M module : modules)
    how.recompute.modules.add(module);
  return how;
}

std::int64_t kept(const LayerWork& work) {
  return work.activations().count();
}

double executed(const LayerWork& work) {
  return (sum_of_flops(work.forward) + sum_of_flops(work.recompute) + sum_of_flops(work.backward))
      .count();
}

// Lines of `script` that start with "recompute" or "start recompute".
Script again(const Script& lines) {
  Script found;
  for (const std::string& line : lines)
    if (line.starts_with("recompute ") || line.starts_with("start recompute "))
      found.push_back(line);
  return found;
}

std::size_t place(const Script& lines, const std::string& line) {
  const auto found = std::find(lines.begin(), lines.end(), line);
  REQUIRE(found != lines.end());
  return static_cast<std::size_t>(found - lines.begin());
}

constexpr std::int64_t kS = 128, kB = 2, kH = 256, kA = 8, kT = 2;

Transformer mixture(std::int64_t shared) {
  Transformer network = llama(4, 256, 8, 8, 512, 1000);
  network.moe.experts = 8;
  network.moe.top_k = 2;
  network.moe.ffn_hidden = 128;
  network.moe.shared_ffn_hidden = shared;
  network.moe.first_dense = 1;
  return network;
}

}  // namespace

TEST_CASE("modules: each gives up what is its own, together the sum") {
  const Transformer network = gpt(1, kH, kA, 1000);
  for (const bool sp : {false, true}) {
    CAPTURE(sp);
    const Execution how = execution(kB, kS, kT, sp);
    const auto given_up = [&](std::initializer_list<M> modules) {
      return kept(layer(network_work(network, how))) -
             kept(layer(network_work(network, with_modules(how, modules))));
    };
    const std::int64_t sbh = kS * kB * kH;
    const std::int64_t scores = 5 * kA * kS * kS * kB / kT;
    CHECK(given_up({M::core_attn}) == scores);
    CHECK(given_up({M::mlp}) == 16 * sbh / kT);
    CHECK(given_up({M::layernorm}) == 4 * sbh / (sp ? kT : 1));
    CHECK(given_up({M::core_attn, M::mlp}) == scores + 16 * sbh / kT);
    CHECK(given_up({M::core_attn, M::mlp, M::layernorm}) ==
          scores + 16 * sbh / kT + 4 * sbh / (sp ? kT : 1));
  }
}

TEST_CASE("modules: what is restored is the most at a time, not the sum") {
  const Transformer network = gpt(1, kH, kA, 1000);
  const Execution how = execution(kB, kS, kT, true);
  const auto restored = [&](std::initializer_list<M> modules) {
    return layer(network_work(network, with_modules(how, modules))).restored.count();
  };
  const std::int64_t mlp = restored({M::mlp}), core = restored({M::core_attn});
  const std::int64_t norm = 2 * kS * kB * kH / kT;
  CHECK(mlp == 16 * kS * kB * kH / kT);
  CHECK(restored({M::mlp, M::core_attn}) == std::max(mlp, core));
  // The norm before the feed-forward half comes back with it.
  CHECK(restored({M::mlp, M::layernorm}) == std::max(mlp + norm, norm));
}

TEST_CASE("core_attn is selective recomputation, and of fused attention gives up the statistics") {
  const Transformer network = gpt(1, kH, kA, 1000);
  Execution how = execution(kB, kS, kT, true);
  const LayerWork named = layer(network_work(network, with_modules(how, {M::core_attn})));
  how.recompute.form = Recompute::selective;
  const LayerWork selective = layer(network_work(network, how));
  CHECK(kept(named) == kept(selective));
  CHECK(script(named.backward) == script(selective.backward));
  CHECK(named.recompute_model_flops == selective.recompute_model_flops);

  how.recompute.form = Recompute::none;
  how.kernels.attention = AttentionKernel::fa2;
  const LayerWork fused = layer(network_work(network, with_modules(how, {M::core_attn})));
  CHECK(kept(layer(network_work(network, how))) - kept(fused) == 4 * kA * kS * kB / kT);
  CHECK(again(script(fused.backward)) == Script{"recompute attention"});
}

TEST_CASE("modules of a mixture and of latent attention") {
  Transformer network = mixture(256);
  Execution how = execution(kB, kS);
  const auto given_up = [&](std::initializer_list<M> modules) {
    return kept(last_layer(network_work(network, how))) -
           kept(last_layer(network_work(network, with_modules(how, modules))));
  };
  const std::int64_t tokens = kS * kB, rows = 2 * tokens;
  const std::int64_t shared = 2 * tokens * 3 * 256;
  CHECK(given_up({M::moe_act}) == 2 * rows * 128);
  CHECK(given_up({M::shared_experts}) == shared);
  CHECK(given_up({M::moe}) ==
        4 * tokens * 8 + 2 * rows * (256 + 2 * 128 + 128) + 2 * rows * 256 + shared);

  network = gpt(1, kH, kA, 1000);
  network.positional = Positional::rope;
  network.latent = {
      .key_value_rank = 64, .query_rank = 96, .nope_size = 32, .rope_size = 16, .value_size = 32};
  how.kernels.attention = AttentionKernel::fa2;
  const std::int64_t before = kept(layer(network_work(network, how)));
  const LayerWork latent = layer(network_work(network, with_modules(how, {M::mla_up_proj})));
  CHECK(before - kept(latent) == 2 * tokens * kA * (48 + 48 + 32));
  const Script lines = script(latent.backward);
  CHECK(again(lines) ==
        Script{"recompute query expansion", "recompute key and value expansion", "recompute rope"});
  CHECK(place(lines, "recompute rope") < place(lines, "attention backward"));
}

TEST_CASE("a checkpointed module runs again before its own backward pass, collectives included") {
  const LayerWork work = layer(network_work(
      gpt(1, kH, kA, 1000), with_modules(execution(kB, kS, kT, true), {M::mlp, M::layernorm})));
  CHECK(work.recompute.empty());
  const Script lines = script(work.backward);
  CHECK(again(lines) == Script{"recompute norm 2", "start recompute fc1 all-gather",
                               "recompute fc1", "recompute activation", "recompute fc2",
                               "start recompute fc2 reduce-scatter", "recompute norm 1"});
  CHECK(place(lines, "residual 2 backward") < place(lines, "recompute norm 2"));
  CHECK(place(lines, "start recompute fc2 reduce-scatter") <
        place(lines, "start fc2 gradient all-gather"));
  CHECK(place(lines, "residual 1 backward") < place(lines, "recompute norm 1"));
  CHECK(place(lines, "recompute norm 1") < place(lines, "proj input gradient"));
}

TEST_CASE("kernels that run again say so, and no others") {
  Execution how = execution(kB, kS, kT, true);
  for (const Recompute form : {Recompute::full, Recompute::selective, Recompute::modules}) {
    how.recompute.form = form;
    if (form == Recompute::modules) how = with_modules(how, {M::mlp, M::layernorm});
    const LayerWork work = layer(network_work(gpt(1, kH, kA, 1000), how));
    int repeated = 0;
    for (const std::vector<WorkItem>* items : {&work.forward, &work.recompute, &work.backward}) {
      for (const WorkItem& item : *items) {
        const auto* kernel = std::get_if<NamedKernel>(&item);
        if (kernel == nullptr) continue;
        CHECK(kernel->repeated == kernel->name.starts_with("recompute "));
        repeated += kernel->repeated ? 1 : 0;
      }
    }
    CHECK(repeated > 0);
  }
}

// torchtitan counts wq, wk, wv, wo, w1, w3, w2: kept are wq, wv, w1 and w2, with attention's output
// and statistics and the layer's input. A compiler does not keep the output of w2.
TEST_CASE("operators: every second product is kept, and the rest runs again") {
  constexpr std::int64_t kTokens = kS * kB, kKv = 2 * 32, kF = 512;
  const Transformer network = llama(1, kH, kA, 2, kF, 1000);
  Execution how = execution(kB, kS);
  how.kernels.attention = AttentionKernel::fa2;
  for (const Fusion fusion : {Fusion::eager, Fusion::compiled}) {
    how.kernels.fusion = fusion;
    how.recompute.form = Recompute::none;
    const LayerWork none = layer(network_work(network, how));
    how.recompute.form = Recompute::operators;
    const LayerWork work = layer(network_work(network, how));
    const std::int64_t w2 = fusion == Fusion::eager ? kH : 0;
    CHECK(kept(work) == 2 * kTokens * (kH + kH + kKv + kH + kF + w2) + 4 * kTokens * kA);
    // In both, wk, wo and w3 run again: of their columns exactly.
    const double again_flops = 2.0 * kTokens * kH * (kKv + kH + kF);
    CHECK(work.recompute_model_flops == Flops(again_flops));
    CHECK(executed(work) == executed(none) + again_flops);
    CHECK(executed(work) < executed(none) * 4 / 3);
    const Script lines = script(work.recompute);
    CHECK(place(lines, "recompute qkv") < place(lines, "recompute proj"));
    CHECK(std::count(lines.begin(), lines.end(), "recompute attention") == 0);
    CHECK(std::count(lines.begin(), lines.end(), "recompute fc2") == 0);
    CHECK(lines.back() == (fusion == Fusion::eager ? "recompute gate" : "recompute activation"));
  }
}

// Of q, k, v, o, gate, up and down the first and every second behind it are kept.
TEST_CASE("operators: products that a script has apart run again whole, and as many") {
  const Transformer network = llama(1, kH, kA, kA / 2, 512, 1000);
  const auto again = [&](bool apart) {
    Execution how = execution(kB, kS);
    how.kernels.attention = AttentionKernel::fa2;
    how.kernels.fusion = Fusion::eager;
    how.kernels.separate_projections = how.kernels.separate_gate = apart;
    how.recompute.form = Recompute::operators;
    return layer(network_work(network, how));
  };
  const LayerWork joint = again(false), apart = again(true);
  CHECK(sum_of_flops(apart.recompute) == sum_of_flops(joint.recompute));
  CHECK(kept(apart) == kept(joint));
  Script products;
  for (const WorkItem& item : apart.recompute) {
    const auto* named = std::get_if<NamedKernel>(&item);
    if (named && std::holds_alternative<Gemm>(named->kernel)) products.push_back(named->name);
  }
  CHECK(products == Script{"recompute key", "recompute proj", "recompute up"});
}

TEST_CASE("operators: a product that is cut for its gather runs again whole, or not at all") {
  const Transformer network = llama(1, kH, kA, kA / 2, 512, 1000);
  const auto again = [&](TensorOverlap overlap) {
    Execution how = execution(kB, kS, kT, true);
    how.kernels.attention = AttentionKernel::fa2;
    how.kernels.fusion = Fusion::compiled;
    how.kernels.separate_projections = how.kernels.separate_gate = true;
    how.tensor_parallel.overlap = overlap;
    how.recompute.form = Recompute::operators;
    return sum_of_flops(layer(network_work(network, how)).recompute);
  };
  CHECK(again(TensorOverlap::chunked) == again(TensorOverlap::none));
}

TEST_CASE("operators: outputs of reduce-scatters are kept") {
  const Transformer network = llama(1, kH, kA, kA, 512, 1000);
  Execution how = execution(kB, kS, kT, true);
  how.kernels.attention = AttentionKernel::fa2;
  how.recompute.form = Recompute::operators;
  how.kernels.fusion = Fusion::eager;
  const LayerWork eager = layer(network_work(network, how));
  how.kernels.fusion = Fusion::compiled;
  const LayerWork compiled = layer(network_work(network, how));
  // Both keep wo's sum over the group; eager runs wo again all the same, and keeps w2 twice.
  const std::int64_t shard = 2 * kS * kB * kH / kT;
  CHECK(kept(eager) - kept(compiled) == 2 * kS * kB * kH + shard);
  CHECK(collectives(eager.recompute).size() == 2);  // gathers of qkv and fc1
  CHECK(collectives(compiled.recompute).size() == 2);
  const Script lines = script(compiled.recompute);
  CHECK(std::count(lines.begin(), lines.end(), "recompute proj") == 0);
}

TEST_CASE("FLOPs: none < each form < full, which is 4/3 of none") {
  const Transformer network = gpt(1, kH, kA, 1000);
  Execution how = execution(kB, kS, kT, true);
  how.recompute.form = Recompute::full;
  const LayerWork full = layer(network_work(network, how));
  how.recompute.form = Recompute::none;
  const double none = executed(layer(network_work(network, how)));
  CHECK(3 * executed(full) == 4 * none);
  CHECK(full.recompute_model_flops == full.forward_model_flops);
  for (const M module : {M::core_attn, M::mlp}) {
    const LayerWork work = layer(network_work(network, with_modules(how, {module})));
    CHECK(executed(work) > none);
    CHECK(executed(work) < executed(full));
    CHECK((executed(work) - none) * kT == work.recompute_model_flops.count());
  }
}

TEST_CASE("modules that no layer has, that hide each other, or without PyTorch are refused") {
  const auto problems = [](const Transformer& network, Execution how) {
    Script found;
    for (const ExecutionProblem& problem : check_execution(network, how)) {
      CHECK(problem.member == "recompute");
      found.push_back(problem.message);
    }
    return found;
  };
  const Execution how = execution(kB, kS);
  CHECK(problems(gpt(1, kH, kA, 1000), with_modules(how, {M::moe})) ==
        Script{"no layer has a module moe"});
  CHECK(problems(mixture(0), with_modules(how, {M::mlp, M::moe_act})).empty());
  CHECK(problems(mixture(0), with_modules(how, {M::shared_experts})).size() == 1);
  CHECK(problems(mixture(256), with_modules(how, {M::moe, M::moe_act})).size() == 1);
  Execution operators = how;
  operators.recompute.form = Recompute::operators;
  CHECK(problems(gpt(1, kH, kA, 1000), operators).size() == 1);
}

// Korthikanti et al. 2022, table 2: attention 11 s b h + 5 a s^2 b, MLP 19, norms 4; the inputs of
// the norms apart, as the first is what one layer hands to the next.
TEST_CASE("activations by module") {
  const LayerWork work = layer(network_work(gpt(1, kH, kA, 1000), execution(kB, kS)));
  const std::int64_t sbh = kS * kB * kH;
  CHECK(work.kept.of(Module::layer_input) == Bytes(2 * sbh));
  CHECK(work.kept.of(Module::norms) == Bytes(2 * sbh));
  CHECK(work.kept.of(Module::attention) == Bytes(10 * sbh));
  CHECK(work.kept.of(Module::attention_scores) == Bytes(5 * kA * kS * kS * kB));
  CHECK(work.kept.of(Module::feed_forward) == Bytes(18 * sbh));
  CHECK(work.kept.of(Module::dropout_masks) == Bytes(2 * sbh));
  std::int64_t sum = 0;
  for (const Kept& part : work.kept.by_module())
    sum += part.bytes.count();
  CHECK(sum == kept(work));
}

TEST_CASE("a layer that stops early leaves out what follows the last tensor that is read") {
  for (const bool gated : {false, true}) {
    CAPTURE(gated);
    Transformer network = gated ? llama(1, kH, kA, kA, 512, 1000) : gpt(1, kH, kA, 1000);
    network.dropout = false;
    Execution how = execution(kB, kS, kT, true, Recompute::full);
    const LayerWork whole = layer(network_work(network, how));
    how.recompute.stops_early = true;
    const LayerWork early = layer(network_work(network, how));
    CHECK(kept(early) == kept(whole));
    CHECK(early.restored == whole.restored);
    const double ffn = gated ? 512 : 4 * kH;
    CHECK(executed(whole) - executed(early) == 2.0 * kB * kS * kH * ffn / kT);
    CHECK(whole.recompute_model_flops.count() - early.recompute_model_flops.count() ==
          about(2.0 * kB * kS * kH * ffn));
    const Script all = again(script(whole.recompute)), some = again(script(early.recompute));
    CHECK(some.size() < all.size());
    CHECK(std::equal(some.begin(), some.end(), all.begin()));
    CHECK(std::count(some.begin(), some.end(), "recompute fc2") == 0);
  }
  // The mask of the last dropout is read, and what comes before it is needed for it.
  Execution how = execution(kB, kS, kT, true, Recompute::full);
  const LayerWork whole = layer(network_work(gpt(1, kH, kA, 1000), how));
  how.recompute.stops_early = true;
  CHECK(layer(network_work(gpt(1, kH, kA, 1000), how)).recompute.size() == whole.recompute.size());
}
