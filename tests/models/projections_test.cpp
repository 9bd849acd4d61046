// Projections of one input that a script has apart: gate and up, queries, keys and values.
#include <doctest/doctest.h>

#include <algorithm>

#include "tests/models/work_support.h"
#include "tests/support/rooms.h"

using namespace trainyard;

namespace {

using Lines = std::vector<std::string>;

const Transformer kLlama = llama(2, 128, 4, 2, 384, 1000);
constexpr std::int64_t kTokens = 2 * 64;

struct Apart {
  bool gate = true, projections = false;
  bool per_projection = false, keeps = false, sequence = true;
  int tensor = 1;
  Fusion fusion = Fusion::eager;
};

LayerWork layer_of(const Apart& apart) {
  Execution how = execution(2, 64, apart.tensor, apart.sequence && apart.tensor > 1);
  how.kernels.fusion = apart.fusion;
  how.kernels.attention = AttentionKernel::fa2;
  how.kernels.separate_gate = apart.gate;
  how.kernels.separate_projections = apart.projections;
  how.tensor_parallel.overlap = TensorOverlap::none;
  how.tensor_parallel.gather_per_projection = apart.per_projection;
  how.tensor_parallel.keep_gathered_inputs = apart.keeps;
  return layer(network_work(kLlama, how));
}

bool holds(const Lines& lines, const Lines& names) {
  return std::search(lines.begin(), lines.end(), names.begin(), names.end()) != lines.end();
}

std::int64_t sent(const std::vector<WorkItem>& items) {
  std::int64_t bytes = 0;
  for (const GroupCollective& collective : collectives(items))
    bytes += collective.bytes.count();
  return bytes;
}

}  // namespace

TEST_CASE("a gate apart is two products of half the columns and one sum of gradients") {
  for (const Fusion fusion : {Fusion::eager, Fusion::compiled}) {
    const LayerWork joint = layer_of({.gate = false, .fusion = fusion});
    const LayerWork apart = layer_of({.fusion = fusion});
    CHECK(holds(script(apart.forward), {"gate", "up"}));
    CHECK_FALSE(holds(script(apart.forward), {"fc1"}));
    CHECK(holds(script(apart.backward),
                {"gate input gradient", "up input gradient", "fc1 input gradient sum",
                 "gate weight gradient", "up weight gradient"}));
    CHECK(sum_of_flops(apart.forward) == sum_of_flops(joint.forward));
    CHECK(sum_of_flops(apart.backward) == sum_of_flops(joint.backward));
    CHECK(bytes_of(apart.backward, MemoryOp::elementwise) -
              bytes_of(joint.backward, MemoryOp::elementwise) ==
          3 * kTokens * kLlama.hidden * 2);
    CHECK(apart.activations() == joint.activations());
    CHECK(apart.parameters == joint.parameters);
  }
}

// Each is m h elements for the group.
TEST_CASE("projections that gather for themselves send what each of them reads and hands back") {
  constexpr std::int64_t kStates = kTokens * 128 * 2;
  for (const bool all : {false, true}) {
    const int more = all ? 3 : 1;  // gate and up; queries, keys and values
    const auto with = [&](bool per_projection, bool keeps, bool sequence) {
      return layer_of({.projections = all,
                       .per_projection = per_projection,
                       .keeps = keeps,
                       .sequence = sequence,
                       .tensor = 2});
    };
    for (const bool keeps : {false, true}) {
      const LayerWork once = with(false, keeps, true), each = with(true, keeps, true);
      CHECK(sent(each.forward) - sent(once.forward) == more * kStates);
      CHECK(sent(each.backward) - sent(once.backward) == (keeps ? 1 : 2) * more * kStates);
      CHECK((each.activations() - once.activations()).count() == (keeps ? more * kStates : 0));
      // Gradients are added of shards, where the group has reduced them.
      CHECK(bytes_of(once.backward, MemoryOp::elementwise) -
                bytes_of(each.backward, MemoryOp::elementwise) ==
            more * 3 * kStates / 2);
    }
    const LayerWork once = with(false, false, false), each = with(true, false, false);
    CHECK(sent(each.forward) == sent(once.forward));
    CHECK(sent(each.backward) - sent(once.backward) == more * kStates);
    CHECK(each.activations() == once.activations());
  }
}

TEST_CASE("each projection waits for its own gather") {
  const LayerWork each = layer_of({.per_projection = true, .tensor = 2});
  CHECK(holds(script(each.forward),
              {"start gate all-gather", "wait", "gate", "start up all-gather", "wait", "up"}));
  CHECK(holds(script(each.backward), {"start up input all-gather", "wait", "up input gradient",
                                      "start up input gradient reduce-scatter", "wait",
                                      "up weight gradient", "fc1 input gradient sum"}));
}

// 4 heads of queries to 2 of keys and values, of 32 numbers of 2 bytes.
TEST_CASE("repeated keys and values are copied forward, summed backward, and kept") {
  const auto with = [](Fusion fusion, bool repeated, AttentionKernel attention) {
    Execution how = execution(2, 64);
    how.kernels.fusion = fusion;
    how.kernels.attention = attention;
    how.kernels.repeated_key_values = repeated;
    return layer(network_work(kLlama, how));
  };
  constexpr std::int64_t kFew = kTokens * 2 * 32 * 2, kAll = 2 * kFew;
  for (const Fusion fusion : {Fusion::eager, Fusion::compiled}) {
    const LayerWork grouped = with(fusion, false, AttentionKernel::fa2);
    const LayerWork repeated = with(fusion, true, AttentionKernel::fa2);
    CHECK(holds(script(repeated.forward), {"key copies", "value copies", "attention"}));
    CHECK(holds(script(repeated.backward),
                {"attention backward", "key gradient sum", "value gradient sum"}));
    // A compiled rotary embedding writes every copy of a key itself.
    const std::int64_t key = fusion == Fusion::eager ? kFew + kAll : kAll - kFew;
    for (const auto items : {&LayerWork::forward, &LayerWork::backward})
      CHECK(bytes_of(repeated.*items, MemoryOp::elementwise) -
                bytes_of(grouped.*items, MemoryOp::elementwise) ==
            key + kFew + kAll);
    CHECK((repeated.activations() - grouped.activations()).count() == 2 * (kAll - kFew));
    const LayerWork scores = with(fusion, true, AttentionKernel::unfused);
    CHECK(script(scores.forward) == script(with(fusion, false, AttentionKernel::unfused).forward));
  }
}

TEST_CASE("a ring of context-parallel ranks hands on a key and a value for every repeated head") {
  const auto bytes = [](bool repeated) {
    Execution how = execution(2, 64);
    how.context = 2;
    how.kernels.fusion = Fusion::eager;
    how.kernels.attention = AttentionKernel::fa2;
    how.kernels.repeated_key_values = repeated;
    return sent(layer(network_work(kLlama, how)).forward);
  };
  CHECK(bytes(true) == 2 * bytes(false));
}
