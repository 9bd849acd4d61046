// What layers of today's decoders have beside those of GPT and Llama: norms of queries and keys,
// biases of some linear layers, windows.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>

#include "models/families/network.h"
#include "models/transformer/networks.h"
#include "tests/models/work_support.h"
#include "tests/support/about.h"
#include "tests/support/rooms.h"

using namespace trainyard;

namespace {

constexpr std::int64_t kLength = 512, kBatch = 2, kTokens = kLength * kBatch;
constexpr std::int64_t kHeads = 8, kGroups = 2, kHead = 32;

Transformer small() {
  return llama(6, kHeads * kHead, kHeads, kGroups, 768, 1000);
}

Execution fused(int tensor = 1) {
  Execution how = execution(kBatch, kLength, tensor);
  how.kernels.attention = AttentionKernel::fa2;
  return how;
}

std::int64_t count(const Transformer& network) {
  return parameter_count(network, kLength);
}

// The attention kernel of each layer, in the order of the stack.
std::vector<Attention> attentions(const NetworkWork& work) {
  std::vector<Attention> found;
  for (std::size_t place = 1; place + 1 < work.chain.size(); ++place) {
    for (const WorkItem& item : work.kinds[static_cast<std::size_t>(work.chain[place])].forward) {
      const auto* named = std::get_if<NamedKernel>(&item);
      if (named != nullptr && std::holds_alternative<Attention>(named->kernel))
        found.push_back(std::get<Attention>(named->kernel));
    }
  }
  return found;
}

}  // namespace

TEST_CASE("norms of queries and keys are two kernels per pass, and keep what they normalise") {
  for (const Fusion fusion : {Fusion::by_hand, Fusion::eager, Fusion::compiled}) {
    CAPTURE(static_cast<int>(fusion));
    for (const int tensor : {1, 2}) {
      Execution how = fused(tensor);
      how.kernels.fusion = fusion;
      Transformer network = small();
      const LayerWork plain = layer(network_work(network, how));
      network.head_norm = HeadNorm::per_head;
      const LayerWork normed = layer(network_work(network, how));
      CHECK(normed.forward.size() == plain.forward.size() + 2);
      // PyTorch sums the gradients of a norm's weights in a kernel of its own.
      const std::size_t each = fusion == Fusion::by_hand ? 1 : 2;
      CHECK(normed.backward.size() == plain.backward.size() + 2 * each);
      const std::int64_t queries_and_keys = 2 * kTokens * (kHeads + kGroups) * kHead / tensor;
      CHECK(normed.kept.total().count() - plain.kept.total().count() == queries_and_keys);
      CHECK(bytes_of(normed.forward, MemoryOp::rms_norm) -
                bytes_of(plain.forward, MemoryOp::rms_norm) ==
            2 * queries_and_keys);
      // One weight per column of a head, for queries and for keys, whole on every rank.
      CHECK(normed.parameters - plain.parameters == 2 * kHead);
    }
  }
}

TEST_CASE("norms over all heads have a weight per column, unweighted ones none") {
  Transformer network = small();
  const std::int64_t plain = count(network);
  network.head_norm = HeadNorm::whole;
  CHECK(count(network) - plain == 6 * (kHeads + kGroups) * kHead);
  network.head_norm = HeadNorm::unweighted;
  CHECK(count(network) == plain);
  network.head_norm = HeadNorm::whole;
  const auto problems = check_execution(network, fused(2));
  REQUIRE(problems.size() == 1);
  CHECK(problems[0].member == "tensor");
}

TEST_CASE("each bias counts its own columns") {
  Transformer network = small();
  const std::int64_t plain = count(network);
  const std::int64_t qkv = (kHeads + 2 * kGroups) * kHead, hidden = kHeads * kHead;
  network.biases.qkv = true;
  CHECK(count(network) - plain == 6 * qkv);
  network.biases.proj = true;
  CHECK(count(network) - plain == 6 * (qkv + hidden));
  network.biases = false;
  network.biases.feed_forward = true;
  CHECK(count(network) - plain == 6 * (2 * 768 + hidden));
  network.biases = true;
  CHECK(count(network) - plain == 6 * (qkv + hidden + 2 * 768 + hidden));
}

TEST_CASE("PyTorch sums the gradients of the biases that there are") {
  Execution how = fused();
  how.kernels.fusion = Fusion::eager;
  Transformer network = small();
  const auto sums = [&] {
    const std::vector<std::string> lines = script(layer(network_work(network, how)).backward);
    return std::count_if(lines.begin(), lines.end(), [](const std::string& line) {
      return line.find("bias gradient") != std::string::npos;
    });
  };
  CHECK(sums() == 0);
  network.biases.qkv = true;
  CHECK(sums() == 1);
  network.biases = true;
  CHECK(sums() == 4);
}

TEST_CASE("every n-th layer sees all tokens, the others those in their window") {
  Transformer network = small();
  network.window = {.size = 128, .global_every = 3};
  const std::vector<Attention> found = attentions(network_work(network, fused()));
  REQUIRE(found.size() == 6);
  for (std::size_t i = 0; i < 6; ++i)
    CHECK(found[i].window == (i == 2 || i == 5 ? 0 : 128));
  network.window = {.size = 128, .first = 4};
  const std::vector<Attention> late = attentions(network_work(network, fused()));
  CHECK(std::count_if(late.begin(), late.end(), [](const Attention& a) { return a.window > 0; }) ==
        2);
}

// Counted query by query: query i of a window of w sees min(i + 1, w) keys, in chunks of c it sees
// i mod c + 1. Fused kernels count areas, so the diagonal is half of what it is here.
TEST_CASE("attention over a window costs the window") {
  const std::int64_t length = 4096;
  for (const std::int64_t window : {64, 1000, 4096}) {
    for (const bool chunked : {false, true}) {
      CAPTURE(window);
      CAPTURE(chunked);
      double pairs = 0;
      for (std::int64_t i = 0; i < length; ++i)
        pairs += static_cast<double>(chunked ? i % window + 1 : std::min(i + 1, window)) - 0.5;
      Attention attention{1, 4, 4, length, length, 64, true, false, Dtype::bf16};
      attention.window = window;
      attention.chunked = chunked;
      const double products = flops(attention).count() / (4.0 * 4 * 64);
      // A window's edge is cut along the diagonal too.
      CHECK(std::abs(products - pairs) <= 0.5 * static_cast<double>(length));
    }
  }
}

TEST_CASE("a window as long as the sequence is none") {
  Transformer network = small();
  const NetworkWork plain = network_work(network, fused());
  network.window = {.size = kLength, .global_every = 2};
  const NetworkWork windowed = network_work(network, fused());
  CHECK(attentions(plain) == attentions(windowed));
}

TEST_CASE("attention of documents is that of as many shorter sequences") {
  const auto products = [](const NetworkWork& work) {
    double sum = 0;
    for (const Attention& attention : attentions(work))
      sum += flops(attention).count();
    return sum;
  };
  const Transformer network = small();
  Execution packed = fused();
  for (const std::int64_t document : {64, 128, 512}) {
    CAPTURE(document);
    packed.micro_batch.document_length = document;
    Execution apart = fused();
    apart.micro_batch.sequence_length = document;
    apart.micro_batch.size = kTokens / document;
    const NetworkWork one = network_work(network, packed), other = network_work(network, apart);
    CHECK(products(one) == about(products(other)));
    // What is kept and all other kernels are those of the tokens.
    CHECK(layer(one).activations() == layer(other).activations());
    CHECK(layer(one).forward.size() == layer(other).forward.size());
    CHECK((layer(one).forward_model_flops - layer(one).forward_masked_flops).count() ==
          about((layer(other).forward_model_flops - layer(other).forward_masked_flops).count()));
  }
  // A document as long as the sequence is none; of a window the shorter counts.
  CHECK(attentions(network_work(network, packed)) == attentions(network_work(network, fused())));
  Transformer windowed = network;
  windowed.window = {.size = 100, .global_every = 2};
  packed.micro_batch.document_length = 200;
  for (const Attention& attention : attentions(network_work(windowed, packed)))
    CHECK(attention.window == (attention.chunked ? 200 : 100));
}

TEST_CASE("context-parallel ranks share the attention of documents") {
  const auto products = [](const Execution& how) {
    double sum = 0;
    const LayerWork work = layer(network_work(small(), how));
    for (const WorkItem& item : work.forward)
      if (const auto* named = std::get_if<NamedKernel>(&item))
        if (const auto* attention = std::get_if<Attention>(&named->kernel))
          sum += flops(*attention).count();
    return sum;
  };
  for (const std::int64_t document : {64, 128, 512}) {
    Execution how = fused();
    how.micro_batch.document_length = document;
    const double whole = products(how);
    for (const ContextMethod method :
         {ContextMethod::ring, ContextMethod::all_gather, ContextMethod::ulysses}) {
      CAPTURE(document);
      CAPTURE(static_cast<int>(method));
      how.context = 2;
      how.context_parallel.method = method;
      CHECK(check_execution(small(), how).empty());
      CHECK(2 * products(how) == about(whole));
    }
  }
}

TEST_CASE("of a document and a window that which shows fewer keys counts") {
  Transformer network = small();
  Execution how = fused();
  network.window = {.size = 100};
  const auto window_beside = [&](std::int64_t document) {
    how.micro_batch.document_length = document;
    return attentions(network_work(network, how)).front().window;
  };
  CHECK(window_beside(64) == 64);
  CHECK(window_beside(150) == 150);  // 75 keys, of the window 90
  CHECK(window_beside(200) == 100);
  network.window.chunked = true;
  CHECK(window_beside(150) == 100);
}

TEST_CASE("positions are learned up to the length of a document") {
  Transformer network = gpt(2, 256, 8, 512);
  network.positional = Positional::learned;
  network.max_positions = 128;
  Execution how = fused();
  CHECK(check_execution(network, how).size() == 1);
  how.micro_batch.document_length = 128;
  CHECK(check_execution(network, how).empty());
}

TEST_CASE("layers without a window may have no positions") {
  Transformer network = small();
  network.window = {.size = 128, .global_every = 2, .chunked = true, .global_positions = false};
  const NetworkWork work = network_work(network, fused());
  const auto has_rope = [&](std::size_t place) {
    const std::vector<std::string> lines =
        script(work.kinds[static_cast<std::size_t>(work.chain[place])].forward);
    return std::find(lines.begin(), lines.end(), "rope") != lines.end();
  };
  CHECK(has_rope(1));
  CHECK_FALSE(has_rope(2));
}

TEST_CASE("a ring of context-parallel ranks refuses windows, the other ways divide their work") {
  Transformer network = small();
  network.window = {.size = 128};
  Execution how = fused();
  const double whole = flops(attentions(network_work(network, how)).front()).count();
  how.context = 2;
  REQUIRE(check_execution(network, how).size() == 1);
  CHECK(check_execution(network, how)[0].member == "context_method");
  for (const ContextMethod method : {ContextMethod::all_gather, ContextMethod::ulysses}) {
    how.context_parallel.method = method;
    CHECK(check_execution(network, how).empty());
    CHECK(flops(attentions(network_work(network, how)).front()).count() == whole / 2);
  }
}

namespace {

std::int64_t count_of(const std::vector<WorkItem>& items, const std::string& part) {
  const std::vector<std::string> lines = script(items);
  return std::count_if(lines.begin(), lines.end(), [&](const std::string& line) {
    return line.find(part) != std::string::npos;
  });
}

constexpr std::int64_t kStates = kTokens * kHeads * kHead * 2;  // bytes of hidden states

}  // namespace

TEST_CASE("norms around blocks are two more than norms before or after them") {
  for (const bool mixture : {false, true}) {
    CAPTURE(mixture);
    Transformer network = small();
    if (mixture)
      network.moe = {.experts = 4, .top_k = 2, .ffn_hidden = 96, .shared_ffn_hidden = 96};
    const LayerWork before = last_layer(network_work(network, fused()));
    network.block_norms = BlockNorms::after;
    const LayerWork after = last_layer(network_work(network, fused()));
    network.block_norms = BlockNorms::around;
    const LayerWork around = last_layer(network_work(network, fused()));
    for (const LayerWork* work : {&before, &after}) {
      CHECK(count_of(work->forward, "norm") == 2);
      CHECK(count_of(work->backward, "norm") == 2);
      CHECK(around.forward.size() == work->forward.size() + 2);
      CHECK(around.backward.size() == work->backward.size() + 2);
      CHECK(around.parameters - work->parameters == 2 * kHeads * kHead);
      // The outputs of attention and of the feed-forward half, which the two more norms read.
      CHECK(around.kept.total().count() - work->kept.total().count() == 2 * kStates);
    }
  }
}

TEST_CASE("parallel blocks add once to the stream, and are reduced once") {
  for (const int tensor : {1, 2}) {
    CAPTURE(tensor);
    Transformer network = small();
    const LayerWork one_by_one = layer(network_work(network, fused(tensor)));
    network.blocks = Blocks::parallel;
    const LayerWork beside = layer(network_work(network, fused(tensor)));
    network.blocks = Blocks::parallel_one_norm;
    const LayerWork one_norm = layer(network_work(network, fused(tensor)));
    CHECK(sum_of_flops(beside.forward) == sum_of_flops(one_by_one.forward));
    CHECK(sum_of_flops(beside.backward) == sum_of_flops(one_by_one.backward));
    CHECK(collectives(one_by_one.forward).size() == (tensor > 1 ? 2 : 0));
    CHECK(collectives(beside.forward).size() == (tensor > 1 ? 1 : 0));
    CHECK(collectives(beside.backward).size() == (tensor > 1 ? 2 : 0));
    CHECK(beside.parameters == one_by_one.parameters);
    CHECK(beside.parameters - one_norm.parameters == kHeads * kHead);
    // The sum behind attention is not kept; with one norm its output is kept once for both.
    CHECK(one_by_one.kept.total().count() - beside.kept.total().count() == kStates);
    CHECK(beside.kept.total().count() - one_norm.kept.total().count() == kStates);
    CHECK(count_of(beside.forward, "norm") == 2);
    CHECK(count_of(one_norm.forward, "norm") == 1);
  }
}

TEST_CASE("parallel blocks gather the gradient of their sum once") {
  Transformer network = small();
  network.blocks = Blocks::parallel;
  Execution how = fused(2);
  how.tensor_parallel.sequence = true;
  const LayerWork work = layer(network_work(network, how));
  CHECK(collectives(work.forward).size() == 3);  // two inputs gathered, one sum scattered
  CHECK(count_of(work.backward, "start branches gradient all-gather") == 1);
}

TEST_CASE("a norm of the embedding keeps what it reads") {
  Transformer network = small();
  const LayerWork plain = network_work(network, fused()).kinds.front();
  network.embedding_norm = true;
  const LayerWork normed = network_work(network, fused()).kinds.front();
  CHECK(normed.forward.size() == plain.forward.size() + 1);
  CHECK(normed.backward.size() == plain.backward.size() + 1);
  CHECK(normed.parameters - plain.parameters == kHeads * kHead);
  CHECK(normed.kept.total().count() - plain.kept.total().count() == kStates);
}

TEST_CASE("blocks that only fused kernels describe are refused in PyTorch's") {
  Execution how = fused();
  how.kernels.fusion = Fusion::eager;
  Transformer network = small();
  CHECK(check_execution(network, how).empty());
  network.block_norms = BlockNorms::around;
  REQUIRE(check_execution(network, how).size() == 1);
  CHECK(check_execution(network, how)[0].member == "fusion");
}

TEST_CASE("a gate of the shared experts is a column, and keeps what it scales") {
  Transformer network = small();
  network.moe = {.experts = 4, .top_k = 2, .ffn_hidden = 96, .shared_ffn_hidden = 96};
  const LayerWork plain = last_layer(network_work(network, fused()));
  network.moe.shared_gate = true;
  const LayerWork gated = last_layer(network_work(network, fused()));
  CHECK(gated.parameters - plain.parameters == kHeads * kHead);
  CHECK(gated.kept.total().count() - plain.kept.total().count() == kStates);
  CHECK(sum_of_flops(gated.forward) - sum_of_flops(plain.forward) ==
        Flops(2.0 * kTokens * kHeads * kHead));
}

TEST_CASE("latent attention refuses the norms and sinks of plain attention") {
  Transformer network = small();
  network.latent = {.key_value_rank = 64, .nope_size = 16, .rope_size = 16, .value_size = 16};
  CHECK(check_execution(network, fused()).empty());
  network.head_norm = HeadNorm::per_head;
  CHECK(check_execution(network, fused()).size() == 1);
  network.head_norm = HeadNorm::none;
  network.attention_sinks = true;
  CHECK(check_execution(network, fused()).size() == 1);
}

TEST_CASE("model FLOPs without what masks leave out are those of the kernels, windows too") {
  Transformer network = small();
  for (const std::int64_t size : {0, 100, 128}) {
    for (const bool chunked : {false, true}) {
      CAPTURE(size);
      network.window = {.size = size, .chunked = chunked};
      const LayerWork work = layer(network_work(network, fused()));
      const double counted = (work.forward_model_flops - work.forward_masked_flops).count();
      CHECK(std::abs(counted / sum_of_flops(work.forward).count() - 1) < 1e-12);
    }
  }
}
