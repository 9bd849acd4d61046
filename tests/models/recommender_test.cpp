// Recommenders against closed forms: parameters, FLOPs, what travels, who holds what.
#include <doctest/doctest.h>

#include <algorithm>
#include <numeric>

#include "models/recommender/recommender_work.h"
#include "sim/base/random.h"
#include "tests/models/work_support.h"
#include "tests/support/about.h"
#include "tests/support/rooms.h"

using namespace trainyard;

namespace {

constexpr std::int64_t kSamples = 64;

// Eight tables of 1000 rows of 16 numbers.
Recommender small(TableSharding sharding = TableSharding::table_wise) {
  Recommender n;
  n.dense_features = 13;
  n.dimension = 16;
  n.tables = {{.rows = 1000, .count = 8, .lookups = 3, .sharding = sharding}};
  n.bottom_mlp = {32, 16};
  n.top_mlp = {64, 1};
  return n;
}

Execution on(int ranks, std::int64_t samples = kSamples) {
  Execution how;
  how.micro_batch.size = samples;
  how.replicas = ranks;
  how.compute = Dtype::fp16;
  return how;
}

const LayerWork& layer_of(const NetworkWork& work, const std::string& name) {
  const auto found = std::find_if(work.kinds.begin(), work.kinds.end(),
                                  [&](const LayerWork& kind) { return kind.name == name; });
  REQUIRE(found != work.kinds.end());
  return *found;
}

std::int64_t embedding_bytes(const LayerWork& layer) {
  return bytes_of(layer.forward, MemoryOp::embedding_bag) +
         bytes_of(layer.backward, MemoryOp::embedding_bag);
}

// The costs of single-table groups, dealt to `ranks` ranks: the largest sum.
std::int64_t greatest_cost(const TablePlan& plan) {
  std::int64_t most = 0;
  for (const RankTables& rank : plan.ranks)
    most = std::max(most, rank.cost);
  return most;
}

Recommender with_lookups(const std::vector<std::int64_t>& lookups) {
  Recommender n = small();
  n.tables.clear();
  for (const std::int64_t count : lookups)
    n.tables.push_back({.rows = 1 << 20, .lookups = count, .sharding = TableSharding::table_wise});
  return n;
}

// The least possible largest sum, by trying everything.
std::int64_t best_possible(const std::vector<std::int64_t>& costs, int ranks) {
  std::vector<std::int64_t> sums(static_cast<std::size_t>(ranks), 0);
  std::int64_t best = std::accumulate(costs.begin(), costs.end(), std::int64_t{0});
  const auto place = [&](const auto& self, std::size_t next) -> void {
    if (next == costs.size()) {
      best = std::min(best, *std::max_element(sums.begin(), sums.end()));
      return;
    }
    for (std::int64_t& sum : sums) {
      sum += costs[next];
      self(self, next + 1);
      sum -= costs[next];
    }
  };
  place(place, 0);
  return best;
}

}  // namespace

TEST_CASE("a recommender's parameters are its tables and the matrices between its widths") {
  Recommender n = small();
  const std::int64_t tables = 8 * 1000 * 16;
  const std::int64_t bottom = 13 * 32 + 32 + 32 * 16 + 16;
  CHECK(interaction_width(n) == 16 + 9 * 8 / 2);
  CHECK(parameter_count(n, 1) == tables + bottom + 52 * 64 + 64 + 64 + 1);
  n.interaction = Interaction::cat;
  CHECK(interaction_width(n) == 9 * 16);
  CHECK(parameter_count(n, 1) == tables + bottom + 144 * 64 + 64 + 64 + 1);
  n.interaction = Interaction::dcn;
  n.cross_layers = 3;
  n.cross_rank = 5;
  CHECK(parameter_count(n, 1) ==
        tables + bottom + 144 * 64 + 64 + 64 + 1 + 3 * (2 * 144 * 5 + 144));
}

TEST_CASE("parameters of ranks add up to the network, replicas counted once") {
  for (const TableSharding how : {TableSharding::table_wise, TableSharding::column_wise,
                                  TableSharding::row_wise, TableSharding::replicated}) {
    const Recommender n = small(how);
    const NetworkWork work = network_work(n, on(8));
    std::int64_t dense = 0, held = 0;
    for (const LayerWork& kind : work.kinds) {
      dense += kind.parameters;
      held += kind.resident.parameters;
    }
    // All ranks hold the same here.
    CHECK(dense + 8 * held == parameter_count(n, 1));
    CHECK(static_cast<std::int64_t>(work.chain.size()) == chain_length(n));
  }
}

TEST_CASE("products of a recommender are those of its matrices, and pairs of vectors") {
  Recommender n = small();
  const auto forward = [](const NetworkWork& work) {
    Flops sum, model, backward, skipped;
    for (const LayerWork& kind : work.kinds) {
      sum = sum + sum_of_flops(kind.forward);
      backward = backward + sum_of_flops(kind.backward);
      model = model + kind.forward_model_flops;
      skipped = skipped + kind.skipped_flops;
    }
    CHECK(sum == model);
    // The gradient of the dense features is nobody's input.
    CHECK(backward.count() == 2 * model.count() - 2.0 * kSamples * 13 * 32);
    CHECK(backward == 2 * model - skipped);
    return model.count();
  };
  const double mlps = 2.0 * kSamples * (13 * 32 + 32 * 16 + 64);
  CHECK(forward(network_work(n, on(8))) == mlps + 2.0 * kSamples * (52 * 64 + 9 * 9 * 16));
  n.interaction = Interaction::dcn;
  n.cross_layers = 2;
  n.cross_rank = 5;
  CHECK(forward(network_work(n, on(8))) == mlps + 2.0 * kSamples * (144 * 64 + 2 * 2 * 144 * 5));
}

TEST_CASE("pooled embeddings: samples of all x columns of a rank, there and back") {
  const NetworkWork work = network_work(small(), on(8));
  const Bytes whole(8 * kSamples * 1 * 16 * 2);
  const std::vector<GroupCollective> there =
      collectives(layer_of(work, "embedding tables").forward);
  REQUIRE(there.size() == 3);
  CHECK(there[0].bytes == Bytes(8 * kSamples * 1 * 4));      // counts
  CHECK(there[1].bytes == Bytes(8 * kSamples * 1 * 3 * 8));  // indices
  CHECK(there[2].bytes == whole);
  const std::vector<GroupCollective> back = collectives(layer_of(work, "interaction").backward);
  REQUIRE(back.size() == 1);
  CHECK(back[0].bytes == whole);
  for (const GroupCollective& start : there) {
    CHECK(start.kind == CollectiveKind::all_to_all);
    CHECK(start.group == LayerGroup::tables);
  }
  // Two ranks of three have two tables: an exchange is as long as theirs.
  Recommender uneven = small();
  uneven.tables[0].count = 5;
  CHECK(table_exchange(uneven, on(3)).pooled == Bytes(3 * kSamples * 2 * 16 * 2));
}

TEST_CASE("row-wise sums of all samples are reduced, n times what table-wise exchanges") {
  const TableExchange rows = table_exchange(small(TableSharding::row_wise), on(8));
  const TableExchange tables = table_exchange(small(), on(8));
  CHECK(rows.pooled == Bytes(0));
  CHECK(rows.partial_sums == Bytes(8 * kSamples * 8 * 16 * 2));
  CHECK(rows.partial_sums == 8 * tables.pooled);
  CHECK(rows.indices == tables.indices);
  CHECK(rows.lengths == 8 * tables.lengths);
  const NetworkWork work = network_work(small(TableSharding::row_wise), on(8));
  CHECK(collectives(layer_of(work, "embedding tables").forward).back().kind ==
        CollectiveKind::reduce_scatter);
  CHECK(collectives(layer_of(work, "interaction").backward).back().kind ==
        CollectiveKind::all_gather);
}

TEST_CASE("columns look up as many bytes as whole tables, but more indices") {
  const NetworkWork whole = network_work(small(), on(8));
  const NetworkWork columns = network_work(small(TableSharding::column_wise), on(8));
  const std::int64_t extra = 7 * 8 * 3 * kSamples * kIndexBytes;  // seven more parts of a table
  const auto lookups = [](const NetworkWork& work) {
    return bytes_of(work.kinds[0].forward, MemoryOp::embedding_bag);
  };
  CHECK(lookups(columns) == lookups(whole) + extra);
  CHECK(table_exchange(small(TableSharding::column_wise), on(8)).pooled ==
        table_exchange(small(), on(8)).pooled);
}

TEST_CASE("one rank exchanges nothing, nor do replicas") {
  for (const LayerWork& kind : network_work(small(), on(1)).kinds) {
    CHECK(collectives(kind.forward).empty());
    CHECK(collectives(kind.backward).empty());
    CHECK(kind.resident.buffers == Bytes(0));
  }
  for (const LayerWork& kind : network_work(small(TableSharding::replicated), on(8)).kinds)
    CHECK(collectives(kind.forward).empty());
}

TEST_CASE("the bottom MLP runs between the start of the exchange and its wait, both ways") {
  const NetworkWork work = network_work(small(), on(8));
  REQUIRE(work.kinds.size() == 6);
  CHECK(script(work.kinds[0].forward) ==
        std::vector<std::string>{"start all-to-all counts of indices", "start all-to-all indices",
                                 "lookup in tables", "start all-to-all pooled embeddings"});
  CHECK(work.kinds[1].name == "bottom MLP 1");
  CHECK(work.kinds[2].name == "bottom MLP 2");
  CHECK(script(work.kinds[3].forward).front() == "wait");
  CHECK(script(work.kinds[3].backward).back() == "start all-to-all gradients of embeddings");
  CHECK(script(work.kinds[0].backward) == std::vector<std::string>{"wait", "update of tables"});
  Recommender exposed = small();
  exposed.index_exchange = IndexExchange::exposed;
  CHECK(script(network_work(exposed, on(8)).kinds[0].forward)[2] == "wait");
  exposed.index_exchange = IndexExchange::none;
  CHECK(script(network_work(exposed, on(8)).kinds[0].forward).size() == 2);
}

// Rows of 16 fp32 numbers and an index for each lookup in, 16 fp16 numbers out; of each lookup
// index and gradient, and of each of the 1000 rows touched weights and one fp32 number, twice.
TEST_CASE("lookup and update move bytes of lookups and of touched rows") {
  const std::int64_t all = 8 * kSamples, lookups = 3 * all;
  CHECK(embedding_bytes(network_work(small(), on(8)).kinds[0]) ==
        lookups * (16 * 4 + 8) + all * 16 * 2 + lookups * (16 * 2 + 8) + 1000 * 2 * (16 * 4 + 4));
  Recommender n = small();
  n.optimizer = TableOptimizer::adam;
  CHECK(update_bytes(n, 16) == 2 * (16 * 4 + 16 * 8));
  n.optimizer = TableOptimizer::sgd;
  CHECK(update_bytes(n, 16) == 2 * 16 * 4);
  n.table_dtype = Dtype::bf16;
  CHECK(update_bytes(n, 16) == 2 * 16 * 2);
}

TEST_CASE("loads are traffic in even shares") {
  Recommender n = small();
  CHECK(network_work(n, on(8)).rank_load.empty());
  n.tables[0].count = 5;
  const NetworkWork work = network_work(n, on(3));
  CHECK(work.rank_load == std::vector<double>{2 / (5 / 3.0), 2 / (5 / 3.0), 1 / (5 / 3.0)});
  // The busiest rank moves what it would alone with its tables.
  Recommender two = small();
  two.tables[0].count = 2;
  CHECK(static_cast<double>(embedding_bytes(work.kinds[0])) * work.rank_load[0] ==
        about(static_cast<double>(embedding_bytes(network_work(two, on(1, 3 * kSamples)).kinds[0])))
            .within(1e-4));
}

TEST_CASE("the fullest rank's tables and their state are what a rank holds") {
  Recommender n = small();
  // The most expensive table, which is dealt first, is not the largest.
  n.tables = {{.rows = 1000, .sharding = TableSharding::table_wise},
              {.rows = 10, .lookups = 9, .sharding = TableSharding::table_wise},
              {.rows = 10, .count = 2, .sharding = TableSharding::table_wise},
              {.rows = 41, .sharding = TableSharding::row_wise}};
  const Resident held = network_work(n, on(4)).kinds[0].resident;
  CHECK(held.weights == Bytes((1000 + 11) * 16 * 4));
  CHECK(held.optimizer_state == Bytes((1000 + 11) * 4));
  CHECK(held.parameters == (1000 + 11) * 16);
  // Sent: one table of all samples and sums of the one by rows. Arriving: all five of the own.
  const TableExchange travels = table_exchange(n, on(4));
  CHECK(travels.pooled == Bytes(4 * kSamples * 16 * 2));
  CHECK(travels.partial_sums == Bytes(4 * kSamples * 16 * 2));
  CHECK(held.buffers == travels.pooled + travels.partial_sums + Bytes(kSamples * 5 * 16 * 2) +
                            travels.indices + travels.lengths);
  n.optimizer = TableOptimizer::adam;
  CHECK(network_work(n, on(4)).kinds[0].resident.optimizer_state == Bytes((1000 + 11) * 16 * 8));
  n.optimizer = TableOptimizer::sgd;
  CHECK(network_work(n, on(4)).kinds[0].resident.optimizer_state == Bytes(0));
}

TEST_CASE("activations of a recommender are the inputs of its products, once each") {
  const NetworkWork work = network_work(small(), on(8));
  CHECK(layer_of(work, "bottom MLP 1").activations() == Bytes(kSamples * (13 + 32) * 2));
  CHECK(layer_of(work, "bottom MLP 2").activations() == Bytes(kSamples * 16 * 2));
  CHECK(layer_of(work, "interaction").activations() == Bytes(kSamples * (9 * 16 + 52) * 2));
  CHECK(layer_of(work, "top MLP 2").activations() == Bytes(kSamples * (2 + 4)));
}

// Graham's bounds: the even share and the largest part but 1/n of it; 4/3 - 1/(3n) of the best.
TEST_CASE("tables are dealt within Graham's bounds") {
  SplitMix64 random(7);
  for (int round = 0; round < 60; ++round) {
    CAPTURE(round);
    const int ranks = 2 + static_cast<int>(random.next() % 2);
    std::vector<std::int64_t> lookups, costs;
    for (int t = 0; t < 7; ++t)
      lookups.push_back(1 + static_cast<std::int64_t>(random.next() % 40));
    const Recommender n = with_lookups(lookups);
    std::int64_t sum = 0, largest = 0;
    for (const std::int64_t count : lookups) {
      costs.push_back(count * (16 * 4 + kIndexBytes));
      sum += costs.back();
      largest = std::max(largest, costs.back());
    }
    const TablePlan plan = table_plan(n, ranks, kSamples, 2);
    std::int64_t dealt = 0, bytes = 0;
    for (const RankTables& rank : plan.ranks) {
      dealt += rank.cost;
      bytes += rank.bytes;
    }
    CHECK(dealt == sum);
    CHECK(bytes == 7 * (std::int64_t{1} << 20) * (16 * 4 + 4));
    const std::int64_t most = greatest_cost(plan);
    CHECK(ranks * most <= sum + (ranks - 1) * largest);
    CHECK(3 * ranks * most <= (4 * ranks - 1) * best_possible(costs, ranks));
  }
  // With many tables the largest is small against the even share.
  std::vector<std::int64_t> many;
  std::int64_t sum = 0;
  for (int t = 0; t < 200; ++t) {
    many.push_back(1 + static_cast<std::int64_t>(random.next() % 40));
    sum += many.back() * (16 * 4 + kIndexBytes);
  }
  CHECK(3 * 8 * greatest_cost(table_plan(with_lookups(many), 8, kSamples, 2)) <= 4 * sum);
}

TEST_CASE("among ranks of equal cost the emptiest takes the next table") {
  Recommender n = small();
  n.tables = {{.rows = 40, .count = 2, .sharding = TableSharding::table_wise},
              {.rows = 20, .count = 2, .sharding = TableSharding::table_wise},
              {.rows = 30, .count = 2, .sharding = TableSharding::table_wise}};
  // 40 30 20 40 30 20 by size: 40 | 40 | 30, then 30 to the third, 20 and 20 to the others.
  const TablePlan plan = table_plan(n, 3, kSamples, 2);
  for (const RankTables& rank : plan.ranks)
    CHECK(rank.bytes == 60 * (16 * 4 + 4));
}

TEST_CASE("automatic tables: small ones are replicas, heavy ones are divided by columns") {
  Recommender n = small(TableSharding::automatic);
  n.tables = {{.rows = kSamples},      // as many as samples
              {.rows = kSamples + 1},  // one more
              {.rows = 1 << 20, .lookups = 100},
              {.rows = 1 << 20}};
  TablePlan plan = table_plan(n, 4, kSamples, 2);
  CHECK(plan.sharding == std::vector{TableSharding::replicated, TableSharding::table_wise,
                                     TableSharding::column_wise, TableSharding::table_wise});
  // 102 x 72 bytes on four ranks: 1836 for each. Halves cost 4000, quarters 2400, eighths are more
  // than there are ranks.
  CHECK(plan.column_shards == std::vector{1, 1, 4, 1});
  plan = table_plan(n, 1, kSamples, 2);
  for (const TableSharding how : plan.sharding)
    CHECK(how == TableSharding::table_wise);
  CHECK(most_column_shards(96, 36) == 32);
  CHECK(most_column_shards(7, 4) == 1);
}

TEST_CASE("what a recommender cannot do is said with the field to blame") {
  const auto blames = [](const Recommender& n, Execution how, const std::string& member) {
    const std::vector<ExecutionProblem> problems = check_execution(n, how);
    return problems.size() == 1 && problems[0].member == member;
  };
  CHECK(check_execution(small(), on(8)).empty());
  Execution how = on(8);
  how.tensor = 2;
  CHECK(blames(small(), how, "tensor"));
  how = on(8);
  how.context = 2;
  CHECK(blames(small(), how, "context"));
  how = on(8);
  how.recompute.form = Recompute::full;
  CHECK(blames(small(), how, "recompute"));
  Recommender n = small();
  n.bottom_mlp = {32, 8};
  CHECK(blames(n, on(8), ""));
  n = small();
  n.tables[0].dimension = 8;
  CHECK(blames(n, on(8), ""));
  n.interaction = Interaction::cat;
  CHECK(check_execution(n, on(8)).empty());
  n.cross_layers = 1;
  CHECK(blames(n, on(8), ""));
  n = small(TableSharding::column_wise);
  n.tables[0].column_shards = 3;
  CHECK(blames(n, on(8), ""));
  n = small();
  n.tables[0].rows = std::int64_t{1} << 60;
  CHECK(blames(n, on(8), ""));
}
