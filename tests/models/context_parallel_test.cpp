// What context parallelism divides, moves and leaves alone.
#include <doctest/doctest.h>

#include <algorithm>
#include <array>

#include "models/families/network.h"
#include "models/transformer/networks.h"
#include "tests/models/work_support.h"
#include "tests/support/rooms.h"

using namespace trainyard;

namespace {

constexpr std::array kMethods = {ContextMethod::ring, ContextMethod::all_gather,
                                 ContextMethod::ulysses};

Execution divided(int context, ContextMethod method, int tensor = 1) {
  Execution how = execution(2, 4096, tensor, tensor > 1);
  how.kernels.attention = AttentionKernel::fa2;
  how.context = context;
  how.context_parallel.method = method;
  return how;
}

Transformer network() {
  return llama(2, 512, 16, 8, 1536, 4096);
}

LayerWork layer_of(const Execution& how) {
  return layer(network_work(network(), how));
}

Flops attention_flops(const std::vector<WorkItem>& items) {
  Flops sum;
  for (const WorkItem& item : items) {
    const auto* kernel = std::get_if<NamedKernel>(&item);
    if (kernel && std::holds_alternative<Attention>(kernel->kernel))
      sum = sum + flops(kernel->kernel);
  }
  return sum;
}

// Bytes that a rank sends in the context-parallel group, and nowhere else.
std::int64_t sent(const std::vector<WorkItem>& items, int context) {
  std::int64_t bytes = 0;
  for (const GroupCollective& collective : collectives(items)) {
    if (collective.group != LayerGroup::context) continue;
    const std::int64_t whole = collective.bytes.count();
    switch (collective.kind) {
      case CollectiveKind::shift: bytes += whole / context; break;
      case CollectiveKind::all_gather:
      case CollectiveKind::reduce_scatter:
      case CollectiveKind::all_to_all: bytes += whole / context * (context - 1); break;
      default: FAIL("not a context-parallel collective");
    }
  }
  return bytes;
}

}  // namespace

TEST_CASE("c ranks share one sequence's work, each a c-th of it, exactly") {
  for (const int tensor : {1, 2}) {
    const LayerWork whole = layer_of(divided(1, ContextMethod::ring, tensor));
    for (const ContextMethod method : kMethods) {
      for (const int c : {2, 4}) {
        const LayerWork part = layer_of(divided(c, method, tensor));
        CHECK(c * attention_flops(part.forward) == attention_flops(whole.forward));
        CHECK(c * attention_flops(part.backward) == attention_flops(whole.backward));
        CHECK(c * sum_of_flops(part.forward) == sum_of_flops(whole.forward));
        CHECK(c * part.activations() == whole.activations());
        CHECK(c * part.output == whole.output);
        CHECK(part.parameters == whole.parameters);
        CHECK(part.forward_model_flops == whole.forward_model_flops);
        CHECK(part.forward_masked_flops == whole.forward_masked_flops);
        CHECK(c * tensor * sum_of_flops(part.forward) ==
              part.forward_model_flops - part.forward_masked_flops);
      }
    }
  }
}

// K: keys and values of a rank's tokens, 2 x 2 x 4096/c x 8 heads x 32 wide x 2 bytes.
TEST_CASE("volumes of the three methods") {
  for (const int c : {2, 4, 8}) {
    const std::int64_t tokens = 2 * 4096 / c;
    const std::int64_t kv = 2 * tokens * 8 * 32 * 2;
    const std::int64_t q = tokens * 16 * 32 * 2;
    const LayerWork ring = layer_of(divided(c, ContextMethod::ring));
    CHECK(sent(ring.forward, c) == (c - 1) * kv);
    CHECK(sent(ring.backward, c) == (2 * c - 1) * kv);
    const LayerWork gathered = layer_of(divided(c, ContextMethod::all_gather));
    CHECK(sent(gathered.forward, c) == (c - 1) * kv);
    CHECK(sent(gathered.backward, c) == 2 * (c - 1) * kv);
    const LayerWork ulysses = layer_of(divided(c, ContextMethod::ulysses));
    CHECK(sent(ulysses.forward, c) == (2 * q + kv) / c * (c - 1));
    CHECK(sent(ulysses.backward, c) == (2 * q + kv) / c * (c - 1));
  }
}

TEST_CASE("a hop of the ring is under way while the part at hand is computed") {
  const LayerWork ring = layer_of(divided(2, ContextMethod::ring));
  const std::vector<std::string> lines = script(ring.forward);
  const auto at = std::find(lines.begin(), lines.end(), "start keys and values to the next");
  REQUIRE(at != lines.end());
  CHECK(std::vector(at, at + 5) == std::vector<std::string>{"start keys and values to the next",
                                                            "attention", "wait", "attention",
                                                            "attention merge"});
}

TEST_CASE("what context parallelism cannot divide is named") {
  const auto problem = [](const Execution& how) {
    const auto problems = check_execution(network(), how);
    return problems.empty() ? "" : problems.front().member + ": " + problems.front().message;
  };
  CHECK(problem(divided(8, ContextMethod::ulysses)) == "");
  CHECK(problem(divided(16, ContextMethod::ulysses)) ==
        "context: key/value heads (8) must be divisible by the tensor-parallel degree (1) times "
        "the context-parallel degree (16): ulysses deals heads");
  CHECK(problem(divided(3, ContextMethod::ring)) ==
        "sequence_length: the sequence length (4096) must be divisible by twice the "
        "context-parallel degree (3): every rank takes an early and a late chunk");
  Execution unfused = divided(2, ContextMethod::ring);
  unfused.kernels.attention = AttentionKernel::unfused;
  CHECK(problem(unfused) ==
        "fused_attention: context parallelism divides fused attention; unfused attention has all "
        "scores of a sequence on one rank");
}
