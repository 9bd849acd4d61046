// Products in pieces against the sums of models/transformer/chunked_product.cpp, to the picosecond.
#include <doctest/doctest.h>

#include <algorithm>

#include "models/transformer/transformer.h"
#include "sim/collective/share.h"
#include "tests/simulate/toy.h"
#include "tests/support/cast.h"
#include "tests/support/networks.h"
#include "tests/support/rooms.h"

using namespace trainyard;

namespace {

// A matrix multiplication takes a nanosecond for each row, times `per_row`; nothing else takes any.
class Rows final : public ComputeCost {
 public:
  explicit Rows(std::int64_t per_row) : per_row_(per_row) {}
  Estimate time(const Kernel& kernel) const override {
    const auto* gemm = std::get_if<Gemm>(&kernel);
    return {Seconds(gemm == nullptr ? 0.0 : static_cast<double>(gemm->m * per_row_) * 1e-9),
            Basis::analytic};
  }

 private:
  std::int64_t per_row_;
};

// In proportion to FLOPs, or bytes of what has none.
class Work final : public ComputeCost {
 public:
  explicit Work(double rate) : rate_(rate) {}
  Estimate time(const Kernel& kernel) const override {
    const bool is_gemm = std::holds_alternative<Gemm>(kernel);
    return {Seconds(is_gemm ? flops(kernel).count() / rate_
                            : static_cast<double>(memory_traffic(kernel).count()) * 1e-12),
            Basis::analytic};
  }

 private:
  double rate_;
};

// A nanosecond for each byte that a rank sends, and no latency.
class SentBytes final : public MessageCost {
 public:
  MessageTerms collective(CollectiveKind kind, Bytes bytes,
                          const GroupShape& shape) const override {
    MessageTerms terms;
    const Bytes own = wire_share(kind, shape.ranks).of(bytes);
    terms.latency = Seconds(static_cast<double>(own.count()) * 1e-9);
    return terms;
  }
  MessageTerms point_to_point(Bytes, const GroupShape&) const override { return {}; }
};

constexpr int kRanks = 4;
constexpr std::int64_t kTokens = 48;

Duration end_of(const NetworkWork& work, const ComputeCost& compute) {
  TrainingRecipe recipe;
  ParallelPlan plan;
  plan.degrees.tensor = kRanks;
  plan.tensor_parallel.sequence = true;
  const StepPlan step = plan_step(work, recipe, plan);
  const Lowered lowered =
      lower_in_order(step.cast, toy::cluster(kRanks, 1), nullptr, compute, SentBytes(), {});
  return std::get<Trace>(run(lowered.machine)).end;
}

TransformerSlice slice_in(int pieces, std::int64_t hidden) {
  TransformerSlice s;
  s.tokens = kTokens;
  s.shard_tokens = kTokens / kRanks;
  s.hidden = hidden;
  s.tensor = kRanks;
  s.tensor_parallel = s.sequence_parallel = s.overlap = true;
  Execution how;
  how.tensor_parallel.overlap = TensorOverlap::chunked;
  how.tensor_parallel.chunks = pieces;
  cut_products(s, how);
  return s;
}

// Nanoseconds of one product of kTokens rows, its input gathered before or its output scattered
// after.
std::int64_t product_time(int pieces, std::int64_t per_row, std::int64_t hidden, bool gathers) {
  const TransformerSlice s = slice_in(pieces, hidden);
  WorkList list;
  const Gemm product{kTokens, 1, 1};
  if (gathers)
    gathered_product(list, s, "gather", "product", product);
  else
    reduced_product(list, s, "product", product);
  // What follows needs all of it.
  list.kernel("next", MemoryBound{});
  NetworkWork work;
  work.kinds.resize(1);
  work.kinds[0].name = "product";
  work.kinds[0].forward = list.take();
  work.kinds[0].backward = {toy::kernel(0)};
  work.chain = {0};
  work.divisible = {true};
  return end_of(work, Rows(per_row)).count() / 1000;
}

Transformer small() {
  Transformer network = gpt(2, 256, 8, 512);
  network.tied_embeddings = false;
  return network;
}

}  // namespace

TEST_CASE("a product in pieces takes the sum of its pipeline") {
  for (const std::int64_t hidden : {2, 16, 64, 512}) {
    for (const std::int64_t per_row : {1, 30, 100, 1000}) {
      CAPTURE(hidden);
      CAPTURE(per_row);
      const std::int64_t compute = kTokens * per_row;
      const std::int64_t sent = kTokens * hidden * 2 * (kRanks - 1) / kRanks;
      for (const std::int64_t n : {1, 2, 3, 4, 6, 12}) {
        CAPTURE(n);
        const std::int64_t time =
            sent / n + (n - 1) * std::max(sent / n, compute / n) + compute / n;
        CHECK(product_time(static_cast<int>(n), per_row, hidden, true) == time);
        CHECK(product_time(static_cast<int>(n), per_row, hidden, false) == time);
      }
      CHECK(product_time(0, per_row, hidden, true) ==
            compute / kRanks + std::max(compute - compute / kRanks, sent));
      CHECK(product_time(0, per_row, hidden, false) ==
            product_time(kDefaultTensorChunks, per_row, hidden, false));
    }
  }
}

TEST_CASE("where small pieces cost nothing, more overlap is never slower, and one piece is none") {
  const Transformer network = small();
  for (const double rate : {1e12, 3e13, 1e15}) {
    for (const Recompute recompute : {Recompute::none, Recompute::full}) {
      Execution how;
      how.micro_batch.size = 1;
      how.micro_batch.sequence_length = 128;
      how.tensor = kRanks;
      how.tensor_parallel.sequence = true;
      how.recompute.form = recompute;
      const auto time = [&](TensorOverlap overlap, int pieces) {
        how.tensor_parallel.overlap = overlap;
        how.tensor_parallel.chunks = pieces;
        return end_of(network_work(network, how), Work(rate));
      };
      const Duration none = time(TensorOverlap::none, 0);
      const Duration behind = time(TensorOverlap::weight_gradient, 0);
      CHECK(behind <= none);
      CHECK(time(TensorOverlap::chunked, 1) == behind);
      for (const int pieces : {0, 2, 4, 8, 16}) {
        CAPTURE(pieces);
        // Each kernel and message rounds to a picosecond.
        CHECK(time(TensorOverlap::chunked, pieces) < behind);
      }
    }
  }
}
