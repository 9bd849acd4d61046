// Recommenders as scenarios describe them.
#include <doctest/doctest.h>

#include <numeric>

#include "models/recommender/table_plan.h"
#include "sim/plan/step_plan.h"
#include "tests/scenario/temporary.h"
#include "tests/support/rooms.h"

using namespace trainyard;

namespace {

const std::string kScenario =
    std::string(TRAINYARD_SOURCE_DIR) + "/configs/scenarios/dlrm-8xa100.json";

Scenario variant(const std::string& name) {
  for (const Scenario& scenario : load_scenario(kScenario).variants) {
    if (scenario.variant == name) return scenario;
  }
  FAIL("no variant ", name);
  return {};
}

Recommender recommender(const Scenario& scenario) {
  return scenario.network.as<Recommender>();
}

}  // namespace

// 187,767,399 rows of 128 numbers and 2,368,897 dense parameters: MLPerf's "24 billion".
TEST_CASE("MLPerf's DLRM has its rows and its dense parameters") {
  const Scenario scenario = variant("table-wise");
  const Recommender network = recommender(scenario);
  CHECK(network.tables.size() == 26);
  std::int64_t rows = 0, lookups = 0;
  for (const TableGroup& table : network.tables) {
    CHECK(table.rows <= 40'000'000);
    rows += table.rows;
    lookups += table.lookups;
  }
  CHECK(rows == 187'767'399);
  CHECK(lookups == 26);
  const std::int64_t bottom = 13 * 512 + 512 + 512 * 256 + 256 + 256 * 128 + 128;
  const std::int64_t top =
      479 * 1024 + 1024 + 1024 * 1024 + 1024 + 1024 * 512 + 512 + 512 * 256 + 256 + 256 + 1;
  CHECK(bottom + top == 2'368'897);
  CHECK(parameter_count(scenario.network, 1) == rows * 128 + bottom + top);
  CHECK(parameter_count(scenario.network, 1) == 24'036'595'969);
}

// 204,184,588 rows, 214 lookups of a sample; cross layers of 3456 numbers and rank 512.
TEST_CASE("MLPerf's DLRM-DCNv2 has its rows, lookups and cross layers") {
  const Scenario scenario = variant("dcnv2-table-wise");
  const Recommender network = recommender(scenario);
  std::int64_t rows = 0, lookups = 0;
  for (const TableGroup& table : network.tables) {
    rows += table.rows;
    lookups += table.lookups;
  }
  CHECK(network.tables.size() == 26);
  CHECK(rows == 204'184'588);
  CHECK(lookups == 214);
  const std::int64_t cross = 3 * (2 * 3456 * 512 + 3456);
  const std::int64_t top =
      3456 * 1024 + 1024 + 1024 * 1024 + 1024 + 1024 * 512 + 512 + 512 * 256 + 256 + 256 + 1;
  CHECK(parameter_count(scenario.network, 1) == rows * 128 + 171'392 + cross + top);
}

TEST_CASE("variants divide tables as they say") {
  const Recommender whole = recommender(variant("table-wise")),
                    rows = recommender(variant("row-wise"));
  for (const TableGroup& table : whole.tables)
    CHECK(table.sharding == TableSharding::table_wise);
  for (const TableGroup& table : rows.tables)
    CHECK(table.sharding == TableSharding::row_wise);
  const Scenario scenario = variant("auto");
  const TablePlan plan = table_plan(recommender(scenario), 8, scenario.recipe.micro_batch.size, 2);
  for (std::size_t g = 0; g < plan.sharding.size(); ++g) {
    const bool is_small = recommender(scenario).tables[g].rows <= 8192;
    CHECK((plan.sharding[g] == TableSharding::replicated) == is_small);
  }
}

// fp32 tables and one fp32 number a row: 96.1 GB and .75 GB over eight ranks.
TEST_CASE("column-wise tables are equal on all ranks, to the row") {
  const Scenario scenario = variant("column-wise");
  const NetworkWork work =
      network_work(scenario.network, execution(scenario.recipe, scenario.plan));
  CHECK(work.rank_load.empty());
  CHECK(work.kinds[0].resident.weights == Bytes(187'767'399LL * 128 * 4 / 8));
  CHECK(work.kinds[0].resident.optimizer_state == Bytes(187'767'399LL * 4));
}

TEST_CASE("a recommender's own fields reach the network") {
  test::Folder folder("recommender");
  const std::string path = folder.write("s.json", R"({
    "version": 1, "name": "own",
    "model": { "kind": "recommender", "dense_features": 13, "embedding_dim": 16,
               "tables": [{ "rows": 1000, "count": 4, "lookups": 3 }, { "rows": 50, "dim": 8 }],
               "bottom_mlp": [32, 16], "interaction": "dcn", "cross_layers": 2, "cross_rank": 4,
               "top_mlp": [64, 1], "table_dtype": "bf16" },
    "cluster": { "nodes": 1, "node": { "preset": "dgx-a100-80gb" } },
    "training": { "global_batch": 1024, "micro_batch": 64, "precision": { "compute": "fp16" },
                  "optimizer": { "type": "adam" }, "embedding_optimizer": "adam" },
    "parallelism": { "embedding_parallel": { "groups": ["column_wise", "data_parallel"],
                                             "column_shards": 4, "index_exchange": "exposed" } }
  })");
  CHECK(test::problems(path) == "");
  const Scenario scenario = load_scenario(path).base;
  const Recommender n = recommender(scenario);
  CHECK(scenario.plan.degrees.data == 8);
  CHECK(microbatches(scenario.recipe, scenario.plan) == 2);
  CHECK(n.tables.size() == 2);
  CHECK(n.tables[0].count == 4);
  CHECK(n.tables[0].lookups == 3);
  CHECK(n.tables[0].sharding == TableSharding::column_wise);
  CHECK(n.tables[0].column_shards == 4);
  CHECK(n.tables[1].dimension == 8);
  CHECK(n.tables[1].sharding == TableSharding::replicated);
  CHECK(n.cross_layers == 2);
  CHECK(n.cross_rank == 4);
  CHECK(n.table_dtype == Dtype::bf16);
  CHECK(n.optimizer == TableOptimizer::adam);
  CHECK(n.index_exchange == IndexExchange::exposed);
  // Without a word: Adagrad a row, divided as best, pipelined.
  const Scenario bare =
      load_scenario(path, {"parallelism={}", "training.embedding_optimizer=null"}).base;
  CHECK(recommender(bare).optimizer == TableOptimizer::row_wise_adagrad);
  CHECK(recommender(bare).tables[0].sharding == TableSharding::automatic);
  CHECK(recommender(bare).index_exchange == IndexExchange::pipelined);
  // A network of no kind is a transformer, as ever.
  CHECK(test::problems(path, {"model.kind=null"}).find("/model/layers: is required") !=
        std::string::npos);
}
