// Latent attention by PyTorch's operators, against models/transformer/attention/
// latent_attention.cpp.
#include <doctest/doctest.h>

#include <map>

#include "models/transformer/networks.h"
#include "tests/models/work_support.h"
#include "tests/support/rooms.h"

using namespace trainyard;

namespace {

constexpr std::int64_t kTokens = 64, kHidden = 512;

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

}  // namespace

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
  how.kernels.norms_by_operators = true;
  const LayerWork by_operators = layer(network_work(network, how));
  CHECK(moved(by_operators.forward, "query compression", "proj").at("query norm squares") ==
        2 * 96 * kTokens * 4);
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
}
