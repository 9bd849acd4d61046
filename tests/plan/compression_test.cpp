// Compressed gradients against the sums of sim/recipe/gradient_compression.h.
#include <doctest/doctest.h>

#include <algorithm>

#include "models/transformer/networks.h"
#include "sim/collective/share.h"
#include "sim/plan/replicas/data_parallel.h"
#include "sim/plan/step_plan.h"
#include "tests/support/rooms.h"

using namespace trainyard;

namespace {

constexpr int kRanks = 8, kLayers = 4;
constexpr std::int64_t kHidden = 1024, kVocabulary = 32768;

Transformer network() {
  Transformer result;
  result.layers = kLayers;
  result.hidden = kHidden;
  result.heads = result.kv_heads = 16;
  result.head_size = 64;
  result.ffn_hidden = 4 * kHidden;
  result.vocabulary = kVocabulary;
  result.positional = Positional::rope;
  result.norm = Norm::rms_norm;
  result.biases = false;
  result.tied_embeddings = false;
  return result;
}

struct Case {
  TrainingRecipe recipe;
  ParallelPlan plan;
  explicit Case(CompressionKind kind, int rank = 1, double density = 0.001) {
    recipe.global_batch = kRanks;
    recipe.micro_batch.sequence_length = 128;
    recipe.precision.gradients = Dtype::fp32;
    plan.degrees.data = kRanks;
    plan.data_parallel.compression = {.kind = kind, .rank = rank, .density = density};
  }
  NetworkWork work() const { return network_work(network(), execution(recipe, plan)); }
  StepPlan step() const { return plan_step(work(), recipe, plan); }
};

struct Volume {
  std::int64_t sent = 0, messages = 0;
};

Volume volume(const Case& c, std::string_view connection = "replicas", int ranks = kRanks) {
  const StepPlan step = c.step();
  const Program& program = step.cast.roles[0].program;
  Volume result;
  for (const Call& call : program.calls) {
    for (const Op& op : program.blocks[call.block].ops) {
      if (op.kind != OpKind::collective || step.cast.connection(op).name != connection) continue;
      const TransferSpec& spec = step.cast.transfer(op);
      result.sent += wire_share(spec.kind, ranks).of(spec.bytes).count();
      ++result.messages;
    }
  }
  return result;
}

std::int64_t resident(const StepPlan& plan, MemoryKind kind) {
  std::int64_t bytes = 0;
  for (const MemoryEffect& effect : plan.cast.roles[0].program.resident)
    bytes += effect.category == static_cast<std::uint8_t>(kind) ? effect.bytes : 0;
  return bytes;
}

std::int64_t parameters() {
  return parameter_count(network(), 128);
}

// Rows and columns of all matrices: qkv, proj, fc1, fc2 of each layer, and the two ends.
constexpr std::int64_t kSides =
    kLayers * ((3 + 1) + (1 + 1) + (4 + 1) + (1 + 4)) * kHidden + 2 * (kVocabulary + kHidden);
constexpr std::int64_t kScales = (2 * kLayers + 1) * kHidden;  // of the norms

}  // namespace

TEST_CASE("matrices and vectors are all of the parameters") {
  const NetworkWork work = Case(CompressionKind::none).work();
  std::int64_t matrices = 0, all = 0;
  for (const int kind : work.chain) {
    const LayerWork& layer = work.kinds[static_cast<std::size_t>(kind)];
    all += layer.parameters;
    for (const WeightMatrix& matrix : layer.matrices)
      matrices += matrix.elements();
  }
  CHECK(all == parameters());
  CHECK(all - matrices == kScales);
}

TEST_CASE("a cast sends half of fp32, in as many messages as there are buckets") {
  const Volume whole = volume(Case(CompressionKind::none));
  CHECK(whole.sent * kRanks == 2 * (kRanks - 1) * 4 * parameters());
  for (const CompressionKind kind : {CompressionKind::fp16, CompressionKind::bf16}) {
    Case c(kind);
    CHECK(2 * volume(c).sent == whole.sent);
    CHECK(resident(c.step(), MemoryKind::gradients) == 4 * parameters());
    c.plan.data_parallel.bucket_size = Bytes(std::int64_t{1} << 40);
    c.plan.data_parallel.first_bucket_size = c.plan.data_parallel.bucket_size;
    CHECK(volume(c).messages == 1);
  }
}

// One bucket, so that there is one rounding.
TEST_CASE("eight bits go all-to-all and are gathered, with a scale for 2048 elements") {
  for (const CompressionKind kind : {CompressionKind::int8, CompressionKind::fp8}) {
    Case c(kind);
    c.plan.data_parallel.bucket_size = c.plan.data_parallel.first_bucket_size =
        Bytes(std::int64_t{1} << 40);
    const std::int64_t bytes = parameters() + 4 * ((parameters() + 2047) / 2048);
    const Volume sent = volume(c);
    CHECK(sent.messages == 2);
    CHECK(std::abs(sent.sent * kRanks - 2 * (kRanks - 1) * bytes) <= 2 * kRanks);
    CHECK(resident(c.step(), MemoryKind::gradients) == 4 * parameters());
  }
}

TEST_CASE("signs are a 32nd of fp32, and what they lose is kept") {
  Case c(CompressionKind::one_bit);
  c.plan.data_parallel.bucket_size = c.plan.data_parallel.first_bucket_size =
      Bytes(std::int64_t{1} << 40);
  const std::int64_t bytes = (parameters() + 7) / 8 + 4;
  CHECK(std::abs(volume(c).sent * kRanks - 2 * (kRanks - 1) * bytes) <= 2 * kRanks);
  CHECK(resident(c.step(), MemoryKind::gradients) ==
        4 * (2 * parameters() + (parameters() + kRanks - 1) / kRanks));
}

TEST_CASE("the largest gradients are gathered with their places: n - 1 times their bytes") {
  Case c(CompressionKind::top_k, 1, 1.0 / 128);
  c.plan.data_parallel.bucket_size = c.plan.data_parallel.first_bucket_size =
      Bytes(std::int64_t{1} << 40);
  CHECK(volume(c).sent == (kRanks - 1) * (4 + 4) * ((parameters() + 127) / 128));
  CHECK(resident(c.step(), MemoryKind::gradients) == 2 * 4 * parameters());
}

// r (rows + columns) instead of rows x columns: Vogels et al. 2019, section 3.
TEST_CASE("factors of rank r are r times the sides of the matrices, vectors go whole") {
  for (const int rank : {1, 2, 4, 32}) {
    CAPTURE(rank);
    const Case c(CompressionKind::power_sgd, rank);
    CHECK(volume(c).sent * kRanks == 2 * (kRanks - 1) * 4 * (rank * kSides + kScales));
    CHECK(resident(c.step(), MemoryKind::gradients) == 4 * (2 * parameters() + rank * kSides));
  }
}

// 2 r (rows + columns) >= rows x columns holds for the projection from r = 256 on.
TEST_CASE("a matrix that factors would not halve goes whole") {
  const Case c(CompressionKind::power_sgd, 256);
  const std::int64_t projections = kLayers * 2 * kHidden;
  CHECK(volume(c).sent * kRanks ==
        2 * (kRanks - 1) * 4 *
            (256 * (kSides - projections) + kScales + kLayers * kHidden * kHidden));
}

TEST_CASE("factors take 6 r FLOPs for each element of a matrix") {
  const CompressedExchange exchange =
      compressed_exchange({.kind = CompressionKind::power_sgd, .rank = 3},
                          {1000 * 500 + 40, {{1000, 500}}}, Dtype::fp32, 4);
  Flops sum;
  for (const NamedKernel& named : exchange.compress)
    sum = sum + flops(named.kernel);
  REQUIRE(exchange.messages.size() == 3);
  for (const CompressedMessage& message : exchange.messages)
    for (const NamedKernel& named : message.kernels)
      sum = sum + flops(named.kernel);
  CHECK(sum.count() == 6.0 * 3 * 1000 * 500);
  CHECK(exchange.messages[0].bytes.count() == 4 * 40);
  CHECK(exchange.messages[1].bytes.count() == 4 * 3 * 1000);
  CHECK(exchange.messages[2].bytes.count() == 4 * 3 * 500);
}

TEST_CASE("buckets hold whole tensors, the first one less") {
  TensorBuckets buckets(10, 100);
  const auto sizes = [](const std::vector<TensorBucket>& full) {
    std::vector<std::int64_t> found;
    for (const TensorBucket& bucket : full)
      found.push_back(bucket.elements);
    return found;
  };
  using Sizes = std::vector<std::int64_t>;
  CHECK(sizes(buckets.add({{4, 8}, {2, 3}}, 32 + 6 + 5)) == Sizes{6 + 32});
  CHECK(sizes(buckets.add({{90, 1}}, 90)).empty());
  CHECK(sizes(buckets.add({{10, 1}}, 10)) == Sizes{5 + 90 + 10});
  CHECK(sizes(buckets.add({}, 7)).empty());
  CHECK(sizes(buckets.flush()) == Sizes{7});
  CHECK(buckets.flush().empty());
}

TEST_CASE("experts' gradients are compressed among their own replicas") {
  Case c(CompressionKind::bf16);
  Transformer mixture = network();
  mixture.moe.experts = 8;
  mixture.moe.top_k = 2;
  mixture.moe.ffn_hidden = 512;
  c.plan.experts.ranks = 4;
  const NetworkWork work = network_work(mixture, execution(c.recipe, c.plan));
  const StepPlan step = plan_step(work, c.recipe, c.plan);
  std::int64_t experts = 0, sent = 0;
  for (const int kind : work.chain)
    experts += work.kinds[static_cast<std::size_t>(kind)].expert_parameters;
  for (const Call& call : step.cast.roles[0].program.calls)
    for (const Op& op : step.cast.roles[0].program.blocks[call.block].ops)
      if (op.kind == OpKind::collective && step.cast.connection(op).name == "expert replicas")
        sent += step.cast.transfer(op).bytes.count();
  CHECK(sent == 2 * experts);
}
