// Experts and latent attention by PyTorch's operators, against the tables in
// models/transformer/experts_eager.cpp and models/transformer/attention/latent_attention.cpp.
#include <doctest/doctest.h>

#include <algorithm>
#include <map>

#include "models/transformer/networks.h"
#include "tests/models/work_support.h"
#include "tests/support/rooms.h"

using namespace trainyard;

namespace {

constexpr std::int64_t kTokens = 64, kHidden = 512, kExperts = 8, kTop = 2, kWidth = 256;
constexpr std::int64_t kRow = kHidden * 2;                // bytes
constexpr std::int64_t H = kTokens * kRow, R = kTop * H;  // of tokens, of what they send
constexpr std::int64_t F = kTokens * kTop * kWidth * 2;   // of one half at the experts
constexpr std::int64_t kIndex = kTokens * kTop * 8;       // a number of 8 bytes for each row
constexpr std::int64_t kScores = kTokens * kExperts * 4;

Transformer mixture() {
  Transformer network = llama(2, kHidden, 8, 8, 1536, 4096);
  network.moe = {.experts = kExperts, .top_k = kTop, .ffn_hidden = kWidth};
  return network;
}

Execution eager() {
  Execution how = execution(1, kTokens);
  how.kernels.fusion = Fusion::eager;
  how.kernels.attention = AttentionKernel::fa2;
  return how;
}

using Moved = std::map<std::string, std::int64_t>;

// Bytes of memory-bound kernels by name, from the first to the last one named.
Moved moved(const std::vector<WorkItem>& items, const std::string& first, const std::string& last) {
  Moved found;
  bool inside = false;
  for (const WorkItem& item : items) {
    const auto* kernel = std::get_if<NamedKernel>(&item);
    if (kernel == nullptr) continue;
    inside = inside || kernel->name == first;
    const auto* memory = std::get_if<MemoryBound>(&kernel->kernel);
    if (inside && memory) found[kernel->name] += memory_traffic(*memory).count();
    if (kernel->name == last) break;
  }
  return found;
}

const NamedKernel& named(const std::vector<WorkItem>& items, const std::string& name) {
  for (const WorkItem& item : items) {
    const auto* kernel = std::get_if<NamedKernel>(&item);
    if (kernel && kernel->name == name) return *kernel;
  }
  FAIL("no kernel named " << name);
  static const NamedKernel none;
  return none;
}

std::int64_t kernels_of(const std::vector<WorkItem>& items, const std::string& name) {
  return std::get<MemoryBound>(named(items, name).kernel).kernels;
}

}  // namespace

TEST_CASE("eager experts: what each operator moves") {
  const LayerWork work = last_layer(network_work(mixture(), eager()));
  CHECK(moved(work.forward, "router", "combine sum") ==
        Moved{{"router softmax", kScores / 2 + kScores},
              {"router choice", kScores + 5 * kIndex},
              {"rows by expert", 2 * 34 * kIndex},
              {"rows copied", H + R},
              {"rows in order", 2 * R},
              {"experts activation", 2 * F},
              {"experts gate", 3 * F},
              {"rows by weights", 2 * R},
              {"rows back in order", 2 * R},
              {"combine sum", R + H}});
  CHECK(moved(work.backward, "combine sum backward", "router gradient sum") ==
        Moved{{"combine sum backward", H + R},
              {"rows back in order backward order", 2 * 9 * kIndex},
              {"rows back in order backward zeros", R},
              {"rows back in order backward", 3 * R},
              {"rows by weights backward", 2 * R},
              {"weight gradient of each number", 3 * R},
              {"weight gradients", R},
              {"weights of rows backward", 2 * 11 * kIndex},
              {"experts gate backward", 3 * F},
              {"experts gate backward of the activation", 3 * F},
              {"experts activation backward", 3 * F},
              {"experts gradients of halves joined", 4 * F},
              {"rows in order backward order", 2 * 9 * kIndex},
              {"rows in order backward zeros", R},
              {"rows in order backward", 3 * R},
              {"rows copied backward order", 2 * 9 * kIndex},
              {"rows copied backward zeros", H},
              {"rows copied backward", R + 2 * H},
              {"router choice backward", kScores + 8 * kIndex},
              {"router softmax backward", 2 * kScores + kScores / 2},
              {"router gradient sum", 3 * H}});
  // A sort is one operator of the host.
  CHECK(kernels_of(work.forward, "rows by expert") == 34);
  CHECK(named(work.forward, "rows by expert").launches == 9);
}

// huggingface/transformers before 5: for each expert, its rows copied from the tokens, and added to
// them; backward a gradient of all tokens for each, and their sum. Its gate and up projection are a
// linear layer each.
TEST_CASE("eager experts: a loop over experts") {
  Execution how = eager();
  how.kernels.separate_experts = how.kernels.separate_gate = true;
  const LayerWork work = last_layer(network_work(mixture(), how));
  const Moved forward = moved(work.forward, "router", "rows added to tokens");
  CHECK(forward.at("rows copied") == 2 * R);
  CHECK(forward.at("rows added to tokens") == 3 * R);
  CHECK(forward.count("rows in order") == 0);
  const Moved backward = moved(work.backward, "rows of the gradient", "router gradient sum");
  CHECK(backward.at("rows of the gradient") == 2 * R);
  CHECK(backward.at("rows copied backward zeros") == kExperts * H);
  CHECK(backward.at("rows copied backward") == 3 * R);
  CHECK(backward.at("rows gradient sum") == (kExperts - 1) * 3 * H);
  for (const char* name : {"rows copied", "experts activation", "experts gate", "rows by weights"})
    CHECK(kernels_of(work.forward, name) == kExperts);
  for (const char* name : {"experts fc1 gate", "experts fc1 up", "experts fc2", "experts gate"})
    CHECK(named(work.forward, name).launches == kExperts);
  for (const char* name : {"rows of the gradient", "rows copied backward", "weight gradients",
                           "experts gate backward", "experts input gradient sum"}) {
    CHECK(kernels_of(work.backward, name) == kExperts);
    CHECK(named(work.backward, name).launches == kExperts);
  }
  CHECK(kernels_of(work.backward, "rows gradient sum") == kExperts - 1);
  CHECK(backward.at("experts input gradient sum") == 3 * R);
  CHECK(backward.count("experts gradients of halves joined") == 0);
}

// With expert parallelism rows that have arrived go expert by expert, those that leave do not.
TEST_CASE("eager experts: a loop over a rank's experts of several ranks") {
  Execution how = eager();
  how.experts.ranks = 4;
  how.kernels.separate_experts = true;
  const LayerWork work = last_layer(network_work(mixture(), how));
  for (const char* name : {"experts activation", "experts gate"})
    CHECK(kernels_of(work.forward, name) == kExperts / 4);
  CHECK(kernels_of(work.forward, "rows copied") == 1);
  CHECK(kernels_of(work.forward, "rows by expert") == 34);
}

TEST_CASE("eager experts multiply as much as fused ones, and keep the activated half beside") {
  Execution fused = eager();
  fused.kernels.fusion = Fusion::by_hand;
  const LayerWork by_hand = last_layer(network_work(mixture(), fused));
  for (const Fusion fusion : {Fusion::eager, Fusion::compiled}) {
    for (const bool separate : {false, true}) {
      Execution how = eager();
      how.kernels.fusion = fusion;
      how.kernels.separate_experts = separate;
      const LayerWork work = last_layer(network_work(mixture(), how));
      CHECK(sum_of_flops(work.forward) == sum_of_flops(by_hand.forward));
      CHECK(sum_of_flops(work.backward) == sum_of_flops(by_hand.backward));
      CHECK(work.parameters == by_hand.parameters);
      CHECK(work.expert_parameters == by_hand.expert_parameters);
      const std::int64_t more = fusion == Fusion::eager ? F : 0;
      CHECK(work.activations().count() == by_hand.activations().count() + more);
    }
  }
}

// Rows travel as they do between fused kernels, arranged by expert behind the all-to-all.
TEST_CASE("eager experts of several ranks") {
  Execution how = eager();
  how.experts.ranks = 4;
  const LayerWork work = last_layer(network_work(mixture(), how));
  std::int64_t bytes = 0;
  for (const GroupCollective& collective : collectives(work.forward))
    bytes += collective.bytes.count();
  CHECK(bytes == 2 * R);
  const Moved forward = moved(work.forward, "router", "combine sum");
  CHECK(forward.count("rows in order") == 0);
  CHECK(forward.at("dispatch by expert") == 2 * R);
  CHECK(named(work.forward, "experts activation").routed);
  CHECK_FALSE(named(work.forward, "rows copied").routed);
}

// DeepEP: no row is copied or added up by an operator, and experts weight what they give.
TEST_CASE("eager experts whose rows share their way") {
  Execution how = eager();
  how.experts.ranks = 4;
  const LayerWork apart = last_layer(network_work(mixture(), how));
  how.experts.hierarchical_dispatch = true;
  const LayerWork work = last_layer(network_work(mixture(), how));
  const std::vector<std::string> forward = script(work.forward), backward = script(work.backward);
  for (const char* name : {"rows copied", "rows back in order", "combine sum"})
    CHECK(std::count(forward.begin(), forward.end(), name) == 0);
  for (const char* name : {"rows copied backward", "combine sum backward"})
    CHECK(std::count(backward.begin(), backward.end(), name) == 0);
  CHECK(std::count(forward.begin(), forward.end(), "rows by weights") == 1);
  CHECK(std::count(backward.begin(), backward.end(), "weight gradients") == 1);
  CHECK(sum_of_flops(work.forward) == sum_of_flops(apart.forward));
  CHECK(named(work.forward, "rows by weights").routed);
  // Of experts in two parts a rank weights the rows of both, and keeps them.
  how.tensor = 2;
  how.tensor_parallel.sequence = true;
  how.experts.tensor = 2;
  const LayerWork parts = last_layer(network_work(mixture(), how));
  CHECK(moved(parts.forward, "router", "experts fc2").count("rows by weights") == 0);
  const std::int64_t rows = memory_traffic(named(parts.forward, "rows by weights").kernel).count();
  CHECK(rows == 2 * R);  // of both ranks' halves of the tokens
}

// PyTorch's policy keeps what the exchanges give, and makes no exchange again.
TEST_CASE("eager experts: exchanges do not run again where operators are chosen") {
  Execution how = eager();
  how.experts.ranks = 4;
  const auto again = [&](Recompute form) {
    how.recompute.form = form;
    return last_layer(network_work(mixture(), how));
  };
  const LayerWork full = again(Recompute::full), chosen = again(Recompute::operators);
  CHECK(collectives(full.recompute).size() == 2);
  CHECK(collectives(chosen.recompute).empty());
  CHECK(script(chosen.recompute).size() > 10);
}

// gpt-oss: a bias for each row is copied and added; its gradient is added up by expert.
TEST_CASE("eager experts with biases and limits") {
  Transformer network = mixture();
  network.moe.biases = network.moe.clamped = true;
  const LayerWork work = last_layer(network_work(network, eager()));
  const Moved forward = moved(work.forward, "router", "combine sum");
  CHECK(forward.at("experts fc1 bias of each row") == kExperts * 2 * kWidth * 2 + 2 * F);
  CHECK(forward.at("experts fc1 bias sum") == 3 * 2 * F);
  CHECK(forward.at("experts fc2 bias sum") == 3 * R);
  // Of the limits and the gate behind them, 9 reads and 7 writes; backward 45 in all, of which
  // those of a byte for each number are half.
  std::int64_t gate = 0, gate_gradient = 0;
  for (const auto& [name, bytes] : forward)
    if (name.rfind("experts ", 0) == 0 && name.find("bias") == std::string::npos) gate += bytes;
  CHECK(gate == 16 * F);
  for (const auto& [name, bytes] : moved(work.backward, "combine sum backward", "router"))
    if (name.rfind("experts ", 0) == 0 && name.find("bias") == std::string::npos)
      gate_gradient += bytes;
  CHECK(gate_gradient == 45 * F);
  // What is kept: both halves, both within limits, the sigmoid, the gate times it, the product.
  Execution fused = eager();
  fused.kernels.fusion = Fusion::by_hand;
  const LayerWork by_hand = last_layer(network_work(network, fused));  // both halves, the product
  CHECK(work.activations().count() == by_hand.activations().count() + 4 * F);
  const NamedKernel& gradient = named(work.backward, "experts fc2 bias gradient");
  CHECK(gradient.weight_gradient);
  CHECK(named(work.backward, "experts fc2 bias gradient order").weight_gradient);
  CHECK(memory_traffic(gradient.kernel).count() == R + 2 * kExperts * kRow);
}

TEST_CASE("shared experts of an eager execution are a feed-forward layer of its operators") {
  Transformer network = mixture();
  network.moe.shared_ffn_hidden = 128;
  network.moe.shared_gate = true;
  const LayerWork work = last_layer(network_work(network, eager()));
  const Moved forward = moved(work.forward, "router", "shared and routed sum");
  CHECK(forward.at("activation") == 2 * kTokens * 128 * 2);
  CHECK(forward.at("gate") == 3 * kTokens * 128 * 2);
  CHECK(forward.at("shared rows by gate") == 2 * H);
  CHECK(forward.at("shared and routed sum") == 3 * H);
  // Backward, routed experts come first.
  const std::vector<std::string> lines = script(work.backward);
  const auto at = [&](const char* name) {
    return std::find(lines.begin(), lines.end(), name) - lines.begin();
  };
  CHECK(at("combine sum backward") < at("router gradient sum"));
  CHECK(at("router gradient sum") < at("fc2 input gradient"));
  CHECK(at("fc1 weight gradient") < at("shared and routed gradient sum"));
}

// Queries and keys of 3 x 16 numbers a head, of which 16 are rotated; 8 heads.
TEST_CASE("eager latent attention joins what is rotated to what is not") {
  Transformer network = llama(2, kHidden, 8, 8, 1536, 4096);
  network.latent = {
      .key_value_rank = 64, .query_rank = 96, .nope_size = 32, .rope_size = 16, .value_size = 24};
  Execution how = eager();
  const LayerWork by_parts = layer(network_work(network, how));
  // Queries' heads and one key's, 5 kernels each.
  const Moved parts = moved(by_parts.forward, "query compression", "proj");
  CHECK(parts.at("rope of queries times sine") == 2 * 8 * 16 * kTokens * 2);
  CHECK(parts.at("rope of keys times sine") == 2 * 16 * kTokens * 2);
  how.kernels.rotary_by_kernel = true;
  const LayerWork work = layer(network_work(network, how));
  const std::int64_t token = kTokens * 2;
  const Moved forward = moved(work.forward, "query compression", "proj");
  CHECK(forward.at("query norm") == 2 * 96 * token);
  CHECK(forward.at("rope") == 2 * (8 + 1) * 16 * token);
  CHECK(forward.at("query parts joined") == 2 * 8 * 48 * token);
  CHECK(forward.at("key parts joined") == 2 * 8 * 48 * token);
  const Moved backward = moved(work.backward, "proj input gradient", "query compression");
  CHECK(backward.at("rotated key gradient sum") == (8 + 1) * 16 * token);
  CHECK(backward.at("query gradient parts joined") == 2 * 8 * 48 * token);
  CHECK(backward.at("key and value gradients joined") == 2 * 8 * (32 + 24) * token);
  CHECK(backward.at("query norm backward of its parameters") == 2 * 96 * token);

  Execution fused = how;
  fused.kernels.fusion = Fusion::by_hand;
  const LayerWork by_hand = layer(network_work(network, fused));
  CHECK(sum_of_flops(work.forward) == sum_of_flops(by_hand.forward));
  CHECK(work.parameters == by_hand.parameters);
  CHECK(backward.at("compressions gradient sum") == 3 * H);

  // By operators both compressed states have an fp32 copy beside.
  how.kernels.norms_by_operators = true;
  const LayerWork by_operators = layer(network_work(network, how));
  CHECK(moved(by_operators.forward, "query compression", "proj").at("query norm squares") ==
        2 * 96 * kTokens * 4);
  network.latent = {};
  const std::int64_t rows = layer(network_work(network, how)).activations().count();
  how.kernels.norms_by_operators = false;
  const std::int64_t of_rows = rows - layer(network_work(network, how)).activations().count();
  CHECK(by_operators.activations().count() ==
        work.activations().count() + of_rows + (96 + 64) * kTokens * 4);
}

// Of queries and of keys and values the compression is kept and the expansion runs again.
TEST_CASE("eager latent attention: every second product runs again") {
  Transformer network = llama(2, kHidden, 8, 8, 1536, 4096);
  network.latent = {
      .key_value_rank = 64, .query_rank = 96, .nope_size = 32, .rope_size = 16, .value_size = 24};
  Execution how = eager();
  how.recompute.form = Recompute::operators;
  const auto products = [&] {
    std::vector<std::string> found;
    for (const std::string& line : script(layer(network_work(network, how)).recompute))
      if (line.find("compression") != std::string::npos ||
          line.find("expansion") != std::string::npos)
        found.push_back(line);
    return found;
  };
  CHECK(products() ==
        std::vector<std::string>{"recompute query expansion", "recompute key and value expansion"});
  network.latent.query_rank = 0;  // queries first, then keys and values narrow and wide
  CHECK(products() == std::vector<std::string>{"recompute key and value compression"});
}

// Each head's 64 numbers are normalised by the operators of an RMSNorm, 8 forward and 16 backward.
TEST_CASE("norms of heads by operators") {
  Transformer network = llama(2, kHidden, 8, 2, 1536, 4096);
  network.head_norm = HeadNorm::per_head;
  Execution how = eager();
  const LayerWork kernels = layer(network_work(network, how));
  how.kernels.norms_by_operators = true;
  const LayerWork operators = layer(network_work(network, how));
  const auto count = [](const std::vector<WorkItem>& items, const char* name) {
    std::int64_t found = 0;
    for (const std::string& line : script(items))
      found += line.rfind(name, 0) == 0 ? 1 : 0;
    return found;
  };
  for (const char* name : {"query norm", "key norm"}) {
    CHECK(count(kernels.forward, name) == 1);
    CHECK(count(operators.forward, name) == 8);
    CHECK(count(operators.backward, name) == 16);
  }
  const Moved forward = moved(operators.forward, "query norm to fp32", "attention");
  CHECK(forward.at("query norm squares") == 2 * kTokens * kHidden * 4);
  CHECK(forward.at("key norm squares") == 2 * kTokens * 2 * 64 * 4);
  CHECK(forward.at("query norm plus epsilon") == 2 * kTokens * 8 * 4);
  // fp32 copies of both, beside what norms of whole rows keep.
  how.kernels.norms_by_operators = false;
  network.head_norm = HeadNorm::none;
  const std::int64_t plain = layer(network_work(network, how)).activations().count();
  how.kernels.norms_by_operators = true;
  const std::int64_t rows = layer(network_work(network, how)).activations().count() - plain;
  CHECK(operators.activations().count() ==
        kernels.activations().count() + rows + kTokens * (8 + 2) * 64 * 4);

  // Norms without weights are one kernel either way, and fp32 needs no copy.
  const auto copies = [&](HeadNorm norm, Dtype compute) {
    how.compute = compute;
    const auto more = [&](HeadNorm of_heads) {
      network.head_norm = of_heads;
      how.kernels.norms_by_operators = true;
      const std::int64_t by_operators = layer(network_work(network, how)).activations().count();
      how.kernels.norms_by_operators = false;
      return by_operators - layer(network_work(network, how)).activations().count();
    };
    return more(norm) - more(HeadNorm::none);
  };
  CHECK(copies(HeadNorm::per_head, Dtype::bf16) == kTokens * (8 + 2) * 64 * 4);
  CHECK(copies(HeadNorm::unweighted, Dtype::bf16) == 0);
  CHECK(copies(HeadNorm::per_head, Dtype::fp32) == 0);
  network.norm = Norm::layer_norm;
  CHECK(copies(HeadNorm::per_head, Dtype::bf16) == 0);
}
