// T5: published parameter counts, what cross-attention computes, sends and keeps, and what travels
// through the chain.
#include <doctest/doctest.h>

#include <algorithm>

#include "tests/models/work_support.h"
#include "tests/support/rooms.h"

using namespace trainyard;

namespace {

using Script = std::vector<std::string>;

EncoderDecoder t5(std::int64_t layers, std::int64_t hidden, std::int64_t heads,
                  std::int64_t head_size, std::int64_t ffn_hidden, bool first_version = true) {
  EncoderDecoder network;
  Transformer& stack = network.stack;
  stack = gpt(layers, hidden, heads, 32128);
  stack.head_size = head_size;
  stack.ffn_hidden = ffn_hidden;
  stack.feed_forward = first_version ? FeedForward::relu : FeedForward::geglu;
  stack.norm = Norm::rms_norm;
  stack.positional = Positional::relative;
  stack.biases = false;
  stack.tied_embeddings = first_version;
  network.decoder_layers = layers;
  return network;
}

EncoderDecoder small() {
  EncoderDecoder network = t5(2, 64, 8, 16, 128);
  network.decoder_layers = 3;
  network.stack.vocabulary = 512;
  return network;
}

Execution how(std::int64_t micro_batch, std::int64_t encoder, std::int64_t decoder, int tensor = 1,
              bool sequence_parallel = false, Recompute recompute = Recompute::none) {
  Execution result = execution(micro_batch, encoder, tensor, sequence_parallel, recompute);
  result.micro_batch.decoder_sequence_length = decoder;
  return result;
}

std::vector<GroupCollective> named(const std::vector<WorkItem>& items, const std::string& part) {
  std::vector<GroupCollective> found = collectives(items);
  found.erase(std::remove_if(found.begin(), found.end(),
                             [&](const GroupCollective& collective) {
                               return collective.name.find(part) == std::string::npos;
                             }),
              found.end());
  return found;
}

enum Kind : std::size_t { embedding, encoder, middle, decoder, last, logits };

}  // namespace

// num_parameters() of T5ForConditionalGeneration, by checkpoint.
TEST_CASE("T5 has the published parameters") {
  CHECK(parameter_count(t5(6, 512, 8, 64, 2048), 512) == 60'506'624);
  CHECK(parameter_count(t5(12, 768, 12, 64, 3072), 512) == 222'903'552);
  CHECK(parameter_count(t5(24, 1024, 16, 64, 4096), 512) == 737'668'096);
  CHECK(parameter_count(t5(24, 1024, 32, 128, 16384), 512) == 2'851'598'336);
  CHECK(parameter_count(t5(24, 1024, 128, 128, 65536), 512) == 11'307'321'344);
  CHECK(parameter_count(t5(8, 512, 6, 64, 1024, false), 512) == 76'961'152);
  CHECK(parameter_count(t5(12, 768, 12, 64, 2048, false), 512) == 247'577'856);
  CHECK(parameter_count(t5(24, 1024, 16, 64, 2816, false), 512) == 783'150'080);
  CHECK(parameter_count(t5(24, 2048, 32, 64, 5120, false), 512) == 2'849'757'184);
  CHECK(parameter_count(t5(24, 4096, 64, 64, 10240, false), 512) == 11'135'332'352);
}

TEST_CASE("the chain is encoder layers, the decoder's embedding, decoder layers") {
  const NetworkWork work = network_work(small(), how(1, 32, 16));
  CHECK(work.chain == std::vector<int>{0, 1, 1, 2, 3, 3, 4, 5});
  CHECK(work.divisible == std::vector<bool>{false, true, true, false, true, true, true, false});
  CHECK(divisible_layers(small()) == 5);
  CHECK(chain_length(small()) == 8);
}

TEST_CASE("decoder layers hand on the encoder's output too, the last one does not") {
  const std::int64_t b = 2, se = 32, sd = 16, h = 64;
  const NetworkWork work = network_work(small(), how(b, se, sd));
  const Bytes own(b * sd * h * 2), encoders(b * se * h * 2);
  CHECK(work.kinds[embedding].output == encoders);
  CHECK(work.kinds[encoder].output == encoders);
  CHECK(work.kinds[middle].output == own + encoders);
  CHECK(work.kinds[decoder].output == own + encoders);
  CHECK(work.kinds[last].output == own);
  CHECK(work.kinds[logits].output == Bytes(0));
  CHECK(work.kinds[encoder].passed_on == Bytes(0));
  CHECK(work.kinds[middle].passed_on == encoders);
  CHECK(work.kinds[decoder].passed_on == encoders);
  CHECK(work.kinds[last].passed_on == Bytes(0));
  // With sequence parallelism a rank keeps its own tokens; messages are whole before their split.
  const NetworkWork split = network_work(small(), how(b, se, sd, 4, true));
  CHECK(split.kinds[decoder].output == own + encoders);
  CHECK(4 * split.kinds[decoder].passed_on.count() == encoders.count());
}

TEST_CASE("cross-attention multiplies what its shapes say") {
  const std::int64_t b = 2, se = 32, sd = 16, h = 64, w = 8 * 16, f = 128;
  for (const bool fused : {false, true}) {
    Execution execution = how(b, se, sd);
    execution.kernels.attention = fused ? AttentionKernel::fa2 : AttentionKernel::unfused;
    const LayerWork work = network_work(small(), execution).kinds[decoder];
    const double linear =
        static_cast<double>(2 * b * sd * h * (4 * w + 2 * w + 2 * f) + 2 * b * se * h * 2 * w);
    const double self = static_cast<double>(4 * b * sd * sd * w);
    const double cross = static_cast<double>(4 * b * sd * se * w);
    CHECK(work.forward_model_flops.count() == linear + self + cross);
    CHECK(work.forward_masked_flops.count() == self / 2);
    // Fused self-attention is causal and leaves half of it out; the cross one sees everything.
    CHECK(sum_of_flops(work.forward).count() == linear + (fused ? self / 2 : self) + cross);
    CHECK(sum_of_flops(work.backward).count() ==
          2 * linear + (fused ? 5 * self / 4 : 2 * self) + (fused ? 5 * cross / 2 : 2 * cross));
  }
  const LayerWork work = network_work(small(), how(b, se, sd, 2)).kinds[decoder];
  CHECK(gemm(work.forward, "cross query") == Gemm{b * sd, w / 2, h, 1, Dtype::fp16});
  CHECK(gemm(work.forward, "cross key and value") == Gemm{b * se, w, h, 1, Dtype::fp16});
  CHECK(gemm(work.forward, "cross-attention scores") == Gemm{sd, se, 16, b * 4, Dtype::fp16});
  CHECK(gemm(work.forward, "cross-attention context") == Gemm{sd, 16, se, b * 4, Dtype::fp16});
  CHECK(gemm(work.backward, "cross-attention value gradient") ==
        Gemm{se, 16, sd, b * 4, Dtype::fp16});
  CHECK(gemm(work.backward, "cross key and value weight gradient") == weight_gemm(w, h, b * se));
  CHECK(gemm(work.forward, "cross proj") == Gemm{b * sd, h, w / 2, 1, Dtype::fp16});
}

// Per layer and pass the encoder's output crosses the group as the hidden states do: gathered and
// reduce-scattered with sequence parallelism, its gradient all-reduced without.
TEST_CASE("cross-attention sends the encoder's tokens and its own") {
  const std::int64_t b = 2, se = 32, sd = 16, h = 64;
  const Bytes own(b * sd * h * 2), encoders(b * se * h * 2);
  const LayerWork sp = network_work(small(), how(b, se, sd, 2, true)).kinds[decoder];
  std::vector<GroupCollective> found = named(sp.forward, "encoder output");
  REQUIRE(found.size() == 1);
  CHECK(found[0].kind == CollectiveKind::all_gather);
  CHECK(found[0].bytes == encoders);
  CHECK(named(sp.forward, "cross query").at(0).bytes == own);
  CHECK(named(sp.forward, "cross proj").at(0).kind == CollectiveKind::reduce_scatter);
  found = named(sp.backward, "cross key and value");
  REQUIRE(found.size() == 2);
  CHECK(found[0].kind == CollectiveKind::all_gather);
  CHECK(found[1].kind == CollectiveKind::reduce_scatter);
  CHECK(found[1].bytes == encoders);

  const LayerWork tp = network_work(small(), how(b, se, sd, 2, false)).kinds[decoder];
  CHECK(collectives(tp.forward).size() == 3);   // proj, cross proj, fc2
  CHECK(collectives(tp.backward).size() == 4);  // inputs of qkv, cross query, cross kv, fc1
  CHECK(named(tp.backward, "cross key and value").at(0).bytes == encoders);
  CHECK(named(tp.backward, "cross query").at(0).bytes == own);
  CHECK(collectives(network_work(small(), how(b, se, sd)).kinds[decoder].forward).empty());
}

// Beside a decoder layer's own s b h (...): norm input and output and mask 5 s b h, query and
// output 4 s b w / t, keys and values 4 S b w / t, scores 5 a s S b / t. w = a hs, S the encoder's.
TEST_CASE("cross-attention keeps its own terms") {
  const std::int64_t b = 2, se = 32, sd = 16, h = 64, w = 8 * 16, a = 8, f = 128;
  for (const int t : {1, 2, 4}) {
    const bool sp = t > 1;
    const LayerWork work = network_work(small(), how(b, se, sd, t, sp)).kinds[decoder];
    const std::int64_t self =
        sd * b * (10 * h + 2 * 3 * w + 2 * w + 2 * f) / t + 5 * a * sd * sd * b / t;
    const std::int64_t cross =
        (5 * sd * b * h + 4 * sd * b * w + 4 * se * b * w + 5 * a * sd * se * b) / t;
    CHECK(work.activations().count() == self + cross);
    const LayerWork selective =
        network_work(small(), how(b, se, sd, t, sp, Recompute::selective)).kinds[decoder];
    // Both kinds of scores come back, one after the other.
    const std::int64_t own_scores = 5 * a * sd * sd * b / t, cross_scores = 5 * a * sd * se * b / t;
    CHECK(selective.workspace().count() == std::max(own_scores, cross_scores));
    CHECK(selective.activations().count() == self + cross - own_scores - cross_scores);
    CHECK(selective.recompute_model_flops.count() ==
          static_cast<double>(4 * b * sd * (sd + se) * w));
    CHECK(sum_of_flops(selective.backward).count() - sum_of_flops(work.backward).count() ==
          selective.recompute_model_flops.count() / t);
    const LayerWork full =
        network_work(small(), how(b, se, sd, t, sp, Recompute::full)).kinds[decoder];
    CHECK(full.activations().count() == 2 * sd * b * h / t);
    CHECK(full.activations() + full.workspace() == work.activations());
  }
}

// T5 scales no scores; its own have a bias, those of the encoder's tokens a mask.
TEST_CASE("both kinds of scores go through fp32 copies where the softmax does") {
  const std::int64_t b = 2, se = 32, sd = 16, a = 8;
  EncoderDecoder keeps_all = small();
  keeps_all.stack.dropout = false;
  const auto with = [&](SoftmaxKernels softmax) {
    Execution execution = how(b, se, sd);
    execution.kernels.fusion = Fusion::eager;
    execution.kernels.softmax = softmax;
    const NetworkWork network = network_work(keeps_all, execution);
    return network.kinds[decoder];
  };
  const LayerWork plain = with(SoftmaxKernels::operators), cast = with(SoftmaxKernels::fp32);
  const auto lines = [](const LayerWork& layer, const char* first, const char* last) {
    const Script all = script(layer.forward);
    const auto begin = std::find(all.begin(), all.end(), first);
    return Script(begin + 1, std::find(begin, all.end(), last));
  };
  CHECK(lines(plain, "attention scores", "attention context") ==
        Script{"position bias sum", "softmax"});
  CHECK(lines(cast, "attention scores", "attention context") ==
        Script{"position bias sum", "attention scores to fp32", "softmax",
               "attention weights from fp32"});
  CHECK(lines(cast, "cross-attention scores", "cross-attention context") ==
        Script{"cross-attention mask", "cross-attention scores to fp32", "cross softmax",
               "cross-attention weights from fp32"});
  const std::int64_t scores = b * a * sd * (sd + se);
  CHECK(cast.kept.of(Module::attention_scores).count() ==
        plain.kept.of(Module::attention_scores).count() + 4 * scores);
}

// One table for a stack: looked up once per pass, s^2 a elements, and added to the scores of every
// layer; encoder and decoder have one each.
TEST_CASE("relative positions are looked up once per stack and added in every layer") {
  const std::int64_t b = 2, se = 32, sd = 16, a = 8;
  const NetworkWork work = network_work(small(), how(b, se, sd));
  const auto moved = [&](Kind kind, const std::string& name) {
    for (const WorkItem& item : work.kinds[kind].forward) {
      const auto* kernel = std::get_if<NamedKernel>(&item);
      if (kernel && kernel->name == name) return memory_traffic(kernel->kernel).count();
    }
    return std::int64_t{0};
  };
  CHECK(moved(embedding, "position bias") == 2 * 2 * a * se * se);
  CHECK(moved(middle, "position bias") == 2 * 2 * a * sd * sd);
  CHECK(moved(encoder, "position bias sum") == 2 * (2 * b * a * se * se + a * se * se));
  CHECK(moved(decoder, "position bias sum") == 2 * (2 * b * a * sd * sd + a * sd * sd));
  Execution fused = how(b, se, sd);
  fused.kernels.attention = AttentionKernel::fa2;
  const Script lines = script(network_work(small(), fused).kinds[encoder].forward);
  CHECK(std::find(lines.begin(), lines.end(), "position bias sum") == lines.end());
}

TEST_CASE("PyTorch's T5 runs the same products and collectives") {
  for (const Fusion fusion : {Fusion::eager, Fusion::compiled}) {
    for (const bool fused : {false, true}) {
      for (const bool sp : {false, true}) {
        Execution execution = how(2, 32, 16, 2, sp);
        execution.kernels.attention = fused ? AttentionKernel::fa2 : AttentionKernel::unfused;
        const NetworkWork by_hand = network_work(small(), execution);
        execution.kernels.fusion = fusion;
        const NetworkWork work = network_work(small(), execution);
        for (std::size_t kind = 0; kind < work.kinds.size(); ++kind) {
          CAPTURE(kind);
          const LayerWork& ours = work.kinds[kind];
          const LayerWork& theirs = by_hand.kinds[kind];
          CHECK(sum_of_flops(ours.forward) == sum_of_flops(theirs.forward));
          CHECK(sum_of_flops(ours.backward) == sum_of_flops(theirs.backward));
          CHECK(collectives(ours.forward).size() == collectives(theirs.forward).size());
          CHECK(collectives(ours.backward).size() == collectives(theirs.backward).size());
          CHECK(ours.parameters == theirs.parameters);
          CHECK(ours.output == theirs.output);
        }
      }
    }
  }
}

// Each block has a norm, and eagerly a residual addition and a sum of both branches' gradients.
TEST_CASE("PyTorch's decoder layer has three blocks, eager ones with sums of their own") {
  for (const Fusion fusion : {Fusion::eager, Fusion::compiled}) {
    Execution execution = how(2, 32, 16);
    execution.kernels.fusion = fusion;
    const LayerWork work = network_work(small(), execution).kinds[decoder];
    const auto count = [](const std::vector<WorkItem>& items, const std::string& part) {
      const Script lines = script(items);
      return std::count_if(lines.begin(), lines.end(), [&](const std::string& name) {
        return name.find(part) != std::string::npos;
      });
    };
    const bool eager = fusion == Fusion::eager;
    CHECK(count(work.forward, "residual and") == (eager ? 0 : 3));
    CHECK(count(work.forward, "residual") == (eager ? 6 : 3));  // dropout and addition
    CHECK(count(work.backward, "norm 1 gradient sum") == (eager ? 1 : 0));
    CHECK(count(work.backward, "cross norm gradient sum") == (eager ? 1 : 0));
    CHECK(count(work.backward, "encoder output gradient sum") == 1);
    CHECK(count(work.backward, "position bias gradient") == 1);
    // The bias holds the causal mask.
    CHECK(count(work.forward, "attention mask") == count(work.forward, "cross-attention mask"));
    CHECK(count(work.forward, "cross-attention mask") == (eager ? 1 : 0));
  }
}

TEST_CASE("both embeddings and a tied output are one matrix") {
  const std::int64_t v = 512, h = 64;
  NetworkWork work = network_work(small(), how(1, 32, 16));
  CHECK(work.kinds[middle].tied_parameters == v * h);
  CHECK(work.kinds[middle].parameters == v * h + 32 * 8 + h);
  CHECK(work.kinds[logits].tied_parameters == v * h);
  EncoderDecoder untied = small();
  untied.stack.tied_embeddings = false;
  work = network_work(untied, how(1, 32, 16));
  CHECK(work.kinds[middle].tied_parameters == v * h);
  CHECK(work.kinds[logits].tied_parameters == 0);
  CHECK(parameter_count(untied, 32) == parameter_count(small(), 32) + v * h);
}

TEST_CASE("an encoder-decoder says what it cannot be") {
  const auto member = [](const EncoderDecoder& network, const Execution& execution) {
    const auto problems = check_execution(network, execution);
    return problems.empty() ? std::string("fine") : problems.front().member;
  };
  CHECK(member(small(), how(1, 32, 16)) == "fine");
  CHECK(member(small(), how(1, 32, 0)) == "decoder_sequence_length");
  CHECK(member(small(), how(1, 32, 18, 4, true)) == "decoder_sequence_length");
  CHECK(member(small(), how(1, 30, 16, 4, true)) == "sequence_length");
  // Scores of the decoder alone that cannot be counted.
  CHECK(member(small(), how(1000, 2, 100'000'000)) == "");
  Execution execution = how(1, 32, 16);
  execution.context = 2;
  execution.kernels.attention = AttentionKernel::fa2;
  CHECK(member(small(), execution) == "context");
  EncoderDecoder learned = small();
  learned.stack.positional = Positional::learned;
  CHECK(member(learned, how(1, 32, 16)) == "");
}
