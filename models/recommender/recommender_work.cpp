// One rank of n, b samples of its own. T tables of dimension d, L lookups of a sample in one.
//
//   tables       forward   indices travel; lookup reads n b L (d e_t + 8) of the tables that the
//                          rank holds and writes n b d e; pooled vectors travel
//                backward  gradients arrive; of each lookup index and gradient are read, of each
//                          row touched (no more than there are) weight and state read and written
//   bottom MLP   runs while pooled vectors travel: they are waited for by the interaction
//   interaction  vectors side by side; dot: F x F products of F = T + 1 vectors, the F (F-1)/2
//                below the diagonal behind the dense vector; backward two such products
//   cross layer  r x N and N x r products, one element-wise pass
//   MLP layer    a product, bias and ReLU in one pass; the last has a loss in fp32
//
// Ranks hold different tables. Kernels of tables here are those of the even share and follow
// NetworkWork::rank_load; memory is that of the rank that holds most. Rows are taken as read from
// memory each time: neither caches nor the sorting of indices are counted.
// Source: Naumov et al. 2019; Mudigere et al. 2022; FBGEMM's fused backward (exact optimizers).
#include "models/recommender/recommender_work.h"

#include <algorithm>
#include <string>

#include "models/layer/work_list.h"
#include "sim/base/divide.h"

namespace trainyard::models {
namespace {

double real(std::int64_t count) {
  return static_cast<double>(count);
}

// Numbers of a layer on one rank.
struct Sizes {
  Sizes(const Recommender& n, const Execution& e)
      : ranks(e.replicas),
        samples(e.micro_batch.size),
        gemm(e.compute),
        stored(e.compute == Dtype::fp8 ? Dtype::bf16 : e.compute),
        element(size_of(stored).count()),
        plan(table_plan(n, e.replicas, e.micro_batch.size, element)) {
    for (std::size_t g = 0; g < n.tables.size(); ++g) {
      vectors += n.tables[g].count;
      columns += n.tables[g].count * n.dimension_of(n.tables[g]);
    }
    dense = n.bottom_mlp.back();
  }
  std::int64_t all_samples() const { return samples * ranks; }

  int ranks;
  std::int64_t samples;
  Dtype gemm, stored;
  std::int64_t element;
  TablePlan plan;
  std::int64_t vectors = 0, columns = 0;  // of all tables
  std::int64_t dense = 0;                 // width of the bottom MLP's output
};

MemoryBound pass(MemoryOp op, std::int64_t read, std::int64_t written) {
  return {op, Bytes(read), Bytes(written)};
}

// Tables of one kind of sharding: sums over groups of count x (what one table has).
struct Sums {
  std::int64_t tables = 0, lookups = 0, columns = 0, parameters = 0;
  std::int64_t looked_up = 0;                 // bytes for a sample
  std::int64_t updated = 0;                   // bytes of rows and states
  std::int64_t row_bytes = 0, row_state = 0;  // ... of one rank's part of the rows
};

Sums sums(const Recommender& n, const Sizes& s, TableSharding kind) {
  const std::int64_t weight = size_of(n.table_dtype).count();
  Sums sum;
  for (std::size_t g = 0; g < n.tables.size(); ++g) {
    if (s.plan.sharding[g] != kind) continue;
    const TableGroup& group = n.tables[g];
    const std::int64_t d = n.dimension_of(group);
    const std::int64_t touched = std::min(s.all_samples() * group.lookups, group.rows);
    const std::int64_t own_rows = divide_up(group.rows, s.ranks);
    sum.tables += group.count;
    sum.lookups += group.count * group.lookups;
    sum.columns += group.count * d;
    sum.parameters += group.count * group.rows * d;
    sum.looked_up += group.count * group.lookups * (d * weight + kIndexBytes);
    sum.updated += group.count * touched * update_bytes(n, d);
    sum.row_bytes += group.count * own_rows * d * weight;
    sum.row_state += group.count * own_rows * row_state_bytes(n.optimizer, d);
  }
  return sum;
}

// The tables that go whole or by columns to ranks, over all of them.
struct Dealt {
  std::int64_t cost = 0, lookups = 0, bags = 0, columns = 0, traffic = 0;
  RankTables most;            // each member's own maximum
  const RankTables* fullest;  // the rank with most bytes
};

Dealt dealt(const TablePlan& plan) {
  Dealt all;
  all.fullest = &plan.ranks.front();
  for (const RankTables& rank : plan.ranks) {
    all.cost += rank.cost;
    all.lookups += rank.lookups;
    all.bags += rank.bags;
    all.columns += rank.columns;
    all.traffic += rank.traffic;
    all.most.cost = std::max(all.most.cost, rank.cost);
    all.most.lookups = std::max(all.most.lookups, rank.lookups);
    all.most.bags = std::max(all.most.bags, rank.bags);
    all.most.columns = std::max(all.most.columns, rank.columns);
    if (rank.bytes > all.fullest->bytes) all.fullest = &rank;
  }
  return all;
}

TableExchange exchange_of(const Recommender& n, const Sizes& s) {
  if (s.ranks == 1) return {};
  const Dealt parts = dealt(s.plan);
  const Sums rows = sums(n, s, TableSharding::row_wise);
  TableExchange exchange;
  exchange.pooled = Bytes(s.all_samples() * parts.most.columns * s.element);
  exchange.partial_sums = Bytes(s.all_samples() * rows.columns * s.element);
  // Rows of a table are looked up where they are, and counted everywhere. A lookup is as likely on
  // one rank as on another.
  const std::int64_t sent_lookups = s.samples * (parts.lookups + rows.lookups);
  const std::int64_t received_lookups =
      s.all_samples() * parts.most.lookups + s.samples * rows.lookups;
  const std::int64_t sent_bags = s.samples * (parts.bags + s.ranks * rows.tables);
  const std::int64_t received_bags = s.all_samples() * (parts.most.bags + rows.tables);
  exchange.indices = Bytes(std::max(sent_lookups, received_lookups) * kIndexBytes);
  exchange.lengths = Bytes(std::max(sent_bags, received_bags) * kLengthBytes);
  return exchange;
}

class Tables {
 public:
  Tables(const Recommender& n, const Sizes& s)
      : n_(n),
        s_(s),
        parts_(dealt(s.plan)),
        rows_(sums(n, s, TableSharding::row_wise)),
        replicas_(sums(n, s, TableSharding::replicated)),
        exchange_(exchange_of(n, s)) {}

  LayerWork work() const;
  void start_gradients(WorkList& list) const;
  void wait(WorkList& list) const {
    if (travels()) list.wait(LayerGroup::tables);
  }

 private:
  bool travels() const { return exchange_.pooled + exchange_.partial_sums > Bytes(0); }
  // The even share of what the ranks do together.
  std::int64_t share(std::int64_t all) const { return divide_up(all, s_.ranks); }
  void send_indices(WorkList& list) const;
  void look_up(WorkList& list) const;
  void update(WorkList& list) const;

  const Recommender& n_;
  const Sizes& s_;
  Dealt parts_;
  Sums rows_, replicas_;
  TableExchange exchange_;
};

void start(WorkList& list, const std::string& name, CollectiveKind kind, Bytes bytes) {
  if (bytes > Bytes(0)) list.start(name, kind, bytes, LayerGroup::tables);
}

void Tables::send_indices(WorkList& list) const {
  if (n_.index_exchange == IndexExchange::none || !travels()) return;
  start(list, "all-to-all counts of indices", CollectiveKind::all_to_all, exchange_.lengths);
  start(list, "all-to-all indices", CollectiveKind::all_to_all, exchange_.indices);
  if (n_.index_exchange == IndexExchange::exposed) list.wait(LayerGroup::tables);
}

void Tables::look_up(WorkList& list) const {
  const std::int64_t all = s_.all_samples();
  if (parts_.bags > 0) {
    list.routed_kernel("lookup in tables", pass(MemoryOp::embedding_bag, share(all * parts_.cost),
                                                share(all * parts_.columns * s_.element)));
    start(list, "all-to-all pooled embeddings", CollectiveKind::all_to_all, exchange_.pooled);
  }
  if (rows_.tables > 0) {
    list.kernel("lookup in rows", pass(MemoryOp::embedding_bag, share(all * rows_.looked_up),
                                       all * rows_.columns * s_.element));
    start(list, "reduce-scatter partial sums", CollectiveKind::reduce_scatter,
          exchange_.partial_sums);
  }
  if (replicas_.tables > 0)
    list.kernel("lookup in replicas",
                pass(MemoryOp::embedding_bag, s_.samples * replicas_.looked_up,
                     s_.samples * replicas_.columns * s_.element));
}

void Tables::start_gradients(WorkList& list) const {
  start(list, "all-to-all gradients of embeddings", CollectiveKind::all_to_all, exchange_.pooled);
  start(list, "all-gather gradients of sums", CollectiveKind::all_gather, exchange_.partial_sums);
}

// Gradients of pooled vectors are read once for each lookup. A replica's gradient is dense: zeros,
// and what was looked up added; its optimizer is that of the dense layers.
void Tables::update(WorkList& list) const {
  const std::int64_t all = s_.all_samples();
  wait(list);
  if (parts_.bags > 0) {
    // Lookups and updates of a rank follow one load, that of both together.
    const std::int64_t lookup = all * (parts_.cost + parts_.columns * s_.element);
    const std::int64_t rest = share(parts_.traffic - lookup);
    const std::int64_t rows = share(sums(n_, s_, TableSharding::table_wise).updated +
                                    sums(n_, s_, TableSharding::column_wise).updated) /
                              2;
    list.routed_kernel("update of tables", pass(MemoryOp::embedding_bag, rest - rows, rows));
  }
  if (rows_.tables > 0) {
    const std::int64_t gradients = [&] {
      std::int64_t bytes = 0;
      for (std::size_t g = 0; g < n_.tables.size(); ++g) {
        const TableGroup& group = n_.tables[g];
        if (s_.plan.sharding[g] == TableSharding::row_wise)
          bytes +=
              group.count * group.lookups * (n_.dimension_of(group) * s_.element + kIndexBytes);
      }
      return share(all * bytes);
    }();
    const std::int64_t touched = share(rows_.updated) / 2;
    list.kernel("update of rows", pass(MemoryOp::embedding_bag, gradients + touched, touched));
  }
  if (replicas_.tables > 0) {
    std::int64_t read = 0;
    for (std::size_t g = 0; g < n_.tables.size(); ++g) {
      const TableGroup& group = n_.tables[g];
      if (s_.plan.sharding[g] == TableSharding::replicated)
        read += group.count * group.lookups * (n_.dimension_of(group) * s_.element + kIndexBytes);
    }
    list.kernel("gradient of replicas", pass(MemoryOp::embedding_bag, s_.samples * read,
                                             replicas_.parameters * s_.element));
  }
}

LayerWork Tables::work() const {
  LayerWork work;
  work.name = "embedding tables";
  WorkList forward;
  WorkList backward = WorkList::of_backward();
  send_indices(forward);
  look_up(forward);
  update(backward);
  work.forward = forward.take();
  work.backward = backward.take();
  work.parameters = replicas_.parameters;
  const std::int64_t lookups = s_.all_samples() * parts_.most.lookups + s_.samples * rows_.lookups +
                               s_.samples * replicas_.lookups;
  work.kept.add(Module::embedding, Bytes(lookups * kIndexBytes));
  work.output = Bytes(s_.samples * s_.columns * s_.element);

  const std::int64_t weight = size_of(n_.table_dtype).count();
  const RankTables& fullest = *parts_.fullest;
  work.resident.weights = Bytes(fullest.bytes - fullest.state + rows_.row_bytes);
  work.resident.optimizer_state = Bytes(fullest.state + rows_.row_state);
  work.resident.parameters = work.resident.weights.count() / weight;
  // What is sent and what arrives, forward or backward; one set of indices on its way.
  if (travels()) {
    const std::int64_t arrives = s_.samples * (parts_.columns + rows_.columns) * s_.element;
    work.resident.buffers = exchange_.pooled + exchange_.partial_sums + Bytes(arrives);
    if (n_.index_exchange != IndexExchange::none)
      work.resident.buffers = work.resident.buffers + exchange_.indices + exchange_.lengths;
  }
  return work;
}

// A layer of either MLP; `first`: nobody needs the gradient of its input, which stays in memory;
// `last`: a loss in place of the activation.
LayerWork mlp_layer(const Sizes& s, const std::string& name, std::int64_t in, std::int64_t out,
                    bool first, bool last) {
  const std::int64_t b = s.samples;
  const std::int64_t result = b * out * s.element;
  const std::int64_t loss = b * out * size_of(Dtype::fp32).count();
  const Gemm product{b, out, in, 1, s.gemm};
  LayerWork work;
  work.name = name;
  WorkList forward;
  WorkList backward = WorkList::of_backward();
  forward.kernel(name, product);
  if (last) {
    forward.kernel("loss", pass(MemoryOp::cross_entropy, result + loss, loss));
    backward.kernel("loss backward", pass(MemoryOp::cross_entropy, 2 * loss, result));
  } else {
    forward.kernel(name + " bias and ReLU", pass(MemoryOp::activation, result, result));
    backward.kernel(name + " ReLU backward", pass(MemoryOp::activation, 2 * result, result));
  }
  backward.weight_gradient(name + " bias gradient",
                           pass(MemoryOp::column_sum, result, out * s.element));
  if (!first) backward.kernel(name + " input gradient", Gemm{b, in, out, 1, s.gemm});
  backward.weight_gradient(name + " weight gradient", Gemm{out, in, b, 1, s.gemm});
  work.forward = forward.take();
  work.backward = backward.take();
  work.parameters = in * out + out;
  work.matrices = {{out, in}};
  work.kept.add(Module::feed_forward,
                Bytes(result + (first ? b * in * s.element : 0) + (last ? loss : 0)));
  work.output = Bytes(result);
  work.forward_model_flops = flops(product);
  if (first) work.skipped_flops = work.forward_model_flops;
  return work;
}

// Vectors side by side, and with dot all products of pairs.
LayerWork interaction(const Recommender& n, const Sizes& s, const Tables& tables) {
  const std::int64_t b = s.samples;
  const std::int64_t joined = b * (s.columns + s.dense) * s.element;
  LayerWork work;
  work.name = "interaction";
  WorkList forward;
  WorkList backward = WorkList::of_backward();
  tables.wait(forward);
  forward.kernel("join vectors", pass(MemoryOp::elementwise, joined, joined));
  work.kept.add(Module::features, Bytes(joined));
  work.output = Bytes(b * interaction_width(n) * s.element);
  if (n.interaction == Interaction::dot) {
    const std::int64_t f = s.vectors + 1, d = n.dimension;
    const std::int64_t pairs = b * f * f * s.element;
    const std::int64_t dense = b * d * s.element;
    const Gemm products{f, f, d, b, s.gemm};
    const Gemm gradients{f, d, f, b, s.gemm};
    forward.kernel("products of pairs", products);
    forward.kernel("pairs behind dense vector",
                   pass(MemoryOp::elementwise, pairs + dense, work.output.count()));
    backward.kernel("gradients of pairs",
                    pass(MemoryOp::elementwise, work.output.count(), pairs + dense));
    backward.kernel("gradient of one vector", gradients);
    backward.kernel("gradient of the other", gradients);
    backward.kernel("sum of both", pass(MemoryOp::elementwise, 2 * joined + dense, joined));
    work.kept.add(Module::features, work.output);
    work.transient = Bytes(pairs);
    work.forward_model_flops = flops(products);
  }
  backward.kernel("part gradients", pass(MemoryOp::elementwise, joined, joined));
  tables.start_gradients(backward);
  work.forward = forward.take();
  work.backward = backward.take();
  return work;
}

LayerWork cross_layer(const Recommender& n, const Sizes& s, const std::string& name) {
  const std::int64_t b = s.samples, width = interaction_width(n), r = n.cross_rank;
  const std::int64_t wide = b * width * s.element, narrow = b * r * s.element;
  const Gemm down{b, r, width, 1, s.gemm}, up{b, width, r, 1, s.gemm};
  LayerWork work;
  work.name = name;
  WorkList forward;
  WorkList backward = WorkList::of_backward();
  forward.kernel(name + " down", down);
  forward.kernel(name + " up", up);
  forward.kernel(name + " product", pass(MemoryOp::elementwise, 3 * wide, wide));
  // Of x' = x0 * (W V x + b) + x: the gradient of the bracket, and what x0 gets of it.
  backward.kernel(name + " product backward", pass(MemoryOp::elementwise, 4 * wide, 2 * wide));
  backward.weight_gradient(name + " bias gradient",
                           pass(MemoryOp::column_sum, wide, width * s.element));
  backward.kernel(name + " up input gradient", down);
  backward.weight_gradient(name + " up weight gradient", Gemm{width, r, b, 1, s.gemm});
  backward.kernel(name + " down input gradient", up);
  backward.weight_gradient(name + " down weight gradient", Gemm{r, width, b, 1, s.gemm});
  backward.kernel(name + " gradient sum", pass(MemoryOp::elementwise, 2 * wide, wide));
  work.forward = forward.take();
  work.backward = backward.take();
  work.parameters = 2 * width * r + width;
  work.matrices = {{r, width}, {width, r}};
  work.kept.add(Module::feed_forward, Bytes(2 * wide + narrow));  // W V x + b and x'; V x
  work.output = Bytes(wide);
  work.forward_model_flops = flops(down) + flops(up);
  return work;
}

// In units of the even share; empty if all are equal.
std::vector<double> loads(const TablePlan& plan) {
  std::vector<double> result;
  const double all = real(dealt(plan).traffic);
  const bool even = std::all_of(plan.ranks.begin(), plan.ranks.end(), [&](const RankTables& rank) {
    return rank.traffic == plan.ranks.front().traffic;
  });
  if (even) return result;
  for (const RankTables& rank : plan.ranks)
    result.push_back(real(rank.traffic) * real(static_cast<std::int64_t>(plan.ranks.size())) / all);
  return result;
}

}  // namespace

TableExchange table_exchange(const Recommender& network, const Execution& execution) {
  return exchange_of(network, Sizes(network, execution));
}

std::int64_t interaction_width(const Recommender& network) {
  std::int64_t vectors = 1, columns = network.bottom_mlp.back();
  for (const TableGroup& group : network.tables) {
    vectors += group.count;
    columns += group.count * network.dimension_of(group);
  }
  if (network.interaction != Interaction::dot) return columns;
  return network.bottom_mlp.back() + vectors * (vectors - 1) / 2;
}

std::int64_t recommender_places(const Recommender& network) {
  return 2 + network.cross_layers +
         static_cast<std::int64_t>(network.bottom_mlp.size() + network.top_mlp.size());
}

NetworkWork recommender_work(const Recommender& network, const Execution& execution) {
  const Sizes sizes(network, execution);
  const Tables tables(network, sizes);
  NetworkWork work;
  const auto mlp = [&](const std::string& name, std::int64_t in,
                       const std::vector<std::int64_t>& widths, bool bottom) {
    for (std::size_t i = 0; i < widths.size(); ++i) {
      work.kinds.push_back(mlp_layer(sizes, name + " MLP " + std::to_string(i + 1), in, widths[i],
                                     bottom && i == 0, !bottom && i + 1 == widths.size()));
      in = widths[i];
    }
  };
  work.kinds.push_back(tables.work());
  mlp("bottom", network.dense_features, network.bottom_mlp, true);
  work.kinds.push_back(interaction(network, sizes, tables));
  for (std::int64_t i = 1; i <= network.cross_layers; ++i)
    work.kinds.push_back(cross_layer(network, sizes, "cross layer " + std::to_string(i)));
  mlp("top", interaction_width(network), network.top_mlp, false);
  for (std::size_t place = 0; place < work.kinds.size(); ++place) {
    work.chain.push_back(static_cast<int>(place));
    work.divisible.push_back(true);
  }
  std::int64_t rows = 0;
  for (const TableGroup& group : network.tables)
    rows += group.count * group.lookups;
  work.input = Bytes(sizes.samples * (4 * network.dense_features + 8 * rows));
  work.rank_load = loads(sizes.plan);
  return work;
}

std::int64_t recommender_parameters(const Recommender& network) {
  std::int64_t sum = 0;
  for (const TableGroup& group : network.tables)
    sum += group.count * group.rows * network.dimension_of(group);
  const auto mlp = [&](std::int64_t in, const std::vector<std::int64_t>& widths) {
    for (const std::int64_t out : widths) {
      sum += in * out + out;
      in = out;
    }
  };
  const std::int64_t width = interaction_width(network);
  mlp(network.dense_features, network.bottom_mlp);
  mlp(width, network.top_mlp);
  return sum + network.cross_layers * (2 * width * network.cross_rank + width);
}

}  // namespace trainyard::models
