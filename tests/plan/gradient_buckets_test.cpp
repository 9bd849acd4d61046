// What gradients leave together, and when: whole tensors, as soon as they are there.
#include "sim/plan/replicas/parts/gradient_buckets.h"

#include <doctest/doctest.h>

#include <algorithm>

#include "sim/plan/step_plan.h"
#include "tests/support/networks.h"
#include "tests/support/rooms.h"

using namespace trainyard;
using trainyard::plan::BucketFill;
using trainyard::plan::GradientBuckets;

namespace {

constexpr std::int64_t kHidden = 1024, kVocabulary = 32000, kElement = 2;
constexpr int kLayers = 4;

StepPlan step_of(const char* kind, Bytes bucket) {
  Transformer network = gpt(kLayers, static_cast<int>(kHidden), 16, static_cast<int>(kVocabulary));
  network.positional = Positional::rope;
  network.tied_embeddings = false;
  TrainingRecipe recipe;
  recipe.global_batch = 4;
  recipe.micro_batch.sequence_length = 128;
  ParallelPlan plan;
  plan.degrees.data = 4;
  plan.data_parallel.kind = kind;
  plan.data_parallel.bucket_size = bucket;
  return plan_step(network_work(network, execution(recipe, plan)), recipe, plan);
}

// Bytes of the buckets, in the order in which they leave, and how many leave within a layer: with a
// kernel of the same layer's backward pass before and behind them.
struct Sent {
  std::vector<std::int64_t> sizes;
  int within_layers = 0;
};
Sent sent(const StepPlan& step) {
  Sent found;
  const Program& program = step.cast.roles[0].program;
  for (const Call& call : program.calls) {
    const std::vector<Op>& ops = program.blocks[call.block].ops;
    for (std::size_t i = 0; i < ops.size(); ++i) {
      if (ops[i].kind != OpKind::collective || step.cast.connection(ops[i]).name != "replicas")
        continue;
      found.sizes.push_back(step.cast.transfer(ops[i]).bytes.count());
      const auto layer = [&](const Op& op) {
        const std::string label = program.labels[op.label];
        return label.substr(0, label.find(':'));
      };
      const auto computes = [](const Op& op) { return op.kind == OpKind::compute; };
      const auto before =
          std::find_if(ops.rend() - static_cast<std::ptrdiff_t>(i), ops.rend(), computes);
      const auto after =
          std::find_if(ops.begin() + static_cast<std::ptrdiff_t>(i), ops.end(), computes);
      if (before != ops.rend() && after != ops.end() && layer(*before) == layer(*after))
        ++found.within_layers;
    }
  }
  return found;
}

}  // namespace

// Source: PyTorch, torch/csrc/distributed/c10d/reducer.cpp (compute_bucket_assignment_by_size).
TEST_CASE("a bucket that is filled past its size has the whole of its last tensor") {
  GradientBuckets buckets(Bytes(10), Bytes(100), BucketFill::past);
  CHECK(buckets.add(Bytes(9)).empty());
  CHECK(buckets.add(Bytes(500)) == std::vector<Bytes>{Bytes(509)});
  CHECK(buckets.add(Bytes(99)).empty());
  CHECK(buckets.add(Bytes(1)) == std::vector<Bytes>{Bytes(100)});
  CHECK(buckets.flush().empty());
}

// Source: DeepSpeed, runtime/zero/stage_1_and_2.py.
TEST_CASE("a bucket that is filled within its size leaves a tensor too large for it to the next") {
  GradientBuckets buckets(Bytes(100), Bytes(100), BucketFill::within);
  CHECK(buckets.add(Bytes(60)).empty());
  CHECK(buckets.add(Bytes(60)) == std::vector<Bytes>{Bytes(60)});
  CHECK(buckets.add(Bytes(40)) == std::vector<Bytes>{Bytes(100)});
  CHECK(buckets.add(Bytes(1)).empty());
  CHECK(buckets.add(Bytes(500)) == std::vector<Bytes>{Bytes(1), Bytes(500)});
  CHECK(buckets.flush().empty());
}

// The embedding is 62 MiB: no bucket of 25 MiB can hold it, and none holds a part of it.
TEST_CASE("an embedding larger than a bucket leaves in one piece") {
  const std::int64_t embedding = kVocabulary * kHidden * kElement;
  for (const char* kind : {"allreduce", "zero1", "distributed_optimizer"}) {
    CAPTURE(kind);
    const Sent all = sent(step_of(kind, Bytes(std::int64_t{25} << 20)));
    CHECK(*std::max_element(all.sizes.begin(), all.sizes.end()) >= embedding);
  }
}

TEST_CASE("gradients leave in the middle of a layer's backward pass, with their last tensor") {
  const std::int64_t matrix = 4 * kHidden * kHidden * kElement;  // fc1, and fc2
  const Sent all = sent(step_of("allreduce", Bytes(matrix)));
  CHECK(all.within_layers >= kLayers);
  const Sent rare = sent(step_of("allreduce", Bytes(std::int64_t{1} << 40)));
  CHECK(rare.sizes.size() == 2);  // the first is small
}
