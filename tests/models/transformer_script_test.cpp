// What a transformer layer enqueues: order, shapes, bytes, collectives.
#include <doctest/doctest.h>

#include <algorithm>

#include "tests/models/work_support.h"
#include "tests/support/rooms.h"

using namespace trainyard;

namespace {

using Script = std::vector<std::string>;

int count(const std::vector<GroupCollective>& found, CollectiveKind kind) {
  int number = 0;
  for (const GroupCollective& collective : found) {
    if (collective.kind == kind) ++number;
  }
  return number;
}

constexpr CollectiveKind kReduce = CollectiveKind::all_reduce;
constexpr CollectiveKind kGather = CollectiveKind::all_gather;
constexpr CollectiveKind kScatter = CollectiveKind::reduce_scatter;

}  // namespace

TEST_CASE("a Megatron layer with tensor and sequence parallelism, in order") {
  const LayerWork work = layer(network_work(gpt(1, 64, 8, 512), execution(1, 16, 2, true)));
  CHECK(script(work.forward) == Script{"norm 1",
                                       "start qkv all-gather",
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
                                       "norm 2",
                                       "start fc1 all-gather",
                                       "wait",
                                       "fc1",
                                       "activation",
                                       "fc2",
                                       "start fc2 reduce-scatter",
                                       "wait",
                                       "residual 2"});
  CHECK(script(work.backward) == Script{"residual 2 backward dropout",
                                        "residual 2 backward",
                                        "fc2 bias gradient",
                                        "start fc2 gradient all-gather",
                                        "wait",
                                        "fc2 input gradient",
                                        "fc2 weight gradient",
                                        "activation backward",
                                        "fc1 bias gradient",
                                        "start fc1 input all-gather",
                                        "fc1 input gradient",
                                        "wait",
                                        "start fc1 input gradient reduce-scatter",
                                        "fc1 weight gradient",
                                        "wait",
                                        "norm 2 backward",
                                        "residual 1 backward dropout",
                                        "residual 1 backward",
                                        "proj bias gradient",
                                        "start proj gradient all-gather",
                                        "wait",
                                        "proj input gradient",
                                        "proj weight gradient",
                                        "attention probability gradient",
                                        "attention value gradient",
                                        "attention dropout backward",
                                        "softmax backward",
                                        "attention query gradient",
                                        "attention key gradient",
                                        "attention transpose backward",
                                        "start qkv input all-gather",
                                        "qkv input gradient",
                                        "wait",
                                        "start qkv input gradient reduce-scatter",
                                        "qkv weight gradient",
                                        "wait",
                                        "norm 1 backward"});
}

TEST_CASE("a Llama layer on one rank, in order") {
  Execution how = execution(1, 16);
  how.kernels.attention = AttentionKernel::fa2;
  const LayerWork work = layer(network_work(llama(1, 64, 8, 2, 192, 512), how));
  CHECK(script(work.forward) == Script{"norm 1", "qkv", "rope", "attention inputs", "attention",
                                       "proj", "residual 1", "norm 2", "fc1", "activation", "fc2",
                                       "residual 2"});
  CHECK(gemm(work.forward, "qkv") == Gemm{16, 64 + 2 * 16, 64, 1, Dtype::fp16});
  CHECK(gemm(work.forward, "fc1") == Gemm{16, 2 * 192, 64, 1, Dtype::fp16});
  CHECK(gemm(work.forward, "fc2") == Gemm{16, 64, 192, 1, Dtype::fp16});
}

TEST_CASE("linear layers have the shapes of Megatron-LM, and gradients of theirs") {
  const std::int64_t m = 2 * 2048, h = 12288, t = 8;
  const LayerWork work =
      layer(network_work(gpt(1, h, 96, 51200), execution(2, 2048, static_cast<int>(t))));
  struct Linear {
    std::string name;
    std::int64_t n, k;
  };
  for (const Linear& linear : {Linear{"qkv", 3 * h / t, h}, Linear{"proj", h, h / t},
                               Linear{"fc1", 4 * h / t, h}, Linear{"fc2", h, 4 * h / t}}) {
    const std::string& name = linear.name;
    const std::int64_t n = linear.n, k = linear.k;
    CAPTURE(name);
    CHECK(gemm(work.forward, name) == Gemm{m, n, k, 1, Dtype::fp16});
    CHECK(gemm(work.backward, name + " input gradient") == Gemm{m, k, n, 1, Dtype::fp16});
    CHECK(gemm(work.backward, name + " weight gradient") == weight_gemm(n, k, m));
  }
  CHECK(gemm(work.forward, "attention scores") == Gemm{2048, 2048, 128, 2 * 96 / t, Dtype::fp16});
  CHECK(gemm(work.forward, "attention context") == Gemm{2048, 128, 2048, 2 * 96 / t, Dtype::fp16});
}

TEST_CASE("exactly the weight gradients may be deferred") {
  const NetworkWork work = network_work(gpt(1, 64, 8, 512), execution(1, 16, 2, true));
  for (const LayerWork& kind : work.kinds) {
    for (const auto* items : {&kind.forward, &kind.backward}) {
      for (const WorkItem& item : *items) {
        const auto* kernel = std::get_if<NamedKernel>(&item);
        if (!kernel) continue;
        CAPTURE(kernel->name);
        CHECK(kernel->weight_gradient ==
              (kernel->name.find("weight gradient") != std::string::npos));
      }
    }
  }
}

TEST_CASE("one rank alone has no collectives and waits for none") {
  for (const bool sp : {false, true}) {
    for (const Recompute recompute : {Recompute::none, Recompute::selective, Recompute::full}) {
      const NetworkWork work = network_work(gpt(1, 64, 8, 512), execution(1, 16, 1, sp, recompute));
      for (const LayerWork& kind : work.kinds) {
        for (const auto* items : {&kind.forward, &kind.recompute, &kind.backward}) {
          for (const WorkItem& item : *items)
            CHECK(std::holds_alternative<NamedKernel>(item));
        }
      }
    }
  }
}

// Two all-reduces forward and two backward; full recomputation runs the forward ones again.
TEST_CASE("a layer all-reduces four times s b h, six times with full recomputation") {
  for (const TensorOverlap overlap : {TensorOverlap::none, TensorOverlap::weight_gradient}) {
    Execution how = execution(3, 128, 4);
    how.tensor_parallel.overlap = overlap;
    for (const Recompute recompute : {Recompute::none, Recompute::selective, Recompute::full}) {
      how.recompute.form = recompute;
      const LayerWork work = layer(network_work(gpt(1, 256, 8, 512), how));
      CHECK(collectives(work.forward).size() == 2);
      CHECK(collectives(work.backward).size() == 2);
      CHECK(collectives(work.recompute).size() == (recompute == Recompute::full ? 2 : 0));
      for (const auto* items : {&work.forward, &work.recompute, &work.backward}) {
        for (const GroupCollective& collective : collectives(*items)) {
          CHECK(collective.kind == kReduce);
          CHECK(collective.bytes.count() == 3 * 128 * 256 * 2);
        }
      }
    }
  }
}

TEST_CASE("sequence parallelism makes each all-reduce a pair, and gathers two inputs again") {
  for (const TensorOverlap overlap : {TensorOverlap::none, TensorOverlap::weight_gradient}) {
    Execution how = execution(3, 128, 4, true, Recompute::full);
    how.tensor_parallel.overlap = overlap;
    const LayerWork work = layer(network_work(gpt(1, 256, 8, 512), how));
    for (const auto* items : {&work.forward, &work.recompute}) {
      CHECK(count(collectives(*items), kGather) == 2);
      CHECK(count(collectives(*items), kScatter) == 2);
      CHECK(collectives(*items).size() == 4);
    }
    CHECK(count(collectives(work.backward), kGather) == 2 + 2);
    CHECK(count(collectives(work.backward), kScatter) == 2);
    CHECK(collectives(work.backward).size() == 6);
    for (const GroupCollective& collective : collectives(work.backward)) {
      CHECK(collective.bytes.count() == 3 * 128 * 256 * 2);
    }
  }
}

TEST_CASE("without overlap every collective is waited for at once, with it all are by the end") {
  for (const TensorOverlap overlap : {TensorOverlap::none, TensorOverlap::weight_gradient}) {
    for (const bool sp : {false, true}) {
      Execution how = execution(1, 16, 2, sp);
      how.tensor_parallel.overlap = overlap;
      const NetworkWork work = network_work(gpt(1, 64, 8, 512), how);
      for (const LayerWork& kind : work.kinds) {
        for (const auto* items : {&kind.forward, &kind.backward}) {
          bool pending = false;
          for (const WorkItem& item : *items) {
            if (overlap == TensorOverlap::none && pending) {
              CHECK(std::holds_alternative<GroupWait>(item));
            }
            if (std::holds_alternative<GroupCollective>(item)) pending = true;
            if (std::holds_alternative<GroupWait>(item)) pending = false;
          }
          CHECK_FALSE(pending);
        }
      }
    }
  }
}

TEST_CASE("selective recomputation runs the attention core just before its backward pass") {
  const LayerWork work =
      layer(network_work(gpt(1, 64, 8, 512), execution(1, 16, 1, false, Recompute::selective)));
  CHECK(work.recompute.empty());
  const Script lines = script(work.backward);
  const auto first = std::find(lines.begin(), lines.end(), "recompute attention scores");
  REQUIRE(lines.end() - first > 5);
  CHECK(*(first - 1) == "proj weight gradient");
  CHECK(Script(first, first + 5) ==
        Script{"recompute attention scores", "recompute softmax", "recompute attention dropout",
               "recompute attention context", "attention probability gradient"});
}

// Per element of q h, m f/t and m s a/t: norms 2 + 3 passes, GELU 2 + 3, SwiGLU 3 + 5, softmax 2 +
// 3, dropout 2 d + 1, residual with dropout (3d + 1) + (2d + 1). Backward, two sums of gradients of
// 3 passes, the heads' transpose of 2 x 3, and a read of what each bias but qkv's is added to.
TEST_CASE("memory-bound kernels move the published byte counts") {
  const std::int64_t b = 2, s = 32, h = 64, a = 8, d = 2, t = 2, m = b * s;
  for (const bool sp : {false, true}) {
    const std::int64_t q = sp ? m / t : m;
    const LayerWork work = layer(network_work(gpt(1, h, a, 512), execution(b, s, t, sp)));
    const std::int64_t scores = m * s * a / t;
    CHECK(bytes_of(work.forward, MemoryOp::layer_norm) == 2 * 2 * q * h * d);
    CHECK(bytes_of(work.backward, MemoryOp::layer_norm) == 2 * 3 * q * h * d);
    CHECK(bytes_of(work.forward, MemoryOp::activation) == 2 * m * 4 * h / t * d);
    CHECK(bytes_of(work.backward, MemoryOp::activation) == 3 * m * 4 * h / t * d);
    CHECK(bytes_of(work.forward, MemoryOp::softmax) == 2 * d * scores);
    CHECK(bytes_of(work.backward, MemoryOp::softmax) == 3 * d * scores);
    CHECK(bytes_of(work.forward, MemoryOp::dropout) ==
          (2 * d + 1) * scores + 2 * (3 * d + 1) * q * h);
    CHECK(bytes_of(work.backward, MemoryOp::dropout) ==
          (2 * d + 1) * scores + 2 * (2 * d + 1) * q * h);
    CHECK(bytes_of(work.forward, MemoryOp::elementwise) == 2 * 3 * m * h / t * d);
    CHECK(bytes_of(work.backward, MemoryOp::elementwise) ==
          2 * 3 * q * h * d + 2 * 3 * m * h / t * d);
    CHECK(bytes_of(work.backward, MemoryOp::column_sum) == 2 * q * h * d + 4 * m * h / t * d);
  }
  const LayerWork gated = layer(network_work(llama(1, h, a, 2, 192, 512), execution(b, s)));
  CHECK(bytes_of(gated.forward, MemoryOp::gated_activation) == 3 * m * 192 * d);
  CHECK(bytes_of(gated.backward, MemoryOp::gated_activation) == 5 * m * 192 * d);
  CHECK(bytes_of(gated.forward, MemoryOp::rope) == 2 * m * (h + h / 4) * d);
}

// Five operators read 5.5 times as much, and write 4.5; backward, where the gradient of a slice is
// written into zeros, 7.5 and 7.5.
TEST_CASE("rotary embeddings of a fused execution by operators") {
  const std::int64_t numbers = 2 * 32 * (64 + 16);
  const Transformer network = llama(1, 64, 8, 2, 192, 512);
  Execution how = execution(2, 32);
  const LayerWork one = layer(network_work(network, how));
  how.kernels.rotary_by_kernel = false;
  const LayerWork many = layer(network_work(network, how));
  CHECK(bytes_of(many.forward, MemoryOp::rope) == 0);
  CHECK(2 * (bytes_of(many.forward, MemoryOp::elementwise) -
             bytes_of(one.forward, MemoryOp::elementwise)) ==
        20 * numbers * 2);
  CHECK(2 * (bytes_of(many.backward, MemoryOp::elementwise) -
             bytes_of(one.backward, MemoryOp::elementwise)) ==
        30 * numbers * 2);
}

// Queries, keys and values are slices of a product; a rotary embedding writes queries and keys
// anew, and grouped queries are copied before it. FlashAttention's sequences follow one another.
TEST_CASE("fused attention reads copies of what its kernel cannot read in place") {
  const std::int64_t h = 64, a = 8, kv = 2, d = 2, s = 16;
  const auto copied = [&](const Transformer& network, AttentionKernel kernel, std::int64_t batch,
                          bool backward) {
    Execution how = execution(batch, s);
    how.kernels.attention = kernel;
    const LayerWork work = layer(network_work(network, how));
    std::int64_t bytes = 0;
    for (const WorkItem& item : backward ? work.backward : work.forward) {
      const auto* named = std::get_if<NamedKernel>(&item);
      if (named == nullptr || named->name.find("attention input") == std::string::npos) continue;
      const auto& memory = std::get<MemoryBound>(named->kernel);
      CHECK(memory.read == memory.written);
      bytes += memory.read.count();
    }
    return bytes / (batch * s * d * (h / a));
  };
  const Transformer learned = gpt(1, h, a, 512), rotary = llama(1, h, a, kv, 192, 512);
  for (const bool backward : {false, true}) {
    CHECK(copied(learned, AttentionKernel::fa2, 1, backward) == 3 * a);
    CHECK(copied(learned, AttentionKernel::cudnn, 1, backward) == 0);
  }
  CHECK(copied(rotary, AttentionKernel::cudnn, 2, false) == a + kv);
  CHECK(copied(rotary, AttentionKernel::fa2, 1, false) == a + kv);
  CHECK(copied(rotary, AttentionKernel::fa2, 2, false) == 2 * (a + kv));
  CHECK(copied(llama(1, h, a, a, 192, 512), AttentionKernel::fa2, 1, false) == a);
  CHECK(copied(rotary, AttentionKernel::cudnn, 2, true) == a + 2 * kv);
}

// In 16 bits: from and to them 6 bytes each way; the maximum and the sum are read, difference,
// exponential and quotient read and written, as the gradient is. Fused: a read less of the maximum,
// a pass less.
// Two products of heads forward and four backward, of 12 numbers (24 bytes) or 8 (16 bytes).
TEST_CASE("heads of no multiple of 16 bytes are multiplied in fp32 if software does") {
  const auto in_fp32 = [](std::int64_t head_size, Dtype compute, Fusion fusion) {
    Execution how = execution(1, 16);
    how.compute = compute;
    how.kernels.fusion = fusion;
    how.kernels.unaligned_heads_in_fp32 = true;
    const LayerWork work = layer(network_work(gpt(1, 8 * head_size, 8, 512), how));
    int number = 0;
    for (const std::vector<WorkItem>* items : {&work.forward, &work.backward})
      for (const WorkItem& item : *items)
        if (const auto* named = std::get_if<NamedKernel>(&item))
          if (const auto* gemm = std::get_if<Gemm>(&named->kernel))
            number += gemm->dtype == Dtype::fp32 ? 1 : 0;
    return number;
  };
  for (const Fusion fusion : {Fusion::by_hand, Fusion::eager}) {
    CHECK(in_fp32(12, Dtype::bf16, fusion) == 6);
    CHECK(in_fp32(12, Dtype::fp16, fusion) == 6);
    CHECK(in_fp32(8, Dtype::bf16, fusion) == 0);
  }
}

TEST_CASE("the cross-entropy moves the bytes of its kernels") {
  Execution how = execution(2, 16, 4);
  const std::int64_t entries = 2 * 16 * 512 / 4;
  const auto forward_and_backward = [&] {
    const LayerWork logits = network_work(gpt(1, 64, 8, 512), how).kinds[2];
    CHECK(bytes_of(logits.backward, MemoryOp::parallel_cross_entropy) ==
          (8 + (how.compute == Dtype::fp32 ? 0 : 6)) * entries);
    CHECK(gemm(logits.forward, "logits") == Gemm{32, 128, 64, 1, how.compute});
    return bytes_of(logits.forward, MemoryOp::parallel_cross_entropy);
  };
  CHECK(forward_and_backward() == (6 + 4 + 8 + 8 + 4 + 8) * entries);
  how.kernels.loss = LossKernels::compiled;
  CHECK(forward_and_backward() == (6 + 8 + 4 + 8) * entries);
  how.compute = Dtype::fp32;
  CHECK(forward_and_backward() == (4 + 8 + 4 + 8) * entries);
  how.kernels.loss.reset();
  CHECK(forward_and_backward() == (4 + 8 + 8 + 4 + 8) * entries);
}

// Logits are read for the sums and for the gradient, which takes their place and is multiplied.
TEST_CASE("a loss in the logits' place moves them five times and keeps one copy") {
  Execution how = execution(2, 16, 4);
  const Bytes logits(2 * 16 * 512 / 4 * 2);
  const auto head = [&] { return network_work(gpt(1, 64, 8, 512), how).kinds[2]; };
  CHECK(head().logits == 2 * logits);
  how.kernels.loss = LossKernels::in_place;
  CHECK(bytes_of(head().forward, MemoryOp::elementwise) == 3 * logits.count());
  CHECK(bytes_of(head().backward, MemoryOp::elementwise) == 2 * logits.count());
  CHECK(bytes_of(head().forward, MemoryOp::parallel_cross_entropy) == 0);
  CHECK(head().logits == logits);
}

TEST_CASE("the logits of a vocabulary that does not divide have a rounded-up width") {
  const NetworkWork work = network_work(gpt(1, 64, 8, 101), execution(2, 16, 4));
  CHECK(gemm(work.kinds[2].forward, "logits") == Gemm{32, 26, 64, 1, Dtype::fp16});
}

// Look-up 2 passes over all tokens, positions 3 over the rank's own; scatter-adds 3 of either.
TEST_CASE("an embedding moves its rows, its positions and its mask") {
  const std::int64_t m = 2 * 16, h = 64, d = 2, t = 4;
  for (const bool sp : {false, true}) {
    const std::int64_t q = sp ? m / t : m;
    const NetworkWork work =
        network_work(gpt(1, h, 8, 512), execution(2, 16, static_cast<int>(t), sp));
    const LayerWork& embedding = work.kinds[0];
    CHECK(bytes_of(embedding.forward, MemoryOp::embedding) == 2 * m * h * d);
    CHECK(bytes_of(embedding.forward, MemoryOp::elementwise) == 3 * q * h * d);
    CHECK(bytes_of(embedding.forward, MemoryOp::dropout) == (2 * d + 1) * q * h);
    CHECK(bytes_of(embedding.backward, MemoryOp::embedding) == 3 * (m + q) * h * d);
    CHECK(bytes_of(embedding.backward, MemoryOp::dropout) == (2 * d + 1) * q * h);
  }
}

TEST_CASE("a split vocabulary sums embeddings, exchanges three numbers per token, sums gradients") {
  for (const bool sp : {false, true}) {
    const NetworkWork work = network_work(gpt(1, 64, 8, 512), execution(2, 16, 4, sp));
    const std::int64_t states = 2 * 16 * 64 * 2;
    const std::vector<GroupCollective> embedding = collectives(work.kinds[0].forward);
    REQUIRE(embedding.size() == 1);
    CHECK(embedding[0].kind == (sp ? kScatter : kReduce));
    CHECK(embedding[0].bytes.count() == states);

    const std::vector<GroupCollective> loss = collectives(work.kinds[2].forward);
    REQUIRE(loss.size() == (sp ? 4 : 3));
    for (std::size_t i = loss.size() - 3; i < loss.size(); ++i) {
      CHECK(loss[i].kind == kReduce);
      CHECK(loss[i].bytes.count() == 2 * 16 * 4);
    }
    CHECK(count(collectives(work.kinds[2].backward), sp ? kScatter : kReduce) == 1);
    CHECK(count(collectives(work.kinds[2].backward), kGather) == (sp ? 1 : 0));
  }
}

// Nothing but its two inputs' gradients, each read, and their sum.
TEST_CASE("the gradients of a stream and of its branch are added by a kernel") {
  const LayerWork work = layer(network_work(llama(1, 64, 8, 2, 192, 512), execution(1, 16)));
  int found = 0;
  for (const WorkItem& item : work.backward) {
    const auto* named = std::get_if<NamedKernel>(&item);
    if (named == nullptr || named->name != "residual 1 backward") continue;
    const Bytes stream(16 * 64 * 2);
    CHECK(named->kernel ==
          Kernel(MemoryBound{MemoryOp::elementwise, 2 * stream, stream, /*backward=*/true}));
    ++found;
  }
  CHECK(found == 1);
}

TEST_CASE("gradients of weights, and no other products, add to sums if they are asked to") {
  Execution how = execution(1, 16);
  how.gradient_sums = Dtype::fp32;
  const LayerWork work = layer(network_work(llama(1, 64, 8, 2, 192, 512), how));
  for (const std::vector<WorkItem>* items : {&work.forward, &work.backward}) {
    for (const WorkItem& item : *items) {
      const auto* named = std::get_if<NamedKernel>(&item);
      const auto* gemm = named == nullptr ? nullptr : std::get_if<Gemm>(&named->kernel);
      if (gemm == nullptr) continue;
      CAPTURE(named->name);
      CHECK(gemm->adds_to == (named->weight_gradient ? std::optional(Dtype::fp32) : std::nullopt));
    }
  }
}

TEST_CASE("kernels of attention drop scores where the network does, in every form of it") {
  const auto drops = [](const NetworkWork& work) -> bool {
    std::vector<bool> found;
    for (const LayerWork& kind : work.kinds)
      for (const std::vector<WorkItem>* items : {&kind.forward, &kind.recompute, &kind.backward})
        for (const WorkItem& item : *items)
          if (const auto* named = std::get_if<NamedKernel>(&item))
            if (const auto* attention = std::get_if<Attention>(&named->kernel))
              found.push_back(attention->dropout);
    REQUIRE_FALSE(found.empty());
    CHECK(std::all_of(found.begin(), found.end(), [&](bool own) { return own == found[0]; }));
    return found[0];
  };
  Execution how = execution(1, 64);
  how.kernels.attention = AttentionKernel::cudnn;
  std::vector<Execution> forms = {how, how, how, how, how};
  forms[1].recompute.form = Recompute::full;
  forms[2].context = forms[3].context = forms[4].context = 2;
  forms[3].context_parallel.method = ContextMethod::all_gather;
  forms[4].context_parallel.method = ContextMethod::ulysses;
  for (const Execution& form : forms) {
    Transformer network = gpt(2, 64, 4, 512);
    CHECK(drops(network_work(network, form)));
    network.attention_dropout = false;
    CHECK_FALSE(drops(network_work(network, form)));
    network.attention_dropout = true;
    network.dropout = false;
    CHECK(drops(network_work(network, form)));
    Execution alone = form;
    alone.trains = false;
    CHECK_FALSE(drops(network_work(network, alone)));
  }
}

TEST_CASE("scores are dropped apart from what blocks hand on") {
  const std::int64_t b = 2, s = 32, h = 64, a = 8, d = 2, m = b * s, scores = m * s * a;
  Transformer network = gpt(1, h, a, 512);
  network.attention_dropout = false;
  const LayerWork blocks = layer(network_work(network, execution(b, s)));
  CHECK(bytes_of(blocks.forward, MemoryOp::dropout) == 2 * (3 * d + 1) * m * h);
  network.attention_dropout = true;
  network.dropout = false;
  const LayerWork of_scores = layer(network_work(network, execution(b, s)));
  CHECK(bytes_of(of_scores.forward, MemoryOp::dropout) == (2 * d + 1) * scores);
}
