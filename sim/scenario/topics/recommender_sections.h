// What a scenario says of a recommender, as written: under /model, /training and /parallelism.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "models/recommender/recommender.h"
#include "sim/json/fields.h"

namespace trainyard {

struct TableSection {
  std::int64_t rows = 1, count = 1, lookups = 1;
  std::optional<std::int64_t> dimension;
};

struct RecommenderSection {
  std::int64_t dense_features = 1, dimension = 1;
  std::vector<TableSection> tables;
  std::vector<std::int64_t> bottom_mlp, top_mlp;
  Interaction interaction = Interaction::dot;
  std::optional<std::int64_t> cross_layers, cross_rank;
  Dtype table_dtype = Dtype::fp32;
};

struct EmbeddingParallelSection {
  TableSharding sharding = TableSharding::automatic;
  std::vector<std::string> groups;  // names of kTableShardings
  std::optional<int> column_shards;
  IndexExchange index_exchange = IndexExchange::pipelined;
};

inline constexpr std::array<json::Choice<TableSharding>, 5> kTableShardings = {
    {{"auto", TableSharding::automatic},
     {"table_wise", TableSharding::table_wise},
     {"column_wise", TableSharding::column_wise},
     {"row_wise", TableSharding::row_wise},
     {"data_parallel", TableSharding::replicated}}};
inline constexpr std::array<json::Choice<TableOptimizer>, 3> kTableOptimizers = {
    {{"row_wise_adagrad", TableOptimizer::row_wise_adagrad},
     {"sgd", TableOptimizer::sgd},
     {"adam", TableOptimizer::adam}}};

void visit_fields(json::Fields& f, TableSection& s);
void visit_fields(json::Fields& f, RecommenderSection& s);
void visit_fields(json::Fields& f, EmbeddingParallelSection& s);

}  // namespace trainyard
