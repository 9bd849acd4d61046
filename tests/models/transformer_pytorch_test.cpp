// What PyTorch runs and keeps, against the table in models/transformer/transformer_pytorch.cpp.
#include <doctest/doctest.h>

#include <algorithm>
#include <initializer_list>

#include "tests/models/work_support.h"
#include "tests/support/rooms.h"

using namespace trainyard;

namespace {

using Lines = std::vector<std::string>;

NetworkWork work(Transformer network, Fusion fusion, bool fused_attention, bool dropout,
                 Dtype compute = Dtype::bf16) {
  network.dropout = dropout;
  Execution how = execution(2, 64);
  how.kernels.fusion = fusion;
  how.kernels.attention = fused_attention ? AttentionKernel::fa2 : AttentionKernel::unfused;
  how.compute = compute;
  return network_work(network, how);
}

// Eager, with FlashAttention-2.
Execution eager(Dtype compute) {
  Execution how = execution(2, 64);
  how.kernels.fusion = Fusion::eager;
  how.kernels.attention = AttentionKernel::fa2;
  how.compute = compute;
  return how;
}

std::int64_t traffic(const LayerWork& layer) {
  std::int64_t sum = 0;
  for (const auto* items : {&layer.forward, &layer.backward}) {
    for (const WorkItem& item : *items) {
      if (const auto* kernel = std::get_if<NamedKernel>(&item))
        sum += memory_traffic(kernel->kernel).count();
    }
  }
  return sum;
}

const Transformer kGpt = gpt(2, 128, 4, 1000);
const Transformer kLlama = llama(2, 128, 4, 2, 384, 1000);

}  // namespace

TEST_CASE("an eager layer has a kernel for every operator of the script") {
  const LayerWork plain = layer(work(kGpt, Fusion::eager, true, false));
  CHECK(script(plain.forward) == Lines{"norm 1", "qkv", "attention", "proj", "residual 1", "norm 2",
                                       "fc1", "activation", "fc2", "residual 2"});
  const LayerWork full = layer(work(kGpt, Fusion::eager, false, true));
  CHECK(script(full.forward) == Lines{"norm 1",
                                      "qkv",
                                      "query copy",
                                      "key copy",
                                      "value copy",
                                      "attention scores",
                                      "attention scale",

                                      "attention mask",
                                      "softmax",
                                      "attention dropout",
                                      "attention context",
                                      "context copy",
                                      "proj",
                                      "residual 1 dropout",
                                      "residual 1",
                                      "norm 2",
                                      "fc1",
                                      "activation",
                                      "fc2",
                                      "residual 2 dropout",
                                      "residual 2"});
  CHECK(script(plain.backward) == Lines{"fc2 input gradient",
                                        "fc2 weight gradient",
                                        "fc2 bias gradient",
                                        "activation backward",
                                        "fc1 input gradient",
                                        "fc1 weight gradient",
                                        "fc1 bias gradient",
                                        "norm 2 backward",
                                        "norm 2 parameter gradients",
                                        "norm 2 gradient sum",
                                        "proj input gradient",
                                        "proj weight gradient",
                                        "proj bias gradient",
                                        "attention backward",
                                        "qkv gradient concatenation",
                                        "qkv input gradient",
                                        "qkv weight gradient",
                                        "qkv bias gradient",
                                        "norm 1 backward",
                                        "norm 1 parameter gradients",
                                        "norm 1 gradient sum"});
}

// Heads of 32 numbers, 4 of queries and 2 of keys: products of 128, 64 and 64 columns.
TEST_CASE("separate projections are three products whose input gradients are added up") {
  const auto with = [](Fusion fusion, AttentionKernel attention, bool separate) {
    Execution how = eager(Dtype::bf16);
    how.kernels.fusion = fusion;
    how.kernels.attention = attention;
    how.kernels.separate_projections = separate;
    return layer(network_work(kLlama, how));
  };
  const auto begins = [](const Lines& lines, const Lines& names) {
    return std::search(lines.begin(), lines.end(), names.begin(), names.end()) != lines.end();
  };
  const LayerWork joint = with(Fusion::eager, AttentionKernel::fa2, false);
  const LayerWork apart = with(Fusion::eager, AttentionKernel::fa2, true);
  CHECK(begins(script(apart.forward),
               {"norm 1", "query", "key", "value", "rope of queries negated half"}));
  CHECK(begins(script(apart.backward),
               {"query input gradient", "key input gradient", "value input gradient",
                "qkv input gradient sum", "qkv input gradient sum", "query weight gradient",
                "key weight gradient", "value weight gradient"}));
  std::vector<Gemm> products;
  for (const WorkItem& item : apart.forward) {
    const auto* named = std::get_if<NamedKernel>(&item);
    const auto* gemm = named ? std::get_if<Gemm>(&named->kernel) : nullptr;
    if (gemm) products.push_back(*gemm);
  }
  REQUIRE(products.size() >= 3);
  CHECK(products[0] == Gemm{128, 128, 128, 1, Dtype::bf16});
  CHECK(products[1] == Gemm{128, 64, 128, 1, Dtype::bf16});
  CHECK(products[2] == products[1]);
  // Flash attention hands three gradients on as they are: two sums of 3 passes for 2 x 2 of the
  // concatenation, whose width is twice that of the states.
  constexpr std::int64_t kStates = 2 * 64 * 128 * 2;
  CHECK(bytes_of(apart.backward, MemoryOp::elementwise) -
            bytes_of(joint.backward, MemoryOp::elementwise) ==
        (2 * 3 - 2 * 2) * kStates);
  CHECK(sum_of_flops(apart.forward) == sum_of_flops(joint.forward));
  CHECK(sum_of_flops(apart.backward) == sum_of_flops(joint.backward));
  CHECK(apart.activations() == joint.activations());
  CHECK(apart.parameters == joint.parameters);
  const LayerWork unfused = with(Fusion::eager, AttentionKernel::unfused, true);
  CHECK(begins(script(unfused.backward), {"qkv gradient copies", "query input gradient"}));
}

TEST_CASE("biases by kernels read and write what their products have written") {
  const auto with = [](bool by_kernel) {
    Execution how = eager(Dtype::bf16);
    how.kernels.bias_by_kernel = by_kernel;
    Transformer network = kGpt;
    network.dropout = false;
    return layer(network_work(network, how));
  };
  const LayerWork inside = with(false), behind = with(true);
  CHECK(script(behind.forward) == Lines{"norm 1", "qkv", "qkv bias", "attention", "proj",
                                        "proj bias", "residual 1", "norm 2", "fc1", "fc1 bias",
                                        "activation", "fc2", "fc2 bias", "residual 2"});
  CHECK(traffic(behind) - traffic(inside) == 2 * (3 + 1 + 4 + 1) * (2 * 64 * 128 * 2));
  CHECK(behind.activations() == inside.activations());
  CHECK(script(behind.backward) == script(inside.backward));
}

TEST_CASE("a compiled layer joins residuals with norms and the softmax with what surrounds it") {
  const LayerWork compiled = layer(work(kGpt, Fusion::compiled, false, true));
  CHECK(script(compiled.forward) == Lines{"residual and norm 1", "qkv", "query copy", "key copy",
                                          "value copy", "attention scores", "softmax",
                                          "attention context", "context copy", "proj",
                                          "residual and norm 2", "fc1", "activation", "fc2"});
}

// Forward copies of q, k, v and the context, the mask, and three dropouts; backward a mask by
// torch.where, and the four copies. An encoder's mask is added: its gradient is that of the sum.
TEST_CASE("copies of heads, masks and dropout handle their numbers one by one") {
  constexpr std::int64_t kStates = 2 * 64 * 128, kScores = 2 * 4 * 64 * 64;
  const auto numbers = [](const std::vector<WorkItem>& items) {
    std::int64_t sum = 0;
    for (const WorkItem& item : items) {
      const auto* named = std::get_if<NamedKernel>(&item);
      const auto* pass = named ? std::get_if<MemoryBound>(&named->kernel) : nullptr;
      if (pass) sum += pass->elements;
    }
    return sum;
  };
  const LayerWork eager = layer(work(kGpt, Fusion::eager, false, true));
  CHECK(numbers(eager.forward) == (4 + 2) * kStates + 2 * kScores);
  CHECK(numbers(eager.backward) == 4 * kStates + kScores);
  const LayerWork fused = layer(work(kGpt, Fusion::eager, true, false));
  CHECK(numbers(fused.forward) == 0);
  CHECK(numbers(fused.backward) == 3 * kStates);
  const LayerWork compiled = layer(work(kGpt, Fusion::compiled, false, true));
  CHECK(numbers(compiled.forward) + numbers(compiled.backward) == 0);
  Execution how = execution(2, 64);
  how.kernels.fusion = Fusion::eager;
  how.kernels.broadcasts_in_vectors = true;
  Transformer network = kGpt;
  network.dropout = true;
  const LayerWork vectors = layer(network_work(network, how));
  CHECK(numbers(vectors.forward) == 2 * kStates + kScores);  // those of dropout are left
  CHECK(numbers(vectors.backward) == 0);
}

TEST_CASE("PyTorch's softmax handles the numbers of long 16-bit rows one by one") {
  const auto numbers = [](std::int64_t length, Dtype compute, Fusion fusion) {
    Execution how = execution(2, length);
    how.kernels.fusion = fusion;
    how.compute = compute;
    const NetworkWork network = network_work(kLlama, how);
    for (const WorkItem& item : layer(network).forward)
      if (const auto* named = std::get_if<NamedKernel>(&item); named && named->name == "softmax")
        return std::get<MemoryBound>(named->kernel).elements;
    return std::int64_t{-1};
  };
  CHECK(numbers(1024, Dtype::bf16, Fusion::eager) == 0);
  CHECK(numbers(1032, Dtype::bf16, Fusion::eager) == 2 * 4 * 1032 * 1032);
  CHECK(numbers(1032, Dtype::fp32, Fusion::eager) == 0);
  CHECK(numbers(1032, Dtype::bf16, Fusion::compiled) == 0);
  CHECK(numbers(1032, Dtype::bf16, Fusion::by_hand) == 0);
}

// m h d bytes is one pass over the hidden states: 2 x 64 tokens of 128 bf16.
TEST_CASE("bytes of norms and residuals are those of the table") {
  constexpr std::int64_t kStates = 2 * 64 * 128 * 2;
  const LayerWork eager = layer(work(kGpt, Fusion::eager, true, false));
  CHECK(bytes_of(eager.forward, MemoryOp::layer_norm) == 2 * 2 * kStates);
  CHECK(bytes_of(eager.forward, MemoryOp::elementwise) == 2 * 3 * kStates);
  CHECK(bytes_of(eager.backward, MemoryOp::layer_norm) == 2 * (3 + 2) * kStates);
  // Two gradient sums, the concatenation of q, k and v; biases of 3 + 1 + 4 + 1 widths.
  CHECK(bytes_of(eager.backward, MemoryOp::elementwise) == (2 * 3 + 2 * 3) * kStates);
  CHECK(bytes_of(eager.backward, MemoryOp::column_sum) == 9 * kStates);
  const LayerWork compiled = layer(work(kGpt, Fusion::compiled, true, false));
  CHECK(bytes_of(compiled.forward, MemoryOp::layer_norm) == 2 * 4 * kStates);
  CHECK(bytes_of(compiled.forward, MemoryOp::elementwise) == 0);
  CHECK(bytes_of(compiled.backward, MemoryOp::layer_norm) == 2 * (4 + 2) * kStates);
}

// Per element: 36 bytes forward and 92 backward for 4 and 10. Kept are the copy and what the weight
// multiplies, in place of the input or beside it.
TEST_CASE("an RMSNorm by operators squares, averages and scales an fp32 copy") {
  const auto with = [](bool operators, std::optional<bool> scales_input = {}) {
    Execution how = eager(Dtype::bf16);
    how.kernels.norms_by_operators = operators;
    how.kernels.norms_scale_input = scales_input;
    return layer(network_work(kLlama, how));
  };
  const LayerWork one = with(false), many = with(true);
  const std::int64_t elements = 2 * 64 * kLlama.hidden;
  const std::int64_t tokens = 2 * 64;  // of which 2 r 2 w forward, 4 r 3 w backward are one number
  CHECK(traffic(many) - traffic(one) == 2 * ((36 - 4 + 92 - 10) * elements + (4 + 7) * 4 * tokens));
  CHECK(many.kept.total().count() - one.kept.total().count() == 2 * (4 + 2 - 2) * elements);
  CHECK(with(true, true).kept.total().count() - one.kept.total().count() == 2 * 6 * elements);
  CHECK(with(true, false).kept.total() == many.kept.total());
}

// Passes over a tensor: LayerNorm 15 and 41 for 2 and 5, GELU 18 and 26 for 2 and 3, dropout 10
// and 5 for 2 and 2, beside a mask of one byte.
TEST_CASE("norms, activations and dropout by operators read and write again and again") {
  const auto with = [](bool norms, bool activations, bool dropout) {
    Transformer network = kGpt;
    network.dropout = true;
    Execution how = eager(Dtype::fp32);
    how.kernels.norms_by_operators = norms;
    how.kernels.activations_by_operators = activations;
    how.kernels.dropout_by_operators = dropout;
    return traffic(layer(network_work(network, how)));
  };
  const std::int64_t plain = with(false, false, false), states = 2 * 64 * kGpt.hidden;
  CHECK(with(true, false, false) - plain == 2 * (15 + 41 - 2 - 5) * 4 * states);
  CHECK(with(false, true, false) - plain == (18 + 26 - 2 - 3) * 4 * 4 * states);
  CHECK(with(false, false, true) - plain == 2 * ((10 + 5 - 2 - 2) * 4 - 2) * states);
}

TEST_CASE("fusion changes no matrix multiplication and moves fewer bytes in fewer kernels") {
  for (const Transformer& network : {kGpt, kLlama}) {
    for (const bool fused_attention : {false, true}) {
      for (const bool dropout : {false, true}) {
        const NetworkWork by_hand = work(network, Fusion::by_hand, fused_attention, dropout);
        const NetworkWork eager = work(network, Fusion::eager, fused_attention, dropout);
        const NetworkWork compiled = work(network, Fusion::compiled, fused_attention, dropout);
        for (std::size_t kind = 0; kind < 3; ++kind) {
          CHECK(sum_of_flops(eager.kinds[kind].forward) ==
                sum_of_flops(by_hand.kinds[kind].forward));
          CHECK(sum_of_flops(compiled.kinds[kind].backward) ==
                sum_of_flops(by_hand.kinds[kind].backward));
          CHECK(sum_of_flops(eager.kinds[kind].backward) ==
                sum_of_flops(by_hand.kinds[kind].backward));
          CHECK(eager.kinds[kind].parameters == by_hand.kinds[kind].parameters);
          if (kind > 0) CHECK(traffic(compiled.kinds[kind]) < traffic(eager.kinds[kind]));
        }
        CHECK(layer(compiled).forward.size() < layer(eager).forward.size());
        CHECK(traffic(layer(by_hand)) < traffic(layer(eager)));
      }
    }
  }
}

TEST_CASE("autograd keeps what Korthikanti et al. count, and an eager gate one tensor more") {
  const auto kept = [](const Transformer& network, Fusion fusion) {
    return layer(work(network, fusion, false, true)).activations();
  };
  CHECK(kept(kGpt, Fusion::eager) == kept(kGpt, Fusion::by_hand));
  CHECK(kept(kGpt, Fusion::compiled) == kept(kGpt, Fusion::by_hand));
  CHECK(kept(kLlama, Fusion::compiled) == kept(kLlama, Fusion::by_hand));
  CHECK(kept(kLlama, Fusion::eager) - kept(kLlama, Fusion::by_hand) == Bytes(2 * 64 * 384 * 2));
}

// Weights and biases: 4 bytes read and 2 written forward, 2 and 4 backward. Inputs of both column
// layers the same, and back 2 and 4. Norms (2 + 5 tensors), residual sums (2 of 3) and sums of
// gradients (3) are of 4 bytes, the branch of a residual sum of 2, and its gradient is copied to 16
// bits.
TEST_CASE("autocast copies weights and inputs to 16 bits and leaves all else in fp32") {
  const auto with = [](const Transformer& network, bool autocast, bool separate = false) {
    Execution how = eager(Dtype::bf16);
    how.autocast = autocast;
    how.kernels.separate_projections = how.kernels.separate_gate = separate;
    return layer(network_work(network, how));
  };
  const std::int64_t states = 2 * 64 * kGpt.hidden, weights = 12 * kGpt.hidden * kGpt.hidden;
  const LayerWork plain = with(kGpt, false), cast = with(kGpt, true);
  const std::int64_t norms = 2 * (2 + 5) * 2, sums = 2 * (2 + 3) * 2, copies = 2 * (6 + 6 + 6);
  const std::int64_t biases = (3 + 1 + 4 + 1) * kGpt.hidden;
  CHECK(traffic(cast) - traffic(plain) ==
        2 * 6 * (weights + biases) + (norms + sums + copies) * states);
  CHECK(cast.kept.total().count() - plain.kept.total().count() == 2 * weights + 2 * 2 * states);
  const Lines script_of_cast = script(cast.forward);
  CHECK(Lines(script_of_cast.begin(), script_of_cast.begin() + 5) ==
        Lines{"norm 1", "qkv input to 16 bits", "qkv weight to 16 bits", "qkv bias to 16 bits",
              "qkv"});
  // Queries, keys, values and both halves of a gate copy the input each.
  const LayerWork joint = with(kLlama, true), apart = with(kLlama, true, true);
  const std::int64_t inputs = 2 * 64 * kLlama.hidden;
  CHECK(apart.kept.total().count() - joint.kept.total().count() == 2 * (2 + 1) * inputs);
  CHECK(apart.parameters == joint.parameters);
}

// tanh, the factor made of it and, in fp32, the input: HF's NewGELUActivation.
TEST_CASE("GELU by operators keeps what autograd saves of each") {
  const auto kept = [](bool operators, bool autocast) {
    Execution how = eager(Dtype::bf16);
    how.autocast = autocast;
    how.kernels.activations_by_operators = operators;
    return layer(network_work(kGpt, how)).kept.total().count();
  };
  const std::int64_t numbers = 2 * 64 * 4 * kGpt.hidden;
  CHECK(kept(true, false) - kept(false, false) == 4 * numbers);
  CHECK(kept(true, true) - kept(false, true) == (3 * 4 + 2 - 2) * numbers);
}

// 128 tokens of 1000 logits. Eager holds fp32 log-probabilities, their gradient and that of the
// logits at once: 12 bytes; compiled the logits and their gradient.
TEST_CASE("the loss keeps log-probabilities eagerly, logits compiled") {
  constexpr std::int64_t kLogits = 2 * 64 * 1000;
  constexpr std::int64_t kInputs = 2 * (2 * 64 * 128);
  const auto logits = [](Fusion fusion, Dtype compute) {
    return work(kGpt, fusion, true, false, compute).kinds[2];
  };
  CHECK(logits(Fusion::eager, Dtype::bf16).logits == Bytes(4 * kLogits));
  CHECK(logits(Fusion::eager, Dtype::bf16).activations() == Bytes(2 * kInputs));
  CHECK(logits(Fusion::eager, Dtype::bf16).workspace() == Bytes(8 * kLogits));
  CHECK(logits(Fusion::compiled, Dtype::bf16).logits == Bytes(2 * kLogits));
  CHECK(logits(Fusion::compiled, Dtype::bf16).activations() == Bytes(2 * kInputs));
  CHECK(logits(Fusion::compiled, Dtype::bf16).workspace() == Bytes(2 * kLogits));
  CHECK(logits(Fusion::eager, Dtype::fp32).logits == Bytes(4 * kLogits));
  CHECK(logits(Fusion::eager, Dtype::fp32).activations() == Bytes(4 * kInputs));
  CHECK(logits(Fusion::eager, Dtype::fp32).workspace() == Bytes(8 * kLogits));
  Execution apart = execution(2, 64);
  apart.kernels.fusion = Fusion::compiled;
  apart.kernels.loss = LossKernels::eager;  // as when only layers are compiled
  const NetworkWork mixed = network_work(kGpt, apart);
  CHECK(mixed.kinds[2].activations() == Bytes(2 * kInputs));
  CHECK(mixed.kinds[2].logits == Bytes(4 * kLogits));
  CHECK(mixed.kinds[2].transient == Bytes(8 * kLogits));
  CHECK(script(mixed.kinds[2].forward) == std::vector<std::string>{"residual and final norm",
                                                                   "logits", "logits to fp32",
                                                                   "cross-entropy"});
  CHECK(script(mixed.kinds[1].forward).front() == "residual and norm 1");
  // Forward the 16-bit logits, their copy, the difference; backward the softmax and its gradient.
  Execution parallel = execution(2, 64);
  parallel.kernels.fusion = Fusion::eager;
  parallel.kernels.loss = LossKernels::by_hand;
  const LayerWork shared = network_work(kGpt, parallel).kinds[2];
  CHECK(shared.logits == Bytes(4 * kLogits));
  CHECK(shared.forward_transient == Bytes((4 + 2) * kLogits));
  CHECK(shared.workspace() == Bytes(2 * kLogits));
  CHECK(bytes_of(shared.forward, MemoryOp::parallel_cross_entropy) == 38 * kLogits);
  CHECK(bytes_of(shared.backward, MemoryOp::parallel_cross_entropy) == 14 * kLogits);
  parallel.compute = Dtype::fp32;  // logits and difference; backward the softmax's place
  const LayerWork single = network_work(kGpt, parallel).kinds[2];
  CHECK(single.forward_transient == Bytes(4 * kLogits));
  CHECK(single.workspace() == Bytes(0));
  // Copies between bf16 and fp32, and the zeros of the loss's gradient.
  const auto elementwise = [&](Dtype compute) {
    const LayerWork work = logits(Fusion::eager, compute);
    return bytes_of(work.forward, MemoryOp::elementwise) +
           bytes_of(work.backward, MemoryOp::elementwise);
  };
  CHECK(elementwise(Dtype::bf16) == (6 + 4 + 6) * kLogits);
  CHECK(elementwise(Dtype::fp32) == 4 * kLogits);
}

TEST_CASE("full recomputation keeps a layer's input and restores the rest beside its gradients") {
  Execution how = execution(2, 64, 1, false, Recompute::full);
  how.kernels.fusion = Fusion::eager;
  how.kernels.attention = AttentionKernel::fa2;
  const LayerWork recomputed = layer(network_work(kGpt, how));
  how.recompute.form = Recompute::none;
  const LayerWork kept = layer(network_work(kGpt, how));
  CHECK(recomputed.activations() == Bytes(2 * 64 * 128 * 2));
  CHECK(recomputed.activations() + recomputed.workspace() == kept.activations() + kept.workspace());
  CHECK(kept.workspace() == Bytes(2 * 2 * 64 * 512 * 2));  // around the activation function
  CHECK(recomputed.recompute.size() == kept.forward.size());
}
