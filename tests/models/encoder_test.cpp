// Encoders: published parameter counts, closed forms of FLOPs and activations, and what a layer
// and the heads enqueue.
#include <doctest/doctest.h>

#include <algorithm>

#include "tests/models/work_support.h"
#include "tests/support/rooms.h"

using namespace trainyard;

namespace {

using Script = std::vector<std::string>;

Encoder bert(std::int64_t layers, std::int64_t hidden, std::int64_t heads,
             std::int64_t vocabulary = 30522) {
  Encoder network;
  network.stack = gpt(layers, hidden, heads, vocabulary);
  network.stack.causal = false;
  network.stack.post_norm = true;
  network.stack.max_positions = 512;
  return network;
}

const NamedKernel& kernel(const std::vector<WorkItem>& items, const std::string& name) {
  for (const WorkItem& item : items) {
    const auto* found = std::get_if<NamedKernel>(&item);
    if (found && found->name == name) return *found;
  }
  FAIL("no kernel named " << name);
  static const NamedKernel none;
  return none;
}

bool has(const std::vector<WorkItem>& items, const std::string& name) {
  const Script lines = script(items);
  return std::find(lines.begin(), lines.end(), name) != lines.end();
}

}  // namespace

// Hugging Face: BertModel (with pooler) 109 482 240 and 335 141 888; BertForPreTraining adds the
// heads: h^2 + h + 2 h + V of the masked-language one, 2 h + 2 of the next sentence.
TEST_CASE("BERT has the published parameters") {
  CHECK(parameter_count(bert(12, 768, 12), 512) == 110'106'428);
  CHECK(parameter_count(bert(24, 1024, 16), 512) == 336'226'108);
  Encoder base = bert(12, 768, 12), large = bert(24, 1024, 16);
  base.masked_lm = large.masked_lm = false;
  CHECK(parameter_count(base, 512) - (2 * 768 + 2) == 109'482'240);
  CHECK(parameter_count(large, 512) - (2 * 1024 + 2) == 335'141'888);
  base.masked_lm = true;
  base.next_sentence = false;
  CHECK(parameter_count(base, 512) == 109'514'298);  // BertForMaskedLM: no pooler
  base.stack.tied_embeddings = false;
  CHECK(parameter_count(base, 512) == 109'514'298 + 30522 * 768);
}

TEST_CASE("norms before the layers move to the end of the stack") {
  Encoder network = bert(4, 64, 8, 512);
  const std::int64_t after = parameter_count(network, 512);
  network.stack.post_norm = false;  // the embedding's norm goes, the final one comes
  CHECK(parameter_count(network, 512) == after);
}

TEST_CASE("ranks of an encoder hold its parameters together") {
  const Encoder network = bert(3, 64, 8, 512);
  for (const int t : {1, 2, 4}) {
    const NetworkWork work = network_work(network, execution(1, 16, t));
    std::int64_t sum = 0;
    for (const int kind : work.chain) {
      const LayerWork& place = work.kinds[static_cast<std::size_t>(kind)];
      sum += t * (place.parameters - place.tied_parameters);
    }
    // Whole on every rank: positions and types, norms, biases of proj and fc2, dense heads.
    const std::int64_t replicated = (512 + 2) * 64 + 2 * 64 + 3 * (4 * 64 + 2 * 64) +
                                    (64 * 64 + 64 + 2 * 64) + (64 * 64 + 64 + 2 * 64 + 2);
    CHECK(sum - (t - 1) * replicated == parameter_count(network, 16));
  }
}

TEST_CASE("a layer of BERT multiplies 24 b s h^2 + 4 b s^2 h, fused or not") {
  const std::int64_t b = 3, s = 32, h = 64, l = 2, v = 512;
  for (const bool fused : {false, true}) {
    Execution how = execution(b, s);
    how.kernels.attention = fused ? AttentionKernel::fa2 : AttentionKernel::unfused;
    const NetworkWork work = network_work(bert(l, h, 8, v), how);
    const double forward = static_cast<double>(24 * b * s * h * h + 4 * b * s * s * h);
    CHECK(layer(work).forward_model_flops.count() == forward);
    // No part is left out for a mask.
    CHECK(layer(work).forward_masked_flops == Flops(0));
    CHECK(sum_of_flops(layer(work).forward).count() == forward);
    // Fused attention computes the scores once more: 5 products for 2.
    CHECK(sum_of_flops(layer(work).backward).count() ==
          2 * forward + (fused ? static_cast<double>(2 * b * s * s * h) : 0));
  }
}

TEST_CASE("the heads see all tokens, or the masked ones of each sequence") {
  const std::int64_t b = 4, s = 128, h = 64, v = 512;
  Execution how = execution(b, s);
  const NetworkWork all = network_work(bert(1, h, 8, v), how);
  const LayerWork& head = all.kinds[2];
  CHECK(gemm(head.forward, "transform") == Gemm{b * s, h, h, 1, Dtype::fp16});
  CHECK(gemm(head.forward, "logits") == Gemm{b * s, v, h, 1, Dtype::fp16});
  CHECK(!has(head.forward, "masked tokens"));
  CHECK(head.forward_model_flops.count() ==
        static_cast<double>(2 * b * s * (h * h + h * v) + 2 * b * (h * h + 2 * h)));
  CHECK(sum_of_flops(head.forward) == head.forward_model_flops);
  CHECK(sum_of_flops(head.backward).count() == 2 * head.forward_model_flops.count());

  how.micro_batch.predictions = 20;
  const NetworkWork some = network_work(bert(1, h, 8, v), how);
  CHECK(has(some.kinds[2].forward, "masked tokens"));
  CHECK(gemm(some.kinds[2].forward, "logits") == Gemm{b * 20, v, h, 1, Dtype::fp16});
  CHECK(sum_of_flops(some.kinds[2].forward) == some.kinds[2].forward_model_flops);
  // Four tensors of h and fp32 logits for each token that is seen; two of the first tokens.
  CHECK((head.activations() + head.logits).count() == b * s * (4 * h * 2 + v * 4) + 2 * b * h * 2);
  CHECK((some.kinds[2].activations() + some.kinds[2].logits).count() ==
        b * 20 * (4 * h * 2 + v * 4) + 2 * b * h * 2);
}

// Korthikanti et al. 2022, equations 1 to 4. They do not ask whether attention is masked, nor where
// the norms stand.
TEST_CASE("an encoder layer keeps s b h (34 + 5 a s / h) / t") {
  const std::int64_t b = 2, s = 64, h = 256, a = 8;
  for (const bool post : {false, true}) {
    Encoder network = bert(1, h, a, 512);
    network.stack.post_norm = post;
    for (const int t : {1, 2, 4}) {
      const auto kept = [&](bool sp, Recompute recompute) {
        return layer(network_work(network, execution(b, s, t, sp, recompute)))
            .activations()
            .count();
      };
      CHECK(kept(true, Recompute::none) == (34 * s * b * h + 5 * a * s * s * b) / t);
      CHECK(kept(false, Recompute::none) ==
            10 * s * b * h + 24 * s * b * h / t + 5 * a * s * s * b / t);
      CHECK(kept(true, Recompute::selective) == 34 * s * b * h / t);
      CHECK(kept(true, Recompute::full) == 2 * s * b * h / t);
    }
  }
}

TEST_CASE("a layer of BERT has its norms behind the additions, in order") {
  const LayerWork work = layer(network_work(bert(1, 64, 8, 512), execution(1, 16, 2, true)));
  CHECK(script(work.forward) == Script{"start qkv all-gather",
                                       "wait",
                                       "qkv",
                                       "attention transpose",
                                       "attention scores",
                                       "softmax",
                                       "attention dropout",
                                       "attention context",
                                       "proj",
                                       "start proj reduce-scatter",
                                       "wait",
                                       "residual 1",
                                       "norm 1",
                                       "start fc1 all-gather",
                                       "wait",
                                       "fc1",
                                       "activation",
                                       "fc2",
                                       "start fc2 reduce-scatter",
                                       "wait",
                                       "residual 2",
                                       "norm 2"});
  Script names = script(work.backward);
  CHECK(names.front() == "norm 2 backward");
  CHECK(std::find(names.begin(), names.end(), "norm 1 backward") + 1 ==
        std::find(names.begin(), names.end(), "residual 1 backward dropout"));
  CHECK(names.back() == "wait");  // for the gradient of qkv's input
}

TEST_CASE("fused attention of an encoder is not causal, and a ring step sees whole parts") {
  Execution how = execution(2, 64);
  how.kernels.attention = AttentionKernel::fa2;
  const NetworkWork alone = network_work(bert(1, 64, 8, 512), how);
  const auto& attention = std::get<Attention>(kernel(layer(alone).forward, "attention").kernel);
  CHECK(!attention.causal);
  CHECK(attention.key_length == 64);
  how.context = 4;
  for (const ContextMethod method :
       {ContextMethod::ring, ContextMethod::all_gather, ContextMethod::ulysses}) {
    how.context_parallel.method = method;
    const LayerWork work = layer(network_work(bert(1, 64, 8, 512), how));
    double products = 0;
    for (const WorkItem& item : work.forward) {
      const auto* found = std::get_if<NamedKernel>(&item);
      if (found && std::holds_alternative<Attention>(found->kernel))
        products += flops(found->kernel).count();
    }
    CHECK(4 * products == static_cast<double>(4 * 2 * 64 * 64 * 64));
  }
}

TEST_CASE("the ends of an encoder talk as a decoder's do, and gather the first tokens") {
  const std::int64_t b = 2, s = 16, h = 64, v = 512, t = 4;
  const NetworkWork work = network_work(bert(1, h, 8, v), execution(b, s, 4, true));
  const Bytes states(b * s * h * 2), scalars(b * s * 4);
  const std::vector<GroupCollective> embedding = collectives(work.kinds[0].forward);
  REQUIRE(embedding.size() == 1);
  CHECK(embedding[0].kind == CollectiveKind::reduce_scatter);
  CHECK(embedding[0].bytes == states);
  const std::vector<GroupCollective> head = collectives(work.kinds[2].forward);
  REQUIRE(head.size() == 4);
  CHECK(head[0].bytes == states);
  CHECK(head[1].bytes == scalars);
  CHECK(head[2].bytes == scalars);
  CHECK(head[3].name == "pooler all-gather");
  CHECK(head[3].bytes == states);
  CHECK(gemm(work.kinds[2].forward, "transform").m == b * s / t);
  CHECK(gemm(work.kinds[2].forward, "logits") == Gemm{b * s, v / t, h, 1, Dtype::fp16});
  CHECK(collectives(work.kinds[2].backward).size() == 2);
}

TEST_CASE("PyTorch's encoder runs the same products, and norms its embedding") {
  for (const Fusion fusion : {Fusion::eager, Fusion::compiled}) {
    for (const bool post : {false, true}) {
      Encoder network = bert(1, 64, 8, 512);
      network.stack.post_norm = post;
      Execution how = execution(2, 16);
      const NetworkWork by_hand = network_work(network, how);
      how.kernels.fusion = fusion;
      const NetworkWork work = network_work(network, how);
      for (std::size_t kind = 0; kind < 3; ++kind) {
        CHECK(sum_of_flops(work.kinds[kind].forward) == sum_of_flops(by_hand.kinds[kind].forward));
        CHECK(sum_of_flops(work.kinds[kind].backward) ==
              sum_of_flops(by_hand.kinds[kind].backward));
        CHECK(work.kinds[kind].parameters == by_hand.kinds[kind].parameters);
      }
      CHECK(has(work.kinds[0].forward, "embedding norm") == (post && fusion == Fusion::eager));
      CHECK(has(work.kinds[0].forward, "embedding sum and norm") ==
            (post && fusion == Fusion::compiled));
      // Both branches meet twice in a layer, wherever the norms stand.
      const Script lines = script(layer(work).backward);
      CHECK(std::count_if(lines.begin(), lines.end(), [](const std::string& name) {
              return name.find("gradient sum") != std::string::npos;
            }) == (fusion == Fusion::eager ? 2 : 0));
    }
  }
}

TEST_CASE("an encoder says what it cannot be") {
  const auto member = [](const Encoder& network, const Execution& how) {
    const auto problems = check_execution(network, how);
    return problems.empty() ? std::string("fine") : problems.front().member;
  };
  Encoder network = bert(1, 64, 8, 512);
  Execution how = execution(1, 128);
  CHECK(member(network, how) == "fine");
  how.micro_batch.predictions = 129;
  CHECK(member(network, how) == "predictions");
  how.micro_batch.predictions = 20;
  network.masked_lm = false;
  CHECK(member(network, how) == "predictions");
  network.next_sentence = false;
  how.micro_batch.predictions = 0;
  CHECK(member(network, how) == "");
  CHECK(member(bert(1, 64, 8, 512), execution(1, 513)) == "sequence_length");
  CHECK(member(bert(1, 64, 8, 512), execution(1, 130, 4, true)) == "sequence_length");
}
