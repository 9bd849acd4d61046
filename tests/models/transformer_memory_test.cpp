// Activations against Korthikanti et al. 2022, as integers: 16 bits, unfused attention with
// dropout.
#include <doctest/doctest.h>

#include "tests/models/work_support.h"
#include "tests/support/rooms.h"

using namespace trainyard;

namespace {

struct Shape {
  std::int64_t hidden, heads, micro_batch, sequence_length;
  int tensor;
};

constexpr Shape kShapes[] = {
    {64, 8, 1, 16, 1},      {64, 8, 3, 32, 4},       {1024, 16, 4, 512, 2},
    {6144, 64, 4, 2048, 8}, {12288, 96, 1, 2048, 8}, {20480, 128, 1, 2048, 8},
};

LayerWork work(const Shape& shape, bool sequence_parallel, Recompute recompute) {
  return layer(network_work(gpt(1, shape.hidden, shape.heads, 512),
                            execution(shape.micro_batch, shape.sequence_length, shape.tensor,
                                      sequence_parallel, recompute)));
}

}  // namespace

TEST_CASE("a layer keeps s b h (10 + 24/t + 5 a s / (h t)) with tensor parallelism alone") {
  for (const Shape& shape : kShapes) {
    const auto [h, a, b, s, t] = shape;
    const LayerWork none = work(shape, false, Recompute::none);
    CHECK(none.activations().count() ==
          s * b * h * 10 + s * b * h * 24 / t + 5 * a * s * s * b / t);
    CHECK(none.workspace() == Bytes(0));
  }
}

// Korthikanti et al. 2022: 48 layers of the 22B network, micro-batch 4, on 8 GPUs.
TEST_CASE("the 22B network of Korthikanti et al. keeps 59.25 GiB per GPU") {
  const LayerWork none = work({6144, 64, 4, 2048, 8}, false, Recompute::none);
  CHECK(48 * none.activations().count() == (std::int64_t{237} << 30) / 4);
}

TEST_CASE("a layer keeps s b h (34 + 5 a s / h) / t with sequence parallelism") {
  for (const Shape& shape : kShapes) {
    const auto [h, a, b, s, t] = shape;
    const LayerWork none = work(shape, true, Recompute::none);
    CHECK(none.activations().count() == (34 * s * b * h + 5 * a * s * s * b) / t);
  }
}

// Two inputs of 2 s b h stay whole, where 2 s b h / t of each did.
TEST_CASE("a layer that keeps gathered inputs has s b h (4 + (30 + 5 a s / h) / t)") {
  for (const Shape& shape : kShapes) {
    const auto [h, a, b, s, t] = shape;
    Execution how = execution(b, s, t, true);
    how.tensor_parallel.keep_gathered_inputs = true;
    const NetworkWork kept = network_work(gpt(1, h, a, 512), how);
    CHECK(layer(kept).activations().count() ==
          4 * s * b * h + (30 * s * b * h + 5 * a * s * s * b) / t);
    how.tensor_parallel.keep_gathered_inputs = false;
    const NetworkWork again = network_work(gpt(1, h, a, 512), how);
    CHECK((kept.kinds[2].activations() - again.kinds[2].activations()).count() ==
          2 * s * b * h - 2 * s * b * h / t);
    // Two gathers a layer and one of the logits' input are left out, all of them backward.
    const std::size_t fewer = t > 1 ? 1 : 0;
    CHECK(collectives(layer(kept).backward).size() + 2 * fewer ==
          collectives(layer(again).backward).size());
    CHECK(collectives(kept.kinds[2].backward).size() + fewer ==
          collectives(again.kinds[2].backward).size());
    CHECK(collectives(layer(kept).forward).size() == collectives(layer(again).forward).size());
  }
}

TEST_CASE("selective recomputation does not keep the 5 a s / h") {
  for (const Shape& shape : kShapes) {
    const auto [h, a, b, s, t] = shape;
    const LayerWork selective = work(shape, true, Recompute::selective);
    CHECK(selective.activations().count() == 34 * s * b * h / t);
    CHECK(selective.workspace().count() == 5 * a * s * s * b / t);
    const LayerWork alone = work(shape, false, Recompute::selective);
    CHECK(alone.activations().count() == 10 * s * b * h + 24 * s * b * h / t);
  }
}

TEST_CASE("full recomputation keeps 2 s b h, and restores the rest for one layer") {
  for (const Shape& shape : kShapes) {
    const auto [h, a, b, s, t] = shape;
    for (const bool sp : {false, true}) {
      const LayerWork full = work(shape, sp, Recompute::full);
      CHECK(full.activations().count() == (sp ? 2 * s * b * h / t : 2 * s * b * h));
      CHECK(full.activations() + full.workspace() ==
            work(shape, sp, Recompute::none).activations());
    }
  }
}

// Korthikanti et al. 2022, section 4.3: dropout mask s b h / t, logits 4 s b h / t (1 + V/h).
TEST_CASE("embedding and logits keep the mask and 4 s b h / t (1 + V/h)") {
  for (const Shape& shape : kShapes) {
    const auto [h, a, b, s, t] = shape;
    const std::int64_t v = 512;
    const NetworkWork split = network_work(gpt(1, h, a, v), execution(b, s, t, true));
    CHECK(split.kinds[0].activations().count() == s * b * h / t);
    CHECK(split.kinds[2].activations().count() == 4 * s * b * h / t);
    CHECK(split.kinds[2].logits.count() == 4 * s * b * v / t);
  }
}

TEST_CASE("fused attention keeps four bytes per head and token instead of scores") {
  const auto [h, a, b, s, t] = kShapes[3];
  Execution how = execution(b, s, t, true);
  how.kernels.attention = AttentionKernel::fa2;
  const NetworkWork fused = network_work(gpt(1, h, a, 512), how);
  CHECK(layer(fused).activations().count() == 34 * s * b * h / t + 4 * a * s * b / t);
}

// MPT and Llama kinds have no dropout: 32 s b h with a plain feed-forward of 4 h.
TEST_CASE("without dropout a layer keeps 32 s b h") {
  const auto [h, a, b, s, t] = kShapes[2];
  Transformer network = gpt(1, h, a, 512);
  network.dropout = false;
  Execution how = execution(b, s);
  how.kernels.attention = AttentionKernel::fa2;
  CHECK(layer(network_work(network, how)).activations().count() == 32 * s * b * h + 4 * a * s * b);
  how.kernels.attention = AttentionKernel::unfused;
  CHECK(layer(network_work(network, how)).activations().count() ==
        32 * s * b * h + 2 * a * s * s * b);
}

TEST_CASE("a Llama layer keeps its norms' inputs, projections, gate, up and product") {
  const std::int64_t h = 4096, a = 32, kv = 8, f = 14336, b = 2, s = 1024;
  Execution how = execution(b, s);
  how.kernels.attention = AttentionKernel::fa2;
  const NetworkWork work = network_work(llama(1, h, a, kv, f, 1000), how);
  const std::int64_t tokens = b * s;
  const std::int64_t widths = 4 * h            // two norm inputs, two norm outputs
                              + h + 2 * h / 4  // query; key and value of 8 of 32 heads
                              + h              // attention output
                              + 3 * f;         // gate, up, their product
  CHECK(layer(work).activations().count() == 2 * tokens * widths + 4 * tokens * a);
  CHECK(work.kinds[0].activations() == Bytes(0));
}

TEST_CASE("ReLU keeps one feed-forward tensor where GELU keeps two and gates keep three") {
  Transformer network = gpt(1, 64, 8, 512);
  const auto kept = [&](FeedForward feed_forward) {
    network.feed_forward = feed_forward;
    return layer(network_work(network, execution(1, 16))).activations().count();
  };
  const std::int64_t tensor = 2 * 16 * 256;
  CHECK(kept(FeedForward::gelu) == kept(FeedForward::relu) + tensor);
  CHECK(kept(FeedForward::swiglu) == kept(FeedForward::gelu) + tensor);
  CHECK(kept(FeedForward::geglu) == kept(FeedForward::swiglu));
}

TEST_CASE("8-bit training keeps and sends 16-bit tensors, only its multiplications are narrower") {
  Execution how = execution(1, 128, 2);
  how.compute = Dtype::bf16;
  const NetworkWork wide = network_work(gpt(1, 64, 8, 512), how);
  how.compute = Dtype::fp8;
  const NetworkWork narrow = network_work(gpt(1, 64, 8, 512), how);
  CHECK(layer(narrow).activations() == layer(wide).activations());
  CHECK(layer(narrow).output == layer(wide).output);
  int gemms = 0;
  for (const WorkItem& item : layer(narrow).forward) {
    const auto* kernel = std::get_if<NamedKernel>(&item);
    const auto* gemm = kernel ? std::get_if<Gemm>(&kernel->kernel) : nullptr;
    if (gemm && gemm->dtype == Dtype::fp8) ++gemms;
  }
  CHECK(gemms == 4);
}

// Of 34 bytes a token and hidden element without the scores, inputs of qkv, proj and fc1 have 2
// each and that of fc2 has 8: seven bytes less. A fused kernel of attention keeps its own output,
// too.
TEST_CASE("inputs of products that are kept in fp8 take half, and so do their gathers") {
  Execution how = execution(1, 128, 2);
  how.tensor_parallel.sequence = true;
  how.compute = Dtype::fp8;
  const std::int64_t states = 128 * 64 / 2;
  const auto gathered = [](const LayerWork& work) {
    std::int64_t bytes = 0;
    for (const auto* list : {&work.forward, &work.backward}) {
      for (const WorkItem& item : *list) {
        const auto* collective = std::get_if<GroupCollective>(&item);
        if (collective && collective->kind == CollectiveKind::all_gather)
          bytes += collective->bytes.count();
      }
    }
    return bytes;
  };
  for (const AttentionKernel kernel : {AttentionKernel::unfused, AttentionKernel::fa3}) {
    how.kernels.attention = kernel;
    how.fp8_inputs = false;
    const LayerWork wide = layer(network_work(gpt(1, 64, 8, 512), how));
    how.fp8_inputs = true;
    const LayerWork narrow = layer(network_work(gpt(1, 64, 8, 512), how));
    const int less = kernel == AttentionKernel::unfused ? 7 : 5;
    CHECK(wide.activations().count() - narrow.activations().count() == less * states);
    CHECK(gathered(wide) == 6 * 2 * 128 * 64);
    CHECK(2 * gathered(narrow) == gathered(wide));
  }
}

// Source: InternLM/InternEvo, internlm/model/modeling_internlm.py.
TEST_CASE("norms that read fp32 copies keep them, unless they run again") {
  Transformer network = gpt(1, 64, 8, 512);
  constexpr std::int64_t elements = 2 * 128 * 64;
  Execution how = execution(2, 128);
  const auto both = [&] {
    how.kernels.norms_read_fp32 = false;
    const LayerWork narrow = layer(network_work(network, how));
    how.kernels.norms_read_fp32 = true;
    return std::pair{narrow, layer(network_work(network, how))};
  };
  const auto [narrow, wide] = both();
  CHECK(wide.activations() - narrow.activations() == Bytes(2 * 2 * elements));
  const auto more = [&](auto pass, MemoryOp op) {
    return bytes_of(wide.*pass, op) - bytes_of(narrow.*pass, op);
  };
  CHECK(more(&LayerWork::forward, MemoryOp::elementwise) == 2 * (2 + 4) * elements);
  CHECK(more(&LayerWork::forward, MemoryOp::layer_norm) == 2 * 2 * elements);
  CHECK(more(&LayerWork::backward, MemoryOp::elementwise) == 2 * (4 + 2) * elements);
  CHECK(more(&LayerWork::backward, MemoryOp::layer_norm) == 2 * (2 + 2) * elements);
  network.block_norms = BlockNorms::around;
  const auto [four, wide_four] = both();
  CHECK(wide_four.activations() - four.activations() == Bytes(4 * 2 * elements));
  network.block_norms = BlockNorms::before;
  how.recompute.form = Recompute::modules;
  how.recompute.modules.add(RecomputeModule::layernorm);
  const auto [again, wide_again] = both();
  CHECK(wide_again.activations() == again.activations());
}

// Source: Megatron-Core, core/fusions/fused_bias_swiglu.py.
TEST_CASE("gates kept in fp8 take a byte for each number and a copy either way") {
  Transformer network = gpt(1, 64, 8, 512);
  network.feed_forward = FeedForward::swiglu;
  Execution how = execution(2, 128);
  const auto check = [&](std::int64_t numbers) {
    how.fp8_gates = false;
    const LayerWork wide = layer(network_work(network, how));
    how.fp8_gates = true;
    const LayerWork narrow = layer(network_work(network, how));
    CHECK(wide.activations().count() - narrow.activations().count() == numbers);
    const auto more = [&](auto pass) {
      return bytes_of(narrow.*pass, MemoryOp::elementwise) -
             bytes_of(wide.*pass, MemoryOp::elementwise);
    };
    CHECK(more(&LayerWork::forward) == (2 + 1) * numbers);
    CHECK(more(&LayerWork::backward) == (1 + 2) * numbers);
  };
  constexpr std::int64_t tokens = 2 * 128;
  check(tokens * 2 * network.ffn_hidden);
  network.moe.experts = 4;
  network.moe.top_k = 2;
  network.moe.ffn_hidden = 32;
  check(2 * tokens * 2 * 32);
}

// Source: Megatron-Core, tensor_parallel/layers.py; Transformer Engine, module/base.py.
TEST_CASE("products leave autograd arrays as large as their weights") {
  constexpr std::int64_t h = 256, v = 1024, t = 4;
  Transformer network = gpt(2, h, 8, v);
  Execution how = execution(2, 128, t);
  const auto kinds = [&](Placeholders which) {
    how.kernels.placeholders = which;
    return network_work(network, how).kinds;
  };
  const std::vector<LayerWork> none = kinds(Placeholders::none);
  const std::vector<LayerWork> dropped = kinds(Placeholders::dropped);
  const std::vector<LayerWork> kept = kinds(Placeholders::kept);
  const Bytes output(2 * v * h / t), second(2 * 4 * h * h / t);
  CHECK(dropped[2].transient == none[2].transient + output);
  CHECK(kept[2].transient == none[2].transient + output);
  CHECK(dropped[1].transient == none[1].transient + second);
  CHECK(kept[1].transient == none[1].transient);
  CHECK(kept[1].keeps_placeholders);
  CHECK_FALSE(kept[2].keeps_placeholders);
  CHECK_FALSE(dropped[1].keeps_placeholders);
  network.moe.experts = 8;
  network.moe.top_k = 2;
  network.moe.ffn_hidden = 64;
  how = execution(2, 128, 1);
  how.experts.ranks = 2;
  const std::vector<LayerWork> experts = kinds(Placeholders::dropped);
  const std::vector<LayerWork> without = kinds(Placeholders::none);
  CHECK(experts[1].transient == without[1].transient + Bytes(2 * h * 64));  // of one expert
}

TEST_CASE("gathered logits are those of all entries on every rank, and cost what that takes") {
  constexpr std::int64_t s = 128, b = 2, h = 256, v = 1024, t = 4;
  const Transformer network = gpt(2, h, 8, v);
  for (const Fusion fusion : {Fusion::by_hand, Fusion::eager}) {
    CAPTURE(static_cast<int>(fusion));
    Execution how = execution(b, s, t);
    how.kernels.fusion = fusion;
    const LayerWork parts = network_work(network, how).kinds[2];
    how.tensor_parallel.gather_logits = true;
    const LayerWork whole = network_work(network, how).kinds[2];
    CHECK(parts.logits.count() == b * s * v * 4 / t);
    CHECK(whole.logits.count() == b * s * v * 4);
    CHECK(sum_of_flops(whole.forward) == sum_of_flops(parts.forward));
    CHECK(sum_of_flops(whole.backward) == sum_of_flops(parts.backward));
    // Instead of three numbers per token, all of the logits in 16 bits.
    const auto sent = [](const LayerWork& work, CollectiveKind kind) {
      std::int64_t bytes = 0;
      for (const GroupCollective& one : collectives(work.forward))
        if (one.kind == kind) bytes += one.bytes.count();
      return bytes;
    };
    CHECK(sent(whole, CollectiveKind::all_gather) - sent(parts, CollectiveKind::all_gather) ==
          b * s * v * 2);
    CHECK(sent(parts, CollectiveKind::all_reduce) == 3 * b * s * 4);
    CHECK(sent(whole, CollectiveKind::all_reduce) == 0);
    const auto loss =
        fusion == Fusion::by_hand ? MemoryOp::parallel_cross_entropy : MemoryOp::cross_entropy;
    CHECK(bytes_of(whole.forward, loss) == t * bytes_of(parts.forward, loss));
    CHECK(bytes_of(whole.backward, loss) == t * bytes_of(parts.backward, loss));
  }
  Execution alone = execution(b, s);
  const LayerWork plain = network_work(network, alone).kinds[2];
  alone.tensor_parallel.gather_logits = true;
  CHECK(script(network_work(network, alone).kinds[2].forward) == script(plain.forward));
}
