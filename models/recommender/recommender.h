// A recommender: dense features through a bottom MLP, categorical ones through embedding tables
// that are dealt to all ranks, an interaction of both, a top MLP.
// Source: Naumov et al., Deep Learning Recommendation Model, arXiv:1906.00091, 2019; Mudigere et
// al., Software-Hardware Co-design for Fast and Scalable Training of DLRMs, ISCA 2022 (TorchRec).
#pragma once

#include <cstdint>
#include <vector>

#include "models/layer/kernel.h"

namespace trainyard::models {

template <class N>
struct Family;

// How a table is divided among the ranks that see different samples.
//   table_wise:    one rank has all of it.
//   column_wise:   parts of its columns are tables of their own.
//   row_wise:      every rank has an equal part of the rows and sums what it finds in them.
//   replicated:    every rank has all of it; its gradient is dense and all-reduced.
//   automatic:     replicated, column_wise or table_wise (models/recommender/table_plan.h says
//   which).
enum class TableSharding : std::uint8_t {
  automatic,
  table_wise,
  column_wise,
  row_wise,
  replicated
};

// What the backward pass does to the rows that it updates; row-wise Adagrad has one fp32 number a
// row. Source: Khudia et al., FBGEMM, 2021; Mudigere et al. 2022, section 4.1.4.
enum class TableOptimizer : std::uint8_t { sgd, row_wise_adagrad, adam };

// How indices reach the ranks of their tables: under the step before (TorchRec's sparse pipeline,
// in which a step moves those of the next), before the lookups, or not at all.
enum class IndexExchange : std::uint8_t { pipelined, exposed, none };

//   dot: products of all pairs of vectors, beside the dense one. Naumov et al. 2019.
//   cat: the vectors side by side.
//   dcn: the same through cross layers x' = x0 * (W V x + b) + x with V of low rank.
//        Source: Wang et al., DCN V2, WWW 2021, section 3.
enum class Interaction : std::uint8_t { dot, cat, dcn };

// `count` tables alike.
struct TableGroup {
  std::int64_t rows = 1;
  std::int64_t count = 1;
  std::int64_t lookups = 1;    // of a sample in each (pooling factor); their vectors are summed
  std::int64_t dimension = 0;  // 0: the network's
  TableSharding sharding = TableSharding::automatic;
  int column_shards = 0;  // of column_wise; 0: most that divide the dimension, one a rank at most
};

struct Recommender {
  std::int64_t dense_features = 1;
  std::int64_t dimension = 1;  // of an embedding vector
  std::vector<TableGroup> tables;
  std::vector<std::int64_t> bottom_mlp, top_mlp;  // widths of the layers' outputs
  Interaction interaction = Interaction::dot;
  std::int64_t cross_layers = 0, cross_rank = 0;  // of dcn
  Dtype table_dtype = Dtype::fp32;
  TableOptimizer optimizer = TableOptimizer::row_wise_adagrad;
  IndexExchange index_exchange = IndexExchange::pipelined;

  std::int64_t dimension_of(const TableGroup& group) const {
    return group.dimension > 0 ? group.dimension : dimension;
  }
};

const Family<Recommender>& row_of(const Recommender*);

}  // namespace trainyard::models
