// The tables of a recommender.
#include "sim/scenario/topics/model/recommender_sections.h"

#include "sim/scenario/topics/word_lists.h"

namespace trainyard::scenario {

using models::IndexExchange;
using models::Interaction;

namespace {

using json::anything;
using json::between;
using json::Choice;
using json::optional;
using json::required;

// Upper ends that keep sizes within 64 bits; their products are checked with the network.
constexpr double kMostRows = 1e12;
constexpr double kMostTables = 1e5;
constexpr double kMostMlpLayers = 1e3;

constexpr std::array<Choice<Interaction>, 3> kInteractions = {
    {{"dot", Interaction::dot}, {"cat", Interaction::cat}, {"dcn", Interaction::dcn}}};
constexpr std::array<Choice<IndexExchange>, 3> kIndexExchanges = {
    {{"pipelined", IndexExchange::pipelined},
     {"exposed", IndexExchange::exposed},
     {"none", IndexExchange::none}}};

}  // namespace

void visit_fields(json::Fields& f, TableSection& s) {
  f.field("rows", s.rows, required, between(1, kMostRows), "Entries of the table.");
  f.field("count", s.count, optional, between(1, kMostTables), "Tables like this one.");
  f.field("lookups", s.lookups, optional, between(1, 1e6),
          "Rows that a sample looks up and sums (pooling factor).");
  f.field("dim", s.dimension, between(1, kMostWidth),
          "Width of its vectors. Default: embedding_dim.");
}

void visit_fields(json::Fields& f, RecommenderSection& s) {
  f.field("dense_features", s.dense_features, required, between(1, kMostWidth),
          "Numbers of a sample that enter the bottom MLP.");
  f.field("embedding_dim", s.dimension, required, between(1, kMostWidth),
          "Width of embedding vectors.");
  f.sections("tables", s.tables, required, "Embedding tables, in groups of equal ones.");
  f.list("bottom_mlp", s.bottom_mlp, required, between(1, kMostWidth),
         "Widths of the layers of the bottom MLP, its input left out.");
  f.list("top_mlp", s.top_mlp, required, between(1, kMostWidth),
         "Widths of the layers of the top MLP; its input is what the interaction hands on.");
  f.choice("interaction", s.interaction, kInteractions, optional,
           "How vectors meet: dot (products of all pairs), cat (side by side), dcn (side by side "
           "through cross layers).");
  f.field("cross_layers", s.cross_layers, between(1, kMostMlpLayers), "dcn: cross layers.");
  f.field("cross_rank", s.cross_rank, between(1, kMostWidth), "dcn: rank of their weights.");
  f.choice("table_dtype", s.table_dtype, kGradientDtypes, optional, "Type of the tables.");
}

void visit_fields(json::Fields& f, EmbeddingParallelSection& s) {
  f.choice("sharding", s.sharding, kTableShardings, optional,
           "How tables are divided: auto, table_wise (each whole on a rank), column_wise, "
           "row_wise, data_parallel (replicated, their gradients dense).");
  f.list("groups", s.groups, optional, anything,
         "The same for each group of /model/tables by itself, in order.");
  f.field("column_shards", s.column_shards, between(2, 1 << 20),
          "column_wise: parts of a table. Default: most that divide its columns, up to the ranks.");
  f.choice("index_exchange", s.index_exchange, kIndexExchanges, optional,
           "Indices travel to the ranks of their tables: pipelined (under the step before), "
           "exposed (before the lookups), none (each rank reads those of its tables).");
}

}  // namespace trainyard::scenario
