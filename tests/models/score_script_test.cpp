// Scale, mask, softmax and dropout of unfused attention, against docs/cost-memory-bound.md.
#include <doctest/doctest.h>

#include <algorithm>
#include <optional>

#include "tests/models/work_support.h"
#include "tests/support/rooms.h"

using namespace trainyard;

namespace {

using Lines = std::vector<std::string>;

constexpr std::int64_t kLength = 64;
constexpr std::int64_t kScores = 2 * 4 * kLength * kLength;  // of two sequences and four heads
const Transformer kNetwork = gpt(2, 128, 4, 1000);

struct How {
  Fusion fusion = Fusion::eager;
  std::optional<SoftmaxKernels> softmax{};
  bool dropout = false;
  bool autocast = false;
  Dtype compute = Dtype::bf16;
};

LayerWork with(const How& wanted) {
  Transformer network = kNetwork;
  network.dropout = wanted.dropout;
  Execution how = execution(2, kLength);
  how.kernels.fusion = wanted.fusion;
  how.kernels.softmax = wanted.softmax;
  how.kernels.attention = AttentionKernel::unfused;
  how.compute = wanted.compute;
  how.autocast = wanted.autocast;
  const NetworkWork work = network_work(network, how);
  return layer(work);
}

// Names of what lies between two kernels.
Lines between(const std::vector<WorkItem>& items, const char* first, const char* last) {
  const Lines all = script(items);
  const auto begin = std::find(all.begin(), all.end(), first);
  return Lines(begin + 1, std::find(begin, all.end(), last));
}

Lines scores_of(const LayerWork& layer) {
  return between(layer.forward, "attention scores", "attention context");
}

Lines gradients_of(const LayerWork& layer) {
  return between(layer.backward, "attention value gradient", "attention query gradient");
}

std::int64_t memory_bytes(const std::vector<WorkItem>& items) {
  std::int64_t sum = 0;
  for (const WorkItem& item : items)
    if (const auto* kernel = std::get_if<NamedKernel>(&item))
      sum += memory_traffic(kernel->kernel).count();
  return sum;
}

}  // namespace

TEST_CASE("an execution has its own softmax, and takes another one's") {
  const Lines one = {"softmax"};
  const Lines operators = {"attention scale", "attention mask", "softmax"};
  CHECK(scores_of(with({Fusion::eager})) == operators);
  CHECK(scores_of(with({Fusion::by_hand})) == one);
  CHECK(scores_of(with({Fusion::compiled})) == one);
  CHECK(scores_of(with({Fusion::eager, SoftmaxKernels::kernel})) == one);
  // Its products scale.
  CHECK(scores_of(with({Fusion::by_hand, SoftmaxKernels::operators})) ==
        Lines{"attention mask", "softmax"});
  CHECK(gradients_of(with({Fusion::eager, SoftmaxKernels::kernel})) == Lines{"softmax backward"});
  CHECK(gradients_of(with({Fusion::by_hand, SoftmaxKernels::operators})) ==
        Lines{"softmax backward", "attention mask backward"});
  // Another kernel keeps no other tensors.
  CHECK(with({Fusion::eager, SoftmaxKernels::kernel}).kept.total() ==
        with({Fusion::eager}).kept.total());
  // Gradients of scores live beside them, but where the kernel leaves them in the weights' place.
  CHECK(with({Fusion::by_hand}).transient.count() == 0);
  CHECK(with({Fusion::by_hand, SoftmaxKernels::operators}).transient.count() == 2 * 2 * kScores);
  CHECK(with({Fusion::by_hand, SoftmaxKernels::fp32}).transient.count() == 2 * 4 * kScores);
}

TEST_CASE("the softmax of fp32 copies casts scores before it and weights behind it") {
  const How cast{Fusion::eager, SoftmaxKernels::fp32};
  CHECK(scores_of(with(cast)) == Lines{"attention scale", "attention mask",
                                       "attention scores to fp32", "softmax",
                                       "attention weights from fp32"});
  // A mask that is added has no gradient.
  CHECK(gradients_of(with(cast)) == Lines{"attention weight gradients to fp32", "softmax backward",
                                          "attention score gradients from fp32",
                                          "attention scale backward"});
  // To fp32 2 + 4 bytes, back 4 + 2, and a softmax of 4 for 2.
  const LayerWork plain = with({}), copies = with(cast);
  CHECK(memory_bytes(copies.forward) - memory_bytes(plain.forward) == (6 + 4 + 6) * kScores);
  CHECK(memory_bytes(copies.backward) - memory_bytes(plain.backward) == (6 + 6 + 6 - 4) * kScores);
  // The softmax's own output is kept beside what the product reads, with dropout or without.
  CHECK(copies.kept.total().count() - plain.kept.total().count() == 4 * kScores);
  const LayerWork drops = with({.dropout = true});
  const LayerWork drops_copies = with({.softmax = SoftmaxKernels::fp32, .dropout = true});
  CHECK(drops_copies.kept.total().count() - drops.kept.total().count() == 2 * kScores);
  CHECK(copies.transient.count() == 2 * 4 * kScores);
  // Megatron-LM masks what it has cast, in place: 28 and 32 bytes.
  const LayerWork by_hand = with({Fusion::by_hand, SoftmaxKernels::fp32});
  CHECK(scores_of(by_hand) == Lines{"attention scores to fp32", "attention mask", "softmax",
                                    "attention weights from fp32"});
  CHECK(gradients_of(by_hand) == Lines{"attention weight gradients to fp32", "softmax backward",
                                       "attention mask backward",
                                       "attention score gradients from fp32"});
  const LayerWork one = with({Fusion::by_hand});
  CHECK(memory_bytes(by_hand.forward) - memory_bytes(one.forward) == (28 - 4) * kScores);
  CHECK(memory_bytes(by_hand.backward) - memory_bytes(one.backward) == (32 - 6) * kScores);
  // fp16 is read by the softmax itself: 6 for 6 + 8, and backward 10 for 12 + 6.
  const LayerWork half = with({.softmax = SoftmaxKernels::fp32, .compute = Dtype::fp16});
  CHECK(scores_of(half) ==
        Lines{"attention scale", "attention mask", "softmax", "attention weights from fp32"});
  CHECK(memory_bytes(copies.forward) - memory_bytes(half.forward) == 8 * kScores);
  CHECK(memory_bytes(copies.backward) - memory_bytes(half.backward) == 8 * kScores);
  // An fp32 computation copies nothing.
  const How single{Fusion::eager, SoftmaxKernels::fp32, false, false, Dtype::fp32};
  CHECK(scores_of(with(single)) == Lines{"attention scale", "attention mask", "softmax"});
}

TEST_CASE("autocast takes the softmax of fp32 copies, and drops before the copy back") {
  const How plain{.softmax = SoftmaxKernels::fp32, .dropout = true};
  const How cast{.dropout = true, .autocast = true};
  CHECK(scores_of(with(cast)) == Lines{"attention scale", "attention mask",
                                       "attention scores to fp32", "softmax", "attention dropout",
                                       "attention weights from fp32"});
  CHECK(gradients_of(with(cast)) == Lines{"attention weight gradients to fp32",
                                          "attention dropout backward", "softmax backward",
                                          "attention score gradients from fp32",
                                          "attention mask backward", "attention scale backward"});
  const auto kept = [](const How& how) {
    return with(how).kept.of(Module::attention_scores).count();
  };
  CHECK(kept(cast) == (4 + 1 + 2) * kScores);
  CHECK(kept(plain) == kept(cast));
  // Each number is drawn once, whatever its type; a script that says fp32 drops what it cast back.
  const LayerWork drops = with(cast);
  for (const WorkItem& item : drops.forward)
    if (const auto* drop = std::get_if<NamedKernel>(&item);
        drop && drop->name == "attention dropout")
      CHECK(std::get<MemoryBound>(drop->kernel).elements == kScores);
  const Lines said =
      scores_of(with({.softmax = SoftmaxKernels::fp32, .dropout = true, .autocast = true}));
  CHECK(said.back() == "attention dropout");
}
