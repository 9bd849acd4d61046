#include "models/recommender/table_plan.h"

#include <algorithm>
#include <set>
#include <tuple>

#include "sim/base/check.h"

namespace trainyard::models {
namespace {

// A part of one table that one rank holds.
struct Shard {
  std::int64_t cost = 0, bytes = 0, state = 0;
  std::size_t group = 0;
  std::int64_t columns = 0;
};

std::int64_t element_bytes(const Recommender& network) {
  return size_of(network.table_dtype).count();
}

std::int64_t cost_of(const Recommender& network, const TableGroup& group, std::int64_t columns) {
  return group.lookups * (columns * element_bytes(network) + kIndexBytes);
}

// The least divisor of `columns` that makes parts of at most `most`; as many as there are ranks if
// none does.
int fewest_column_shards(const Recommender& network, const TableGroup& group, double most,
                         int ranks) {
  const std::int64_t columns = network.dimension_of(group);
  int last = 1;
  for (int parts = 1; parts <= std::min<std::int64_t>(ranks, columns); ++parts) {
    if (columns % parts != 0) continue;
    last = parts;
    if (static_cast<double>(cost_of(network, group, columns / parts)) <= most) break;
  }
  return last;
}

void decide(TablePlan& plan, const Recommender& network, int ranks, std::int64_t samples) {
  double left = 0;  // cost of all that may be dealt out
  for (std::size_t g = 0; g < network.tables.size(); ++g) {
    const TableGroup& group = network.tables[g];
    TableSharding& how = plan.sharding[g];
    how = group.sharding;
    if (how == TableSharding::automatic && ranks == 1) how = TableSharding::table_wise;
    if (how == TableSharding::automatic && group.rows <= samples) how = TableSharding::replicated;
    if (how != TableSharding::replicated && how != TableSharding::row_wise)
      left += static_cast<double>(group.count) *
              static_cast<double>(cost_of(network, group, network.dimension_of(group)));
  }
  for (std::size_t g = 0; g < network.tables.size(); ++g) {
    const TableGroup& group = network.tables[g];
    TableSharding& how = plan.sharding[g];
    int& parts = plan.column_shards[g];
    if (how == TableSharding::automatic) {
      parts = fewest_column_shards(network, group, left / ranks, ranks);
      how = parts > 1 ? TableSharding::column_wise : TableSharding::table_wise;
    } else if (how == TableSharding::column_wise) {
      parts = group.column_shards > 0 ? group.column_shards
                                      : most_column_shards(network.dimension_of(group), ranks);
    }
  }
}

std::vector<Shard> shards_of(const TablePlan& plan, const Recommender& network) {
  std::vector<Shard> shards;
  for (std::size_t g = 0; g < network.tables.size(); ++g) {
    const TableGroup& group = network.tables[g];
    if (plan.sharding[g] == TableSharding::replicated ||
        plan.sharding[g] == TableSharding::row_wise)
      continue;
    const int parts = plan.column_shards[g];
    const std::int64_t columns = network.dimension_of(group) / parts;
    const std::int64_t state = group.rows * row_state_bytes(network.optimizer, columns);
    const std::int64_t bytes = group.rows * columns * element_bytes(network) + state;
    for (std::int64_t i = 0; i < group.count * parts; ++i)
      shards.push_back({cost_of(network, group, columns), bytes, state, g, columns});
  }
  std::stable_sort(shards.begin(), shards.end(), [](const Shard& a, const Shard& b) {
    return std::tie(a.cost, a.bytes) > std::tie(b.cost, b.bytes);
  });
  return shards;
}

// Lookup: rows and indices in, a pooled vector out. Update: for each lookup its index and gradient,
// and each row that is touched.
std::int64_t traffic_of(const Recommender& network, const Shard& shard, std::int64_t samples,
                        std::int64_t element) {
  const TableGroup& group = network.tables[shard.group];
  const std::int64_t lookups = samples * group.lookups;
  return samples * (shard.cost + shard.columns * element) +
         lookups * (shard.columns * element + kIndexBytes) +
         std::min(lookups, group.rows) * update_bytes(network, shard.columns);
}

}  // namespace

std::int64_t row_state_bytes(TableOptimizer optimizer, std::int64_t columns) {
  const std::int64_t single = size_of(Dtype::fp32).count();
  switch (optimizer) {
    case TableOptimizer::sgd: return 0;
    case TableOptimizer::row_wise_adagrad: return single;
    case TableOptimizer::adam: return 2 * columns * single;
  }
  TRAINYARD_CHECK(false, "optimizer of tables {}", static_cast<int>(optimizer));
  return 0;
}

std::int64_t update_bytes(const Recommender& network, std::int64_t columns) {
  return 2 * (columns * element_bytes(network) + row_state_bytes(network.optimizer, columns));
}

int most_column_shards(std::int64_t columns, int ranks) {
  int parts = static_cast<int>(std::min<std::int64_t>(ranks, columns));
  while (columns % parts != 0)
    --parts;
  return parts;
}

TablePlan table_plan(const Recommender& network, int ranks, std::int64_t samples,
                     std::int64_t element) {
  TRAINYARD_CHECK(ranks >= 1 && samples >= 1, "{} ranks of {} samples", ranks, samples);
  TablePlan plan;
  plan.sharding.assign(network.tables.size(), TableSharding::automatic);
  plan.column_shards.assign(network.tables.size(), 1);
  plan.ranks.assign(static_cast<std::size_t>(ranks), {});
  decide(plan, network, ranks, samples);

  std::set<std::tuple<std::int64_t, std::int64_t, std::size_t>> order;  // cost, bytes, rank
  for (std::size_t rank = 0; rank < plan.ranks.size(); ++rank)
    order.emplace(0, 0, rank);
  for (const Shard& shard : shards_of(plan, network)) {
    const std::size_t rank = std::get<2>(*order.begin());
    order.erase(order.begin());
    RankTables& own = plan.ranks[rank];
    own.cost += shard.cost;
    own.bytes += shard.bytes;
    own.state += shard.state;
    own.lookups += network.tables[shard.group].lookups;
    own.bags += 1;
    own.columns += shard.columns;
    own.traffic += traffic_of(network, shard, samples * ranks, element);
    order.emplace(own.cost, own.bytes, rank);
  }
  return plan;
}

}  // namespace trainyard::models
