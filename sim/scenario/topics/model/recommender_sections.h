// What a scenario says of a recommender, as written: under /model, /training and /parallelism.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "models/recommender/recommender.h"
#include "sim/json/fields.h"

namespace trainyard::scenario {

struct TableSection {
  std::int64_t rows = 1, count = 1, lookups = 1;
  std::optional<std::int64_t> dimension;
};

struct RecommenderSection {
  std::int64_t dense_features = 1, dimension = 1;
  std::vector<TableSection> tables;
  std::vector<std::int64_t> bottom_mlp, top_mlp;
  models::Interaction interaction = models::Interaction::dot;
  std::optional<std::int64_t> cross_layers, cross_rank;
  models::Dtype table_dtype = models::Dtype::fp32;
};

struct EmbeddingParallelSection {
  models::TableSharding sharding = models::TableSharding::automatic;
  std::vector<std::string> groups;  // names of kTableShardings
  std::optional<int> column_shards;
  models::IndexExchange index_exchange = models::IndexExchange::pipelined;
};

inline constexpr std::array<json::Choice<models::TableSharding>, 5> kTableShardings = {
    {{"auto", models::TableSharding::automatic},
     {"table_wise", models::TableSharding::table_wise},
     {"column_wise", models::TableSharding::column_wise},
     {"row_wise", models::TableSharding::row_wise},
     {"data_parallel", models::TableSharding::replicated}}};
inline constexpr std::array<json::Choice<models::TableOptimizer>, 3> kTableOptimizers = {
    {{"row_wise_adagrad", models::TableOptimizer::row_wise_adagrad},
     {"sgd", models::TableOptimizer::sgd},
     {"adam", models::TableOptimizer::adam}}};

void visit_fields(json::Fields& f, TableSection& s);
void visit_fields(json::Fields& f, RecommenderSection& s);
void visit_fields(json::Fields& f, EmbeddingParallelSection& s);

}  // namespace trainyard::scenario
