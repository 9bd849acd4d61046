// Tensor-parallel products in pieces: what is enqueued, and that nothing is lost by cutting.
#include <doctest/doctest.h>

#include "models/transformer/transformer.h"
#include "sim/collective/share.h"
#include "tests/models/work_support.h"
#include "tests/support/rooms.h"

using namespace trainyard;

namespace {

using Script = std::vector<std::string>;

constexpr int kRanks = 4;

Execution chunked(int pieces, TensorOverlap overlap = TensorOverlap::chunked) {
  Execution how = execution(2, 64, kRanks, true);
  how.tensor_parallel.overlap = overlap;
  how.tensor_parallel.chunks = pieces;
  return how;
}

// Bytes that a rank sends.
std::int64_t sent(const std::vector<WorkItem>& items) {
  std::int64_t bytes = 0;
  for (const GroupCollective& collective : collectives(items))
    bytes += wire_share(collective.kind, kRanks).of(collective.bytes).count();
  return bytes;
}

Script lines_of(const std::vector<WorkItem>& items, const std::string& part) {
  Script found;
  for (const std::string& line : script(items))
    if (line == "wait" || line.find(part) != std::string::npos) found.push_back(line);
  return found;
}

bool same(const std::vector<WorkItem>& a, const std::vector<WorkItem>& b) {
  if (script(a) != script(b) || sent(a) != sent(b)) return false;
  return sum_of_flops(a).count() == sum_of_flops(b).count();
}

const std::vector<Transformer> kNetworks = {gpt(1, 256, 8, 512), llama(1, 256, 8, 4, 768, 512)};

}  // namespace

TEST_CASE("a gather in pieces is ahead of the product by one piece, a scatter behind it by one") {
  const TransformerSlice s = slice(gpt(1, 256, 8, 512), chunked(3));
  WorkList list;
  gathered_product(list, s, "gather", "product", Gemm{6, 2, 2});
  reduced_product(list, s, "sum", Gemm{6, 2, 2});
  CHECK(script(list.take()) == Script{"start gather 1/3", "wait", "start gather 2/3", "product 1/3",
                                      "wait", "start gather 3/3", "product 2/3", "wait",
                                      "product 3/3", "sum 1/3", "start sum reduce-scatter 1/3",
                                      "sum 2/3", "start sum reduce-scatter 2/3", "sum 3/3",
                                      "start sum reduce-scatter 3/3", "wait"});
}

TEST_CASE("in a ring a rank begins with its own tokens, and hands parts on t - 1 times") {
  const LayerWork work = layer(network_work(gpt(1, 256, 8, 512), chunked(0)));
  const Script forward = lines_of(work.forward, "qkv");
  CHECK(Script(forward.begin(), forward.begin() + 10) ==
        Script{"start qkv all-gather 1/3", "qkv 1/4", "wait", "start qkv all-gather 2/3", "qkv 2/4",
               "wait", "start qkv all-gather 3/3", "qkv 3/4", "wait", "qkv 4/4"});
  for (const GroupCollective& collective : collectives(work.forward))
    CHECK((collective.kind == CollectiveKind::shift ||
           collective.kind == CollectiveKind::reduce_scatter));
}

// Gathers of inputs and scatters of their gradients hide behind a GEMM that does not need them.
TEST_CASE("backward, proj and fc2 are cut, qkv and fc1 hide their collectives whole") {
  for (const int pieces : {0, 2}) {
    const LayerWork work = layer(network_work(gpt(1, 256, 8, 512), chunked(pieces)));
    const LayerWork whole =
        layer(network_work(gpt(1, 256, 8, 512), chunked(0, TensorOverlap::weight_gradient)));
    for (const char* name : {"qkv", "fc1"}) {
      Script expected{std::string("start ") + name + " input all-gather",
                      std::string(name) + " input gradient",
                      std::string("start ") + name + " input gradient reduce-scatter",
                      std::string(name) + " weight gradient"};
      Script found;
      for (const std::string& line : lines_of(work.backward, name))
        if (line != "wait" && line != "fc1 bias gradient") found.push_back(line);
      CHECK(found == expected);
    }
    CHECK(lines_of(work.backward, "proj input gradient").size() >
          lines_of(whole.backward, "proj input gradient").size());
    CHECK(lines_of(work.backward, "fc2 weight gradient").back() == "wait");
  }
}

TEST_CASE("in pieces a layer sends the same bytes and executes the same FLOPs") {
  for (const Transformer& network : kNetworks) {
    for (const Fusion fusion : {Fusion::by_hand, Fusion::eager, Fusion::compiled}) {
      for (const Recompute recompute : {Recompute::none, Recompute::full}) {
        Execution how = chunked(0, TensorOverlap::none);
        how.kernels.fusion = fusion;
        how.recompute.form = recompute;
        const LayerWork whole = layer(network_work(network, how));
        for (const int pieces : {0, 1, 2, 4, 8}) {
          CAPTURE(pieces);
          how.tensor_parallel.overlap = TensorOverlap::chunked;
          how.tensor_parallel.chunks = pieces;
          const LayerWork cut = layer(network_work(network, how));
          for (const auto part :
               {&LayerWork::forward, &LayerWork::recompute, &LayerWork::backward}) {
            CHECK(sent(cut.*part) == sent(whole.*part));
            CHECK(sum_of_flops(cut.*part).count() == sum_of_flops(whole.*part).count());
          }
          CHECK(cut.activations() == whole.activations());
          how.tensor_parallel.overlap = TensorOverlap::none;
        }
      }
    }
  }
}

TEST_CASE("one piece is no piece") {
  for (const Transformer& network : kNetworks) {
    const LayerWork one = layer(network_work(network, chunked(1)));
    const LayerWork whole =
        layer(network_work(network, chunked(0, TensorOverlap::weight_gradient)));
    CHECK(same(one.forward, whole.forward));
    CHECK(same(one.backward, whole.backward));
    CHECK(one.shared_buffers == Bytes(0));
  }
}

TEST_CASE("embedding and logits are not cut") {
  const NetworkWork cut = network_work(gpt(1, 256, 8, 512), chunked(4));
  const NetworkWork whole =
      network_work(gpt(1, 256, 8, 512), chunked(0, TensorOverlap::weight_gradient));
  for (const std::size_t end : {0U, 2U}) {
    CHECK(same(cut.kinds[end].forward, whole.kinds[end].forward));
    CHECK(same(cut.kinds[end].backward, whole.kinds[end].backward));
  }
}

TEST_CASE("ten buffers of all tokens are registered") {
  const LayerWork work = layer(network_work(gpt(1, 256, 8, 512), chunked(0)));
  CHECK(work.shared_buffers.count() == 10 * 2 * 64 * 256 * 2);
}

TEST_CASE("tokens of a rank that do not divide into the pieces are refused") {
  for (const int pieces : {3, 64}) {
    const auto problems = check_execution(gpt(1, 256, 8, 512), chunked(pieces));
    REQUIRE(problems.size() == 1);
    CHECK(problems[0].member == "tensor_chunks");
  }
}
