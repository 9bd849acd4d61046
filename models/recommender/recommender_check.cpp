// Why a recommender cannot be executed so.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "models/recommender/recommender_work.h"

namespace trainyard::models {
namespace {

constexpr std::int64_t kMostShards = std::int64_t{1} << 20;

double real(std::int64_t count) {
  return static_cast<double>(count);
}

void check_division(Problems& problems, const Execution& e) {
  if (e.tensor > 1)
    problems.push_back(
        {"tensor",
         "a recommender's layers are not divided; leave it out, and all GPUs see samples"});
  if (e.context > 1) problems.push_back({"context", "samples have no sequence to divide"});
  if (e.tensor_parallel.sequence)
    problems.push_back({"sequence_parallel", "samples have no sequence to divide"});
  if (e.experts.ranks > 1) problems.push_back({"expert", "the network has no experts to deal"});
  if (e.recompute.form != Recompute::none)
    problems.push_back(
        {"recompute", "a recommender's activations are few; recomputing them is not described"});
}

void check_group(Problems& problems, const Recommender& n, const TableGroup& group, std::size_t g,
                 const Execution& e) {
  const auto refuse = [&](const std::string& why) {
    problems.push_back({"", fmt::format("tables of group {}: {}", g, why)});
  };
  if (group.rows < 1 || group.count < 1 || group.lookups < 1 || n.dimension_of(group) < 1)
    return refuse("rows, count, lookups and dimension must be positive");
  if (n.interaction == Interaction::dot && n.dimension_of(group) != n.dimension)
    refuse(fmt::format("vectors of {} numbers have no product with those of {}",
                       n.dimension_of(group), n.dimension));
  if (group.column_shards == 0) return;
  if (group.column_shards > e.replicas)
    refuse(fmt::format("{} parts of the columns are more than {} ranks", group.column_shards,
                       e.replicas));
  else if (n.dimension_of(group) % group.column_shards != 0)
    refuse(fmt::format("{} columns are not divisible into {} parts", n.dimension_of(group),
                       group.column_shards));
}

// Every product of sizes stays below 2^62. In floating point, which does not overflow here.
void must_be_countable(Problems& problems, const Recommender& n, const Execution& e) {
  double table_bytes = 0, moved = 0, columns = real(n.bottom_mlp.back()), vectors = 1, shards = 0;
  for (const TableGroup& group : n.tables) {
    const double d = real(n.dimension_of(group)), count = real(group.count);
    table_bytes += 12 * count * real(group.rows) * d;
    moved += 32 * count * real(group.lookups) * (d + 1);
    columns += count * d;
    vectors += count;
    shards += count * std::min(d, real(e.replicas));
  }
  if (shards > real(kMostShards))
    problems.push_back({"", fmt::format("more than {} parts of tables to deal out", kMostShards)});
  const double samples = real(e.micro_batch.size) * real(e.replicas);
  double width = std::max(columns, vectors * vectors), parameters = 0;
  for (const auto* mlp : {&n.bottom_mlp, &n.top_mlp}) {
    double in = mlp == &n.bottom_mlp ? real(n.dense_features) : width;
    for (const std::int64_t out : *mlp) {
      parameters += 12 * in * real(out);
      width = std::max(width, real(out));
      in = real(out);
    }
  }
  parameters += 24 * real(n.cross_layers) * width * real(n.cross_rank + 1);
  for (const double bytes : {table_bytes, samples * (moved + 16 * width), parameters}) {
    if (bytes < 0x1p62) continue;
    problems.push_back(
        {"", "the sizes of the network and of the batch multiply to more than 2^62 bytes"});
    return;
  }
}

}  // namespace

void check_recommender(Problems& problems, const Recommender& n, const Execution& e) {
  check_division(problems, e);
  const auto positive = [](const std::vector<std::int64_t>& widths) {
    return !widths.empty() &&
           std::all_of(widths.begin(), widths.end(), [](std::int64_t width) { return width >= 1; });
  };
  if (n.dense_features < 1 || n.dimension < 1 || !positive(n.bottom_mlp) || !positive(n.top_mlp)) {
    problems.push_back({"",
                        "a recommender needs dense features, a dimension, and a bottom and a top "
                        "MLP of positive widths"});
    return;
  }
  if (n.tables.empty()) problems.push_back({"", "a recommender needs tables"});
  if (n.interaction == Interaction::dot && n.bottom_mlp.back() != n.dimension)
    problems.push_back(
        {"", fmt::format("the bottom MLP ends in {} numbers, which have no product with embeddings "
                         "of {}",
                         n.bottom_mlp.back(), n.dimension)});
  const bool crosses = n.interaction == Interaction::dcn;
  if (crosses != (n.cross_layers > 0) || crosses != (n.cross_rank > 0))
    problems.push_back({"", "interaction dcn has cross layers of a rank, and no other has"});
  for (std::size_t g = 0; g < n.tables.size(); ++g)
    check_group(problems, n, n.tables[g], g, e);
  if (problems.empty()) must_be_countable(problems, n, e);
}

const Family<Recommender>& row_of(const Recommender*) {
  static const Family<Recommender> row = {
      .name = "recommender",
      .words = "a recommender",
      .sample = Sample::numbers,
      .pipeline = false,
      .check = check_recommender,
      .work = recommender_work,
      .parameters = [](const Recommender& n, std::int64_t) { return recommender_parameters(n); },
      .chain =
          [](const Recommender& n) {
            return ChainLength{recommender_places(n), recommender_places(n)};
          }};
  return row;
}

}  // namespace trainyard::models
